"""The Ray cluster of a run: found or started, large enough, with places for the run's processes.

Ray finds the nodes, starts processes there, and ends them with the run's own, in whatever way that
ends. What is said to a process goes over connections of its own.
"""

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from turnwise.errors import ConfigError, InfrastructureError, MissingExtraError, first_line
from turnwise_cluster.placement import PlacementGroup, ProcessSpec, resources, table
from turnwise_cluster.settings import ClusterConfig

STORE_BYTES = 80 * 2**20
"""Memory of Ray's object store on this machine, near its least: nothing is kept there."""
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # else it warns that it will hide GPUs no more
}
QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
REACH_SECONDS = 10.0
"""Deadline of a first connection to a head node."""
JOIN_SECONDS = 60.0
"""Deadline of joining a cluster, where `cluster.start_seconds` is not below it."""
LOOK_SECONDS = 0.1
"""Seconds between two looks at places that are being sought."""


@contextmanager
def connected(config: ClusterConfig, kinds: Sequence[ProcessSpec]) -> "Iterator[Cluster]":
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


def _connect(ray: Any, config: ClusterConfig, kinds: Sequence[ProcessSpec]) -> None:
    if config.address == "local":
        start(ray, sum(kind.all[0] for kind in kinds))
        return
    _check_reachable(config.address)
    problem = problem_of_joining(ray, config.address, min(config.start_seconds, JOIN_SECONDS))
    if problem:
        raise ConfigError(
            f"cluster.address is {config.address}, and Ray finds no cluster there ({problem}): "
            "start one with `ray start --head`, this machine being one of its nodes, or set "
            "cluster.address=local"
        )


def start(ray: Any, cpus: int) -> None:
    """Start a cluster on this machine; Ray's handler of SIGTERM gives way to that which was there.
    Raises ConfigError where that cannot be, InfrastructureError where it takes too long."""
    before = signal.getsignal(signal.SIGTERM)
    own = {"num_cpus": cpus, "object_store_memory": STORE_BYTES, "include_dashboard": False}
    try:
        ray.init("local", **QUIET, **own)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ConfigError(f"Ray cannot be started on this machine ({first_line(error)})") from error
    except Exception as error:
        if type(error) is not Exception:  # Ray's own for a node that is not there in 30 seconds
            raise
        raise InfrastructureError(
            f"Ray has not started on this machine ({first_line(error)}): end some of what "
            "else runs here, and start again"
        ) from error
    finally:
        signal.signal(signal.SIGTERM, before)


def problem_of_joining(ray: Any, address: str, seconds: float) -> str:
    """The reason why this process cannot belong to a cluster; empty where it does. Ray may wait
    without end for an answer: hence a thread, in which it leaves handlers of signals alone too."""
    problems: list[str] = []

    def join() -> None:
        try:
            ray.init(address, **QUIET)
        except Exception as error:  # noqa: BLE001 - Ray raises plain ones too; a thread's are lost
            problems.append(first_line(error))

    thread = threading.Thread(target=join, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        return f"it has not answered within {seconds:g} s"
    return problems[0] if problems else ""


def _check_reachable(address: str) -> None:
    """Ray would wait for minutes for a machine that is not there."""
    host, _, port = address.rpartition(":")
    if not host:
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH_SECONDS).close()
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

    def check(self, kinds: Sequence[ProcessSpec]) -> None:
        """Raise ConfigError where the whole cluster has too little for what a run needs of all of
        them together, or no node enough for one."""
        nodes = [_sizes(node["Resources"]) for node in self._ray.nodes() if node["Alive"]]
        there = _sum(nodes)
        if not _covers(there, _sum([kind.all for kind in kinds])):
            raise ConfigError(
                f"{' and '.join(map(str, kinds))}: the cluster has {resources(*there)}; add "
                "nodes, or ask for fewer"
            )
        here = _sizes(self._own_node["Resources"])
        for kind in kinds:
            if kind.first_here and not _covers(here, (kind.cpus, kind.gpus)):
                raise ConfigError(
                    f"{kind.key}: the run's own process is the first one and needs "
                    f"{resources(kind.cpus, kind.gpus)} on its machine, of which Ray knows "
                    f"{resources(*here)}: start the run on another node, or this one with more"
                )
            if not any(_covers(node, (kind.cpus, kind.gpus)) for node in nodes):
                raise ConfigError(
                    f"{kind.key}: each needs {resources(kind.cpus, kind.gpus)} on one node, and "
                    f"no node has so many; the largest has {resources(*max(nodes))}"
                )

    @contextmanager
    def places(self, kind: ProcessSpec) -> "Iterator[PlacementGroup]":
        """Inside, there is a place for each process of a kind, which nothing else takes. When a
        node is lost, its places move to others as soon as these have room. Raises ConfigError
        where there is none."""
        from ray.util.placement_group import placement_group, remove_placement_group

        amounts = {"CPU": kind.cpus, "GPU": kind.gpus}
        each: dict[str, float] = {name: amount for name, amount in amounts.items() if amount}
        bundles, here = [each] * kind.count, self._own_node
        if kind.first_here:
            # A resource that this node alone has: any amount of it keeps the place here.
            bundles[0] = each | {f"node:{here['NodeManagerAddress']}": 0.001}
        group = placement_group(bundles, kind.strategy)
        try:
            self._wait_for(kind, group)
            own = here["NodeID"], self._start_seconds
            yield PlacementGroup(self._ray, kind, group, range(kind.count), *own)
        finally:
            remove_placement_group(group)

    def _wait_for(self, kind: ProcessSpec, group: Any) -> None:
        deadline = time.monotonic() + self._start_seconds
        while table(group).get("state") != "CREATED":
            if time.monotonic() > deadline:
                free = _sizes(self._ray.available_resources())
                raise ConfigError(
                    f"{kind}: the nodes have no room within cluster.start_seconds = "
                    f"{self._start_seconds:g}, and {resources(*free)} free in all; add nodes, end "
                    "what else runs there, or ask for fewer"
                )
            time.sleep(LOOK_SECONDS)

    @property
    def _own_node(self) -> Mapping[str, Any]:
        """Ray's account of this machine."""
        number = self._ray.get_runtime_context().get_node_id()
        return next(node for node in self._ray.nodes() if node["NodeID"] == number)


def _sizes(resources: Mapping[str, float]) -> tuple[int, int]:
    """CPUs and GPUs."""
    return int(resources.get("CPU", 0)), int(resources.get("GPU", 0))


def _sum(sizes: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return sum(cpus for cpus, _ in sizes), sum(gpus for _, gpus in sizes)


def _covers(there: tuple[int, int], wanted: tuple[int, int]) -> bool:
    return there[0] >= wanted[0] and there[1] >= wanted[1]
