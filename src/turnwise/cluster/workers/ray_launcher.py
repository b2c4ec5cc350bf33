"""Workers as Ray actors: on which machine each is, how it begins and ends.

Ray places a process, starts it and ends it with the run's own; what is said to it goes over a
connection of its own, to its main thread. Not here: which episodes a worker plays,
and when it is started anew (`pool.py`).
"""

import asyncio
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from turnwise.config import ClusterConfig, Recipe
from turnwise.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from turnwise.cluster.workers.pool import WorkerPool

STORE_BYTES = 80 * 2**20
"""Memory of Ray's object store on this machine, near its least: nothing is kept there."""
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # else it warns that it will hide GPUs no more
}
REACH_SECONDS = 10.0
"""Deadline of a first connection to a head node."""


@contextmanager
def hired(recipe: Recipe) -> "Iterator[WorkerPool | None]":
    """Inside, there are the workers that a recipe asks for, to be started; None where it asks for
    none. Raises ConfigError where there is no such cluster, or it is too small."""
    config = recipe.cluster
    if not config.workers:
        yield None
        return
    with connected(config) as ray:
        from turnwise.cluster.workers.pool import WorkerPool

        launcher = RayLauncher(ray, config)
        yield WorkerPool(launcher, config.workers, config.start_seconds)


@contextmanager
def connected(config: ClusterConfig) -> Iterator[Any]:
    """Inside, this process belongs to the cluster; gives the module `ray`. One that it belongs to
    already is left as it is. Raises ConfigError where there is none, or it has too few CPUs."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ModuleNotFoundError as error:
        raise MissingExtraError(str(error.name), "cluster") from None
    ours = not ray.is_initialized()
    if ours:
        _connect(ray, config)
    try:
        _check_size(ray, config)
        yield ray
    finally:
        if ours:
            ray.shutdown()


def _connect(ray: Any, config: ClusterConfig) -> None:
    """Start a cluster, or join one; Ray's handler of SIGTERM gives way to that which was there."""
    _check_reachable(config.address)
    own = {"num_cpus": config.workers, "object_store_memory": STORE_BYTES}
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


def _check_size(ray: Any, config: ClusterConfig) -> None:
    there = int(ray.cluster_resources().get("CPU", 0))
    if there < config.workers:
        raise ConfigError(
            f"cluster.workers is {config.workers}, a CPU each, and the cluster has {there}: add "
            "nodes, or lower it"
        )


class RayLauncher:
    """See Launcher. Example: `RayLauncher(ray, config)`, inside of `connected`."""

    def __init__(self, ray: Any, config: ClusterConfig) -> None:
        self._ray = ray
        local = config.address == "local"
        self.host: str = "127.0.0.1" if local else ray.util.get_node_ip_address()

    async def run(self, index: int, port: int, secret: bytes) -> str:
        """See Launcher."""
        ray = self._ray
        remote = ray.remote(Actor).options(num_cpus=1, max_restarts=0, scheduling_strategy="SPREAD")
        actor = remote.remote()
        try:
            await actor.serve.remote(self.host, port, secret)
        except ray.exceptions.RayActorError as error:
            return _first_line(error)
        finally:
            ray.kill(actor)
        return "it ended"


class Actor:
    """The Ray actor of a worker."""

    def serve(self, host: str, port: int, secret: bytes) -> None:
        """Work until the run has ended, in the main thread."""
        from turnwise.cluster.workers.worker import serve

        asyncio.run(serve(host, port, secret))


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0]
