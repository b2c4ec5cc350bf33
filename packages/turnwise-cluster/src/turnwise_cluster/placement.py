"""Places of a run's processes on the nodes of a cluster: processes are started there, and end."""

import asyncio
import math
import os
import platform
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from turnwise.engines.base import PlaceLostError
from turnwise.errors import ConfigError


@dataclass(frozen=True)
class ProcessSpec:
    """Processes of a run that need the same.

    Example: `ProcessSpec("cluster.workers", 64)`.
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
    sharing: int = 1
    """Processes to a place: it and others beside it, which have the same GPUs and take turns."""

    def __str__(self) -> str:
        return f"{self.key} = {self.count} ({resources(*self.all)})"

    @property
    def all(self) -> tuple[int, int]:
        """CPUs and GPUs of all of them."""
        return self.count * self.cpus, self.count * self.gpus

    @property
    def gpu_share(self) -> float:
        """The part of its GPUs that Ray gives to a process: Ray counts four digits."""
        return self.gpus if self.sharing == 1 else math.floor(1e4 * self.gpus / self.sharing) / 1e4


class PlacementGroup:
    """Places for the processes of a kind."""

    def __init__(
        self,
        ray: Any,
        kind: ProcessSpec,
        group: Any,
        bundles: Sequence[int],
        own_node: str,
        start_seconds: float,
    ) -> None:
        """`group` is a placement group, of which each process has a bundle."""
        self._ray, self._kind, self._group, self._bundles = ray, kind, group, bundles
        self._own_node, self._start_seconds = own_node, start_seconds

    def colocate(self, kind: ProcessSpec) -> "PlacementGroup":
        """The places of other processes, which share these: the same number in each."""
        shared = [self._bundles[index % len(self._bundles)] for index in range(kind.count)]
        return PlacementGroup(
            self._ray, kind, self._group, shared, self._own_node, self._start_seconds
        )

    def start(self, index: int, function: Callable[..., None], *arguments: Any) -> "Process":
        """Start the process of a place: it calls a module's function in its main thread, and ends
        when that returns. Returns at once."""
        actor = self._actor(index, _Actor)
        return Process(self._ray, actor, actor.call.remote(function, *arguments))

    def hold(self, index: int, kind: type, *arguments: Any) -> "ActorHandle":
        """Make an object of a module's class in a process of a place. Returns at once."""
        return ActorHandle(self._ray, self._actor(index, kind, *arguments))

    def check(self, paths: Sequence[str], shared: Path | None = None, versions: str = "") -> None:
        """Raise ConfigError unless the other nodes with places have such files and folders, share a
        folder of this machine, and have its versions of what a run needs, or those given."""
        mark = shared / f".seen-{secrets.token_hex(8)}" if shared is not None else None
        if mark is not None:
            mark.touch()
        asked: list[Process] = []
        try:
            for index in self._one_of_each_node():
                own = versions or own_versions()
                asked.append(self.start(index, look, paths, str(mark or ""), own))
            deadline = time.monotonic() + self._start_seconds
            ends = [process.ended(max(0.0, deadline - time.monotonic())) for process in asked]
        finally:
            for process in asked:
                process.end()
            if mark is not None:
                mark.unlink()
        for end in ends:
            if end != RETURNED:
                reason = "it does not answer" if end is None else end.reason
                raise ConfigError(f"{self._kind.key}: a node cannot take part: {reason}")

    def _one_of_each_node(self) -> list[int]:
        """A place of each node but this machine's, in order; of places that are there."""
        nodes, found = table(self._group).get("bundles_to_node_id", {}), dict[str, int]()
        for index, bundle in enumerate(self._bundles):
            node = nodes.get(bundle)
            if node and node != self._own_node:
                found.setdefault(node, index)
        return list(found.values())

    def take_own(self) -> None:
        """Let this process see the GPUs of the first place alone, where it has any. Comes before
        anything is done with GPUs here. Raises ConfigError where that place does not answer."""
        if not self._kind.gpus:
            return
        actor = self._actor(0, _Actor)
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

    def _actor(self, index: int, kind: type, *arguments: Any) -> Any:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        place = PlacementGroupSchedulingStrategy(self._group, self._bundles[index])
        needs = {"num_cpus": self._kind.cpus, "num_gpus": self._kind.gpu_share}
        remote = self._ray.remote(kind).options(max_restarts=0, scheduling_strategy=place, **needs)
        return remote.remote(*arguments)


@dataclass(frozen=True)
class ExitStatus:
    """The end of a process."""

    reason: str
    """One line."""
    lost: bool = False
    """Whether something else has ended it: it has neither returned nor raised."""


class Process:
    """A process on some node.

    >>> with cluster.places(ProcessSpec("cluster.workers", 4)) as places:
    ...     process = places.start(0, work, "10.0.0.1", 4711, secret)
    ...     print(process.ended())
    None
    """

    def __init__(self, ray: Any, actor: Any, called: Any) -> None:
        self._ray, self._actor, self._called = ray, actor, called

    def ended(self, seconds: float = 0.0) -> ExitStatus | None:
        """Wait for its end; None where it has not ended after so long."""
        done, _ = self._ray.wait([self._called], timeout=seconds)
        if not done:
            return None
        try:
            self._ray.get(self._called)
        except self._ray.exceptions.RayError as error:
            return _end(error)
        return RETURNED

    async def wait(self) -> ExitStatus:
        """Wait for its end."""
        try:
            await self._called
        except self._ray.exceptions.RayError as error:
            return _end(error)
        return RETURNED

    def end(self) -> None:
        """End it, wherever it is. Idempotent."""
        self._ray.kill(self._actor)


RETURNED = ExitStatus("it ended")


class ActorHandle:
    """An object in a process on some node, whose methods are called one at a time, in the main
    thread there. Example: `await places.hold(0, Servant, folder).call("look", 60.0, python)`."""

    def __init__(self, ray: Any, actor: Any) -> None:
        self._ray, self._actor = ray, actor

    async def call(self, method: str, seconds: float, *arguments: Any) -> Any:
        """The result of a method. Raises what it raises, PlaceLostError, and TimeoutError where it
        has not come after so long."""
        try:
            async with asyncio.timeout(seconds):
                return await getattr(self._actor, method).remote(*arguments)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except self._ray.exceptions.RayError as error:
            raise PlaceLostError(_end(error).reason) from None

    def end(self) -> None:
        """End its process, wherever it is. Idempotent."""
        self._ray.kill(self._actor)


class NodeUnfit(Exception):
    """The reason why this machine cannot take part in a run."""


def own_versions() -> str:
    """The versions of this machine that have to be the same on all nodes."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("turnwise", "torch"))
    return f"Python {platform.python_version()}, {packages}"


def look(paths: Sequence[str], mark: str, versions: str) -> None:
    """Raise NodeUnfit unless this machine has files and folders and these versions, and sees a mark
    in a folder that is to be shared."""
    node = platform.node()
    if own_versions() != versions:
        raise NodeUnfit(
            f"{node} has {own_versions()}, and the run's machine {versions}: install the same"
        )
    if mark and not os.path.exists(mark):
        raise NodeUnfit(
            f"{node} does not see {os.path.dirname(mark)}: put the run on a disk that all nodes "
            "share (--run)"
        )
    for path in paths:
        if not os.path.exists(path):
            raise NodeUnfit(
                f"{node} has no {path}: put it on a disk that all nodes share, or on each under "
                "the same path"
            )


class _Actor:
    """The process as Ray keeps it: methods run in the main thread."""

    def call(self, function: Callable[..., None], *arguments: Any) -> None:
        """Do what the process is there for."""
        function(*arguments)

    def visible_gpus(self) -> str:
        """The GPUs of its place."""
        return os.environ["CUDA_VISIBLE_DEVICES"]


def _end(error: BaseException) -> ExitStatus:
    """The end of a process by its own error, or as Ray tells it."""
    cause = getattr(error, "cause", None)
    if cause is not None:
        return ExitStatus(f"{type(cause).__name__}: {cause}".splitlines()[0])
    lines = [line for line in str(error).splitlines() if line and not line.startswith("\t")]
    why = lines[min(1, len(lines) - 1)]  # the second one, if there is one, says more than the first
    return ExitStatus(why.partition(". ")[0].rstrip("."), lost=True)


def table(group: Any) -> dict[str, Any]:
    """Ray's account of a placement group; empty where Ray has forgotten it."""
    from ray.util.placement_group import placement_group_table

    return dict(placement_group_table(group))


def resources(cpus: int, gpus: int) -> str:
    """>>> resources(4, 1)
    '4 CPUs, 1 GPU'
    """
    counts = {"CPU": cpus, "GPU": gpus}
    return ", ".join(
        f"{count} {name}{'s' * (count != 1)}"
        for name, count in counts.items()
        if count or name == "CPU"
    )
