"""This process's side of vLLM's weight transfer on a GPU: NCCL between GPUs, or shared memory of
one.
"""

import base64
import pickle
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing import reductions

from turnwise_vllm.client import Json, ServerRefusedError
from turnwise_vllm.sending import Part, Sender

NCCL: Any = torch.cuda.nccl  # which has no annotations
HANDLES: Any = reductions
BUFFER_BYTES = 2**29
"""Weights that are in the shared memory at once, unless a single one is larger."""


def make_sender(transport: str, device: torch.device) -> Callable[[], Sender]:
    """The senders of a transport, `nccl` or `ipc`, from the model's device."""
    kind = NcclSender if transport == "nccl" else IpcSender
    return lambda: kind(device)


class NcclSender:
    """Broadcasts each weight to all workers of a server, whose GPUs are others than this one.

    The group is joined by an id that goes to the server with the invitation. vLLM's workers begin
    with a sum over one number, and so does this side.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._id: bytes = NCCL.unique_id()
        self._size = 0
        self._group: Any = None

    def invitation(self, workers: int) -> Json:
        self._size = 1 + workers
        shared = base64.b64encode(self._id).decode()
        return {"nccl_unique_id_b64": shared, "rank_offset": 1, "world_size": self._size}

    def join(self) -> None:
        with torch.cuda.device(self._device):
            self._group = NCCL.init_rank(self._size, self._id, 0)
            one = torch.zeros(1, device=self._device)
            NCCL.all_reduce([one], streams=[None], comms=[self._group])
            torch.cuda.current_stream().synchronize()

    def parts(self, weights: Mapping[str, Tensor]) -> Iterator[Part]:
        def send() -> None:
            with torch.cuda.device(self._device):
                for weight in weights.values():
                    there = weight.to(self._device).contiguous()
                    NCCL.broadcast([there], streams=[None], comms=[self._group])
                    torch.cuda.current_stream().synchronize()

        yield Part(described(weights), send)


class IpcSender:
    """Puts weights into memory that a server's only worker, on the same GPU, maps into its own."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def invitation(self, workers: int) -> Json:
        if workers != 1:
            raise ServerRefusedError(
                f"engine.transport=ipc reaches the learner's own GPU alone, and the server has "
                f"{workers}: set engine.transport=nccl or files"
            )
        return {"packed": True}

    def join(self) -> None:
        pass

    def parts(self, weights: Mapping[str, Tensor]) -> Iterator[Part]:
        largest = max(weight.numel() * weight.element_size() for weight in weights.values())
        size = max(BUFFER_BYTES, largest)
        buffer = torch.empty(size, dtype=torch.uint8, device=self._device)
        gpu = str(torch.cuda.get_device_properties(self._device).uuid)
        shared = {gpu: HANDLES.reduce_tensor(buffer)[1]}
        handle = base64.b64encode(pickle.dumps(shared)).decode()
        for batch in batches(weights, size):
            info = {"tensor_sizes": _fill(buffer, batch), "ipc_handles_pickled": handle}
            yield Part(described(batch) | info, lambda: None)


def described(weights: Mapping[str, Tensor]) -> Json:
    """Names, types and shapes of weights, as vLLM asks for them."""
    return {
        "names": list(weights),
        "dtype_names": [str(weight.dtype).removeprefix("torch.") for weight in weights.values()],
        "shapes": [list(weight.shape) for weight in weights.values()],
    }


def batches(weights: Mapping[str, Tensor], most: int) -> Iterator[dict[str, Tensor]]:
    """The weights in order, in groups of at most so many bytes; one that is larger is alone."""
    batch: dict[str, Tensor] = {}
    room = most
    for name, weight in weights.items():
        size = weight.numel() * weight.element_size()
        if batch and size > room:
            yield batch
            batch, room = {}, most
        batch[name] = weight
        room -= size
    yield batch


def _fill(buffer: Tensor, batch: Mapping[str, Tensor]) -> list[int]:
    """Put weights into the buffer one after the other; returns their sizes in bytes."""
    sizes: list[int] = []
    for weight in batch.values():
        flat = weight.contiguous().view(-1).view(torch.uint8)
        start = sum(sizes)
        buffer[start : start + len(flat)].copy_(flat)
        sizes.append(len(flat))
    torch.cuda.synchronize(buffer.device)
    return sizes
