"""Processes beside the run's own, for as long as a run takes.

Ray keeps them, and is imported where a recipe asks for some (`nodes.py`). Not here: what each kind
does (`learners`, `workers`), and an engine's servers.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from turnwise.config import Recipe, StartedServers
from turnwise.engines.places import ServerPlaces
from turnwise.errors import ConfigError
from turnwise.storage.run_folder import with_whole_paths

if TYPE_CHECKING:
    from turnwise.cluster.learners.launcher import OnNodes
    from turnwise.cluster.places import Kind, Places
    from turnwise.rollout.remote_episode import Workers


@dataclass(frozen=True)
class Hired:
    """The processes that a recipe asks for, to be started."""

    workers: "Workers | None" = None
    """Play its episodes; None where the run's process does."""
    ranks: "OnNodes | None" = None
    """Starts the learner's other ranks; None where they are processes of this machine."""
    servers: ServerPlaces | None = None
    """The places where servers are started; None where that is this machine."""


@contextmanager
def hired(recipe: Recipe, folder: Path | None = None) -> Iterator[Hired]:
    """Inside, there are places for the processes that a recipe asks for, and with ranks or servers
    on GPUs this process sees the one that is its own. Raises ConfigError where there is no such
    cluster, it is too small, or nodes do not see the run's folder (of ranks and servers) or the
    recipe's own files (of workers)."""
    config = recipe.cluster
    on_gpus = _on_gpus(recipe)
    kinds = kinds_of(recipe, on_gpus)
    if not kinds:
        yield Hired()
        return
    from turnwise.cluster.learners.launcher import OnNodes
    from turnwise.cluster.nodes import connected

    check_machine(recipe, on_gpus, folder)
    with ExitStack() as stack:
        cluster = stack.enter_context(connected(config, list(kinds.values())))
        places = {name: stack.enter_context(cluster.places(kind)) for name, kind in kinds.items()}
        if config.samplers and config.colocated:
            places["samplers"] = places["learners"].beside(_samplers(recipe, int(on_gpus)))
        for name, each in places.items():
            each.check(_own_files(recipe, name), shared_folder(name, folder))
        workers, ranks, servers = None, None, None
        if "learners" in places:
            places["learners"].take_own()
            ranks = OnNodes(cluster.host, places["learners"])
        if "samplers" in places:
            hold, host = places["samplers"].hold, "127.0.0.1" if config.address == "local" else ""
            servers = ServerPlaces(config.samplers, hold, config.start_seconds, host)
        if "workers" in places:
            workers = _workers(recipe, cluster.host, places["workers"])
        yield Hired(workers, ranks, servers)


def shared_folder(name: str, folder: Path | None) -> Path | None:
    """The folder that all nodes with processes of a kind have to see: there ranks write, and
    servers read weights; None where there is none."""
    shares = name in ("learners", "samplers")
    return folder.absolute() if folder is not None and shares else None


def kinds_of(recipe: Recipe, on_gpus: bool) -> "dict[str, Kind]":
    """The processes that a recipe has on a cluster, by their keys, in the order in which they get
    places: those that need GPUs first, so that no others take the CPUs beside them. With servers on
    GPUs, one learner has a place too: else its GPU would be a server's. Servers that are colocated
    get no places, since learners have them."""
    from turnwise.cluster.places import Kind

    config = recipe.cluster
    found, gpus = {}, int(on_gpus)
    several = config.learners > 1 and config.address != "local"
    colocated = bool(config.samplers) and config.colocated
    if several or colocated or (config.samplers and on_gpus):
        cpus, sharing = max(1, recipe.threads // config.learners), _sharing(recipe)
        needs = (config.learners, cpus, gpus)
        found["learners"] = Kind(
            "cluster.learners", *needs, strategy="PACK", first_here=True, sharing=sharing
        )
    if config.samplers and not colocated:
        found["samplers"] = _samplers(recipe, gpus)
    if config.workers:
        found["workers"] = Kind("cluster.workers", config.workers)
    return dict(sorted(found.items(), key=lambda each: not each[1].gpus))


def _samplers(recipe: Recipe, gpus: int) -> "Kind":
    """The servers of a recipe on nodes, on so many GPUs each where it does not say; beside learners
    they need no CPUs of their own, as they take turns."""
    from turnwise.cluster.places import Kind

    config, servers = recipe.cluster, _servers_of(recipe)
    if config.colocated:
        return Kind("cluster.samplers", config.samplers, 0, gpus, sharing=_sharing(recipe))
    if servers is not None and servers.gpus:
        gpus = servers.gpus
    return Kind("cluster.samplers", config.samplers, 1 if gpus else recipe.threads, gpus)


def _servers_of(recipe: Recipe) -> StartedServers | None:
    """The settings of the servers that a recipe starts, if it does."""
    started = getattr(recipe.engine, "servers", None)
    return started if isinstance(started, StartedServers) else None


def _sharing(recipe: Recipe) -> int:
    """The processes in a learner's place: itself, and the servers beside it."""
    config = recipe.cluster
    return 1 + (config.samplers // config.learners if config.colocated else 0)


def _workers(recipe: Recipe, host: str, places: "Places") -> "Workers":
    """The processes that play the episodes of a recipe."""
    from turnwise.cluster.launcher import RayLauncher
    from turnwise.cluster.workers.pool import WorkerPool
    from turnwise.cluster.workers.worker import work

    config = recipe.cluster
    return WorkerPool(RayLauncher(host, places, work), config.workers, config.start_seconds)


def _own_files(recipe: Recipe, name: str) -> list[str]:
    """The files and folders of a recipe that processes of a kind read: what an environment is made
    of, by workers."""
    if name != "workers":
        return []
    whole = with_whole_paths(recipe)
    parts = (whole.environment, whole.scaffold, whole.reward)
    texts = _texts([part.model_dump() for part in parts if part])
    paths = {text.rpartition(":")[0] if ".py:" in text else text for text in texts}
    return sorted(path for path in paths if os.path.isabs(path) and os.path.exists(path))


def _texts(value: object) -> Iterator[str]:
    """All texts of a recipe's value."""
    if isinstance(value, str):
        yield value
    for each in value.values() if isinstance(value, dict) else ():
        yield from _texts(each)
    for each in value if isinstance(value, list | tuple) else ():
        yield from _texts(each)


def check_machine(recipe: Recipe, on_gpus: bool, folder: Path | None = None) -> None:
    """Raise ConfigError for more servers than this machine has cores, where they are all here, for
    several learners on the same GPUs, and for servers on nodes that have no folder in common with
    the run."""
    config, cores = recipe.cluster, len(os.sched_getaffinity(0))
    if config.address != "local" and config.samplers and folder is None:
        raise ConfigError(
            "servers on the nodes of a cluster read weights from a folder that all of them share: "
            "name one with --out"
        )
    if config.address != "local" or not config.samplers:
        return
    if on_gpus and config.learners > 1 and not config.colocated:
        raise ConfigError(
            f"cluster.learners is {config.learners} and cluster.samplers {config.samplers}, whose "
            "GPUs Ray has to deal out together: start it with `ray start --head`, and set "
            "cluster.address=auto"
        )
    if not on_gpus and config.samplers > cores:
        raise ConfigError(
            f"cluster.samplers is {config.samplers}, and this machine has {cores} cores: lower it, "
            "or name a cluster of more machines with cluster.address"
        )


def _on_gpus(recipe: Recipe) -> bool:
    """Whether the model of a recipe with such processes will be on a GPU; none of them is touched,
    since this process may be given another one."""
    config = recipe.cluster
    several = config.learners > 1 and config.address != "local"
    if recipe.model.device == "cpu" or not (config.samplers or several):
        return False
    import torch

    return torch.cuda.device_count() > 0
