"""Ranks by torch.distributed: weights divided by FSDP2, the rest by collectives.

Every collective ends within the group's deadline, by an error if not by an answer.
"""

import fcntl
import os
import socket
import struct
from collections import Counter
from collections.abc import MutableMapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.distributed_c10d import _set_pg_timeout
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.utils.weak import WeakTensorKeyDictionary

from turnwise.learning.ranks import Compute, Value
from turnwise.models.copies import adapters_of, layers_of
from turnwise_cluster.learners.exchanges import Slices, divide_experts
from turnwise_cluster.learners.launcher import RankSetup, listening_at

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
"""Variables by which collectives find the network; else they take that of the machine's name,
which others need not reach."""
ADDRESS_OF_INTERFACE = 0x8915
"""The request SIOCGIFADDR of Linux."""


class ProcessGroup:
    """The `Ranks` of a process that has joined; as many as have joined with it."""

    def __init__(self, mesh: DeviceMesh, beside: dist.ProcessGroup, deadline: timedelta) -> None:
        self._mesh, self._deadline = mesh, deadline
        self.rank = dist.get_rank()
        self.count = dist.get_world_size()
        self.device: str = mesh.device_type
        """`cuda` or `cpu`."""
        self.beside = beside
        """A group of the same processes, for threads beside the one that learns."""
        self.expert_parallel = False
        """Whether experts stay on the rank that has them, and tokens are sent to them."""
        self.slicing: Slices | None = None
        # By identity, since tensors compare number by number.
        self._lower: MutableMapping[Tensor, torch.dtype] = WeakTensorKeyDictionary()

    def slice_rows(self, count: int) -> None:
        """Let so many neighbours compute each row together from now on."""
        made: Any = dist.new_subgroups
        self.slicing = Slices(made(count, timeout=self._deadline)[0]) if count > 1 else None

    def gather(self, value: Value) -> list[Value]:
        found: list[Any] = [None] * self.count
        dist.all_gather_object(found, value)
        return found

    def shard(self, model: nn.Module) -> Compute:
        """See Ranks. Gradients are sums over ranks, not means: denominators are global already.

        One layer at a time gets the weights of rank 0 and is divided, so that no other rank holds
        more of the model than its part and a layer; files that it was loaded from are not copied.
        """
        for buffer in model.buffers():
            buffer.data = buffer.data.to(self.device)
            dist.broadcast(buffer.data, 0)
        computed = _Computed(model)
        few = _kept_whole(model)
        if self.expert_parallel:
            self._get_weights(model)  # all at once: experts are divided first
            few |= divide_experts(model, self._mesh)
        for part in [*layers_of(model), computed]:
            if not self.expert_parallel:
                self._get_weights(part)
            self._divide(part, few, computed is part)

        def compute(function: Any, *arguments: Any) -> Any:
            return computed(function, *arguments)

        return compute

    def _divide(self, part: nn.Module, few: set[nn.Parameter], outermost: bool) -> None:
        """Leave this rank its share of the weights of a part that are not divided yet. Weights that
        are trained become float32, and are computed with in the type that they had."""
        weights = {
            name: weight
            for name, weight in part.named_parameters()
            if weight not in few and not isinstance(weight, DTensor)
        }
        policy, own = MixedPrecisionPolicy(), {weight.dtype for weight in weights.values()}
        if any(weight.requires_grad for weight in weights.values()) and own != {torch.float32}:
            (lower,) = own  # weights of other types are kept whole
            policy = MixedPrecisionPolicy(lower, torch.float32, cast_forward_inputs=False)
            for weight in weights.values():
                weight.data = weight.data.float()
        shard = partial(fully_shard, part, mesh=self._mesh, mp_policy=policy, ignored_params=few)
        # By default FSDP keeps the outermost part whole after the forward pass.
        module = shard(reshard_after_forward=True) if outermost else shard()
        module.set_gradient_divide_factor(1.0)  # sums over ranks
        module.set_force_sum_reduction_for_comms(True)  # gloo can do no other
        if policy.param_dtype is not None:
            for name in weights:
                self._lower[part.get_parameter(name)] = policy.param_dtype

    def _get_weights(self, part: nn.Module) -> None:
        """Give all ranks the weights of rank 0, of those that are not divided yet."""
        for weight in part.parameters():
            if not isinstance(weight, DTensor):
                own = weight.data
                given = (
                    own.to(self.device)
                    if self.rank == 0
                    else torch.empty_like(own, device=self.device)
                )
                dist.broadcast(given, 0)
                weight.data = given

    def sum_gradients(self, gradients: Sequence[Tensor]) -> None:
        """See Ranks; all that are not divided go together, in one collective. Each rank has the
        same ones, as all make the same passes."""
        whole = [gradient for gradient in gradients if not isinstance(gradient, DTensor)]
        if not whole:
            return
        together = torch.cat([gradient.flatten() for gradient in whole])
        dist.all_reduce(together)
        sums = torch.split(together, [gradient.numel() for gradient in whole])
        for gradient, summed in zip(whole, sums, strict=True):
            gradient.copy_(summed.view_as(gradient))

    def counts(self, weight: Tensor) -> bool:
        """See Ranks; of what several replicas have, that of the first one does."""
        if not isinstance(weight, DTensor):
            return self.rank == 0
        places = weight.device_mesh.get_coordinate() or ()
        return not any(
            place
            for place, kind in zip(places, weight.placements, strict=True)
            if kind.is_replicate()
        )

    def dtype(self, weight: Tensor) -> torch.dtype:
        return self._lower.get(weight, weight.dtype)

    def local(self, weight: Tensor) -> Tensor:
        return weight.to_local().detach() if isinstance(weight, DTensor) else weight

    def divided(self, local: Tensor, weight: Tensor) -> Tensor:
        if not isinstance(weight, DTensor):
            return local
        mesh = weight.device_mesh
        if mesh.device_type != local.device.type:
            mesh = DeviceMesh(local.device.type, mesh.mesh, _init_backend=False)
        return DTensor.from_local(
            local,
            mesh,
            weight.placements,
            run_check=False,
            shape=weight.shape,
            stride=weight.stride(),
        )

    def whole(self, weight: Tensor) -> Tensor:
        own = weight.detach().to(self.dtype(weight))
        return own.full_tensor() if isinstance(own, DTensor) else own

    def write(self, weight: Tensor, given: Tensor | None) -> None:
        """Write whole numbers, which rank 0 has and others give None for, into a weight: on each
        rank into its part."""
        whole = torch.empty(weight.shape, dtype=self.dtype(weight), device=weight.device)
        if given is not None:
            whole.copy_(given.detach())
        dist.broadcast(whole, 0)
        if isinstance(weight, DTensor):
            mesh, placements = weight.device_mesh, weight.placements
            whole = distribute_tensor(whole, mesh, placements, src_data_rank=None).to_local()
        self.local(weight).copy_(whole)

    def copied(self, tensor: Tensor) -> Tensor:
        """Copy a tensor to the processor's memory, divided as it is."""
        return self.divided(self.local(tensor).detach().to("cpu", copy=True), tensor)


class _Computed(nn.Module):
    """A model under the hooks of FSDP, whose weights are whole while any function computes with
    it; its own class and methods stay what they are."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, function: Any, *arguments: Any) -> Any:
        return _without_views(function(self.model, *arguments))


def _without_views(found: Any) -> Any:
    """Copy tensors, of which a view could lose the hook that gathers weights for the gradient."""
    if isinstance(found, tuple):
        return tuple(map(_without_views, found))
    return found.clone() if isinstance(found, Tensor) else found


def listen(host: str, count: int, seconds: float) -> "tuple[Store, int]":
    """Open the store where ranks meet, on a free port of this machine; returns both."""
    _use_interface_of(host)
    listening = listening_at(host)
    port: int = listening.getsockname()[1]
    return _store(host, port, count, seconds, listening.detach()), port


def visit(setup: RankSetup, address: str) -> "Store":
    """Find the store that rank 0 has opened with `listen`, from a machine with this address."""
    _use_interface_of(address)
    return _store(setup.host, setup.store, setup.count, setup.seconds, None)


def join(store: "Store", setup: RankSetup) -> ProcessGroup:
    """Wait for all other ranks. Nothing that they do together takes longer than the setup's
    seconds; then all that wait for it raise. On GPUs (`cuda`) each rank takes the one of its
    number, or the only one that it sees. Weights are divided over `count / replicas` ranks that
    follow each other."""
    deadline = timedelta(seconds=setup.seconds)
    if setup.device == "cuda":
        torch.cuda.set_device(setup.rank % torch.cuda.device_count())
    dist.init_process_group(
        "nccl" if setup.device == "cuda" else "gloo",
        store=store,
        rank=setup.rank,
        world_size=setup.count,
        timeout=deadline,
    )
    beside = dist.new_group(backend="gloo", timeout=deadline)
    device, count, replicas = setup.device, setup.count, setup.replicas
    mesh = (
        init_device_mesh(device, (count,))
        if replicas == 1
        else init_device_mesh(
            device, (replicas, count // replicas), mesh_dim_names=("replicate", "shard")
        )
    )
    for group in mesh.get_all_groups():
        _set_pg_timeout(deadline, group)  # those of a mesh begin with torch's own
    return ProcessGroup(mesh, beside, deadline)


def leave() -> None:
    """Leave the ranks; what they are together ends."""
    if dist.is_initialized():
        dist.destroy_process_group()


def _use_interface_of(address: str) -> None:
    """Let collectives go through the network that a machine has this address in, unless the user
    has named another one. The loopback needs no name."""
    if address.startswith("127."):
        return
    for _, name in socket.if_nameindex():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking, suppress(OSError):
            request = struct.pack("256s", name.encode())
            found = fcntl.ioctl(asking.fileno(), ADDRESS_OF_INTERFACE, request)[20:24]
            if socket.inet_ntoa(found) == address:
                for variable in INTERFACES:
                    os.environ.setdefault(variable, name)


def _store(host: str, port: int, count: int, seconds: float, listening: int | None) -> "Store":
    store: Store = dist.TCPStore(  # type: ignore[attr-defined]
        host,
        port,
        count,
        is_master=listening is not None,
        timeout=timedelta(seconds=seconds),
        wait_for_workers=False,
        master_listen_fd=listening,
    )
    return store


def _kept_whole(model: nn.Module) -> set[nn.Parameter]:
    """Adapters, and weights of another type than most, such as a critic's head in float32."""
    weights = list(model.parameters())
    ((most, _),) = Counter(weight.dtype for weight in weights).most_common(1)
    return adapters_of(model) | {weight for weight in weights if weight.dtype != most}
