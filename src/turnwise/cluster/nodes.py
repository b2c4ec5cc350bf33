"""Processes of a run on the nodes of a Ray cluster: places for them, their starts and their ends.

Ray finds the nodes, starts processes there, and ends them with the run's own, in whatever way that
ends. What is said to a process goes over connections of its own. Not here: what processes do, and
when one is started anew (`workers`).
"""

import os
import platform
import secrets
import signal
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from turnwise.config import ClusterConfig
from turnwise.errors import ConfigError, MissingExtraError

STORE_BYTES = 80 * 2**20
"""Memory of Ray's object store on this machine, near its least: nothing is kept there."""
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # else it warns that it will hide GPUs no more
}
REACH_SECONDS = 10.0
"""Deadline of a first connection to a head node."""


@dataclass(frozen=True)
class Kind:
    """Processes of a run that need the same.

    Example: `Kind("cluster.workers", 64)`.
    """

    key: str
    """The recipe's key for their number."""
    count: int
    cpus: int = 1
    """CPUs of each."""
    gpus: int = 0
    """GPUs of each, which it finds in CUDA_VISIBLE_DEVICES."""
    strategy: Literal["SPREAD", "PACK"] = "SPREAD"
    """Over many nodes, or on few, as far as there is room."""
    first_here: bool = False
    """Whether the first of them is this process, whose place is on this machine."""

    def __str__(self) -> str:
        return f"{self.key} = {self.count} ({_resources(*self.all)})"

    @property
    def all(self) -> tuple[int, int]:
        """CPUs and GPUs of all of them."""
        return self.count * self.cpus, self.count * self.gpus


@contextmanager
def connected(config: ClusterConfig, kinds: Sequence[Kind]) -> "Iterator[Cluster]":
    """Inside, this process belongs to the cluster; one that it belongs to already is left as it is.
    `kinds` are all processes that a run will place there. Raises ConfigError where there is no such
    cluster, or it is too small."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ModuleNotFoundError as error:
        raise MissingExtraError(str(error.name), "cluster") from None
    ours = not ray.is_initialized()
    if ours:
        _connect(ray, config, kinds)
    try:
        cluster = Cluster(ray, config)
        cluster.check(kinds)
        yield cluster
    finally:
        if ours:
            ray.shutdown()


def _connect(ray: Any, config: ClusterConfig, kinds: Sequence[Kind]) -> None:
    """Start a cluster, or join one; Ray's handler of SIGTERM gives way to that which was there."""
    _check_reachable(config.address)
    own = {"num_cpus": sum(kind.all[0] for kind in kinds), "object_store_memory": STORE_BYTES}
    own["include_dashboard"] = False
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(
            config.address,
            log_to_driver=False,
            logging_level="ERROR",
            **(own if config.address == "local" else {}),
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ConfigError(
            f"cluster.address is {config.address}, and Ray finds no cluster there "
            f"({str(error).splitlines()[0]}): start one with `ray start --head`, or set "
            "cluster.address=local"
        ) from error
    finally:
        signal.signal(signal.SIGTERM, before)


def _check_reachable(address: str) -> None:
    """Ray would wait for minutes for a machine that is not there."""
    host, _, port = address.rpartition(":")
    if not host:
        return
    try:
        socket.create_connection((host, int(port)), REACH_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"cluster.address is {address}, and nothing answers there ({error}): give the address "
            "that `ray start --head` has printed, or set cluster.address=local"
        ) from None


class Cluster:
    """The cluster that this process belongs to. Example: see `Process`."""

    def __init__(self, ray: Any, config: ClusterConfig) -> None:
        self._ray, self._start_seconds = ray, config.start_seconds
        local = config.address == "local"
        self.host: str = "127.0.0.1" if local else ray.util.get_node_ip_address()
        """The address of this machine by which nodes reach it."""

    def check(self, kinds: Sequence[Kind]) -> None:
        """Raise ConfigError where the whole cluster has too little for all of them together, or no
        node enough for one."""
        nodes = [_sizes(node["Resources"]) for node in self._ray.nodes() if node["Alive"]]
        there = _sum(nodes)
        if not _covers(there, _sum([kind.all for kind in kinds])):
            raise ConfigError(
                f"{' and '.join(map(str, kinds))}: the cluster has {_resources(*there)}; add "
                "nodes, or ask for fewer"
            )
        here = _sizes(self._own_node["Resources"])
        for kind in kinds:
            if kind.first_here and not _covers(here, (kind.cpus, kind.gpus)):
                raise ConfigError(
                    f"{kind.key}: the run's own process is the first one and needs "
                    f"{_resources(kind.cpus, kind.gpus)} on its machine, of which Ray knows "
                    f"{_resources(*here)}: start the run on another node, or this one with more"
                )
            if not any(_covers(node, (kind.cpus, kind.gpus)) for node in nodes):
                raise ConfigError(
                    f"{kind.key}: each needs {_resources(kind.cpus, kind.gpus)} on one node, and "
                    f"no node has so many; the largest has {_resources(*max(nodes))}"
                )

    @contextmanager
    def places(self, kind: Kind) -> "Iterator[Places]":
        """Inside, there is a place for each process of a kind, which nothing else takes. When a
        node is lost, its places move to others as soon as these have room. Raises ConfigError where
        there are none."""
        from ray.util.placement_group import placement_group, remove_placement_group

        each: dict[str, float] = {"CPU": kind.cpus, **({"GPU": kind.gpus} if kind.gpus else {})}
        bundles = [each] * kind.count
        if kind.first_here:
            bundles[0] = each | {f"node:{self._own_node['NodeManagerAddress']}": 0.001}
        group = placement_group(bundles, kind.strategy)
        try:
            if not group.wait(self._start_seconds):
                free = _sizes(self._ray.available_resources())
                raise ConfigError(
                    f"{kind}: the nodes have no room within cluster.start_seconds = "
                    f"{self._start_seconds:g}, and {_resources(*free)} free in all; add nodes, end "
                    "what else runs there, or ask for fewer"
                )
            yield Places(self._ray, kind, group, self._start_seconds)
        finally:
            remove_placement_group(group)

    @property
    def _own_node(self) -> Mapping[str, Any]:
        """Ray's account of this machine."""
        number = self._ray.get_runtime_context().get_node_id()
        return next(node for node in self._ray.nodes() if node["NodeID"] == number)


class Places:
    """Places for the processes of a kind."""

    def __init__(self, ray: Any, kind: Kind, group: Any, start_seconds: float) -> None:
        self._ray, self._kind, self._group = ray, kind, group
        self._start_seconds = start_seconds

    def start(self, index: int, function: Callable[..., None], *arguments: Any) -> "Process":
        """Start the process of a place: it calls a module's function in its main thread, and ends
        when that returns. Returns at once."""
        actor = self._actor(index)
        return Process(self._ray, actor, actor.call.remote(function, *arguments))

    def check(self, folder: Path, versions: str = "") -> None:
        """Raise ConfigError unless all places but the first see a folder of this machine, and have
        its versions of what a run needs, or those given."""
        seen = folder / f".seen-{secrets.token_hex(8)}"
        seen.touch()
        asked = [
            self.start(index, look, str(seen), versions or own_versions())
            for index in range(1, self._kind.count)
        ]
        try:
            ends = [process.ended(self._start_seconds) for process in asked]
        finally:
            for process in asked:
                process.end()
            seen.unlink()
        for end in ends:
            if end != RETURNED:
                reason = "it does not answer" if end is None else end.reason
                raise ConfigError(f"{self._kind.key}: a node cannot take part: {reason}")

    def take_own(self) -> None:
        """Let this process see the GPUs of the first place alone, where it has any. Comes before
        anything is done with GPUs here. Raises ConfigError where that place does not answer."""
        if not self._kind.gpus:
            return
        actor = self._actor(0)
        try:
            asked = actor.visible_gpus.remote()
            visible = self._ray.get(asked, timeout=self._start_seconds)
        except (self._ray.exceptions.GetTimeoutError, self._ray.exceptions.RayActorError) as error:
            raise ConfigError(
                f"{self._kind.key}: no process on this machine said within cluster.start_seconds = "
                f"{self._start_seconds:g} which GPUs are its own ({_end(error).reason})"
            ) from None
        finally:
            self._ray.kill(actor)
        os.environ["CUDA_VISIBLE_DEVICES"] = visible

    def _actor(self, index: int) -> Any:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        place = PlacementGroupSchedulingStrategy(self._group, index)
        needs = {"num_cpus": self._kind.cpus, "num_gpus": self._kind.gpus}
        remote = self._ray.remote(_Actor).options(
            max_restarts=0, scheduling_strategy=place, **needs
        )
        return remote.remote()


@dataclass(frozen=True)
class End:
    """The end of a process."""

    reason: str
    """One line."""
    lost: bool = False
    """Whether something else has ended it: it has neither returned nor raised."""


class Process:
    """A process on some node.

    >>> with cluster.places(Kind("cluster.workers", 4)) as places:
    ...     process = places.start(0, work, "10.0.0.1", 4711, secret)
    ...     print(process.ended())
    None
    """

    def __init__(self, ray: Any, actor: Any, called: Any) -> None:
        self._ray, self._actor, self._called = ray, actor, called

    def ended(self, seconds: float = 0.0) -> End | None:
        """Wait for its end; None where it has not ended after so long."""
        done, _ = self._ray.wait([self._called], timeout=seconds)
        if not done:
            return None
        try:
            self._ray.get(self._called)
        except self._ray.exceptions.RayError as error:
            return _end(error)
        return RETURNED

    async def wait(self) -> End:
        """Wait for its end."""
        try:
            await self._called
        except self._ray.exceptions.RayError as error:
            return _end(error)
        return RETURNED

    def end(self) -> None:
        """End it, wherever it is. Idempotent."""
        self._ray.kill(self._actor)


RETURNED = End("it ended")


class NodeUnfit(Exception):
    """The reason why this machine cannot take part in a run."""


def own_versions() -> str:
    """The versions of this machine that have to be the same on all nodes."""
    return f"Python {platform.python_version()}, turnwise {version('turnwise')}, " + (
        f"torch {version('torch')}"
    )


def look(file: str, versions: str) -> None:
    """Raise NodeUnfit unless this machine sees a file and has these versions."""
    node = platform.node()
    if own_versions() != versions:
        raise NodeUnfit(
            f"{node} has {own_versions()}, and the run's machine {versions}: install the same"
        )
    if not os.path.exists(file):
        raise NodeUnfit(
            f"{node} does not see {os.path.dirname(file)}: put the run on a disk that all nodes "
            "share (--run)"
        )


class _Actor:
    """The process as Ray keeps it: methods run in the main thread."""

    def call(self, function: Callable[..., None], *arguments: Any) -> None:
        """Do what the process is there for."""
        function(*arguments)

    def visible_gpus(self) -> str:
        """The GPUs of its place."""
        return os.environ["CUDA_VISIBLE_DEVICES"]


def _end(error: BaseException) -> End:
    """The end of a process by its own error, or as Ray tells it."""
    cause = getattr(error, "cause", None)
    if cause is not None:
        return End(f"{type(cause).__name__}: {cause}".splitlines()[0])
    lines = [line for line in str(error).splitlines() if line and not line.startswith("\t")]
    why = lines[min(1, len(lines) - 1)]  # the second one, if there is one, says more than the first
    return End(why.partition(". ")[0].rstrip("."), lost=True)


def _sizes(resources: Mapping[str, float]) -> tuple[int, int]:
    """CPUs and GPUs."""
    return int(resources.get("CPU", 0)), int(resources.get("GPU", 0))


def _sum(sizes: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return sum(cpus for cpus, _ in sizes), sum(gpus for _, gpus in sizes)


def _covers(there: tuple[int, int], wanted: tuple[int, int]) -> bool:
    return there[0] >= wanted[0] and there[1] >= wanted[1]


def _resources(cpus: int, gpus: int) -> str:
    """>>> _resources(4, 1)
    '4 CPUs, 1 GPU'
    """
    named = [(cpus, "CPU"), (gpus, "GPU")] if gpus else [(cpus, "CPU")]
    return ", ".join(f"{count} {name}{'s' * (count != 1)}" for count, name in named)
