"""Processes beside the run's own, for as long as a run takes.

Ray keeps them, and is imported where a recipe asks for some (`nodes.py`). Not here: what each kind
does (`samplers`, `workers`).
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from turnwise.config import Recipe
from turnwise.errors import ConfigError

if TYPE_CHECKING:
    from turnwise.cluster.learners.launcher import OnNodes
    from turnwise.cluster.nodes import Kind
    from turnwise.cluster.pool import Launcher
    from turnwise.cluster.workers.pool import WorkerPool


@dataclass(frozen=True)
class Hired:
    """The processes that a recipe asks for, to be started."""

    workers: "WorkerPool | None" = None
    """Play its episodes; None where the run's process does."""
    ranks: "OnNodes | None" = None
    """Starts the learner's other ranks; None where they are processes of this machine."""
    samplers: "Launcher | None" = None
    """Starts the processes that sample; None where the run's process does."""


@contextmanager
def hired(recipe: Recipe, folder: Path | None = None) -> Iterator[Hired]:
    """Inside, there are places for the processes that a recipe asks for, and with ranks on GPUs
    this process sees the one that is its own. Raises ConfigError where there is no such cluster, it
    is too small, or the nodes of ranks do not see the run's folder."""
    config = recipe.cluster
    kinds = kinds_of(recipe)
    if not kinds:
        yield Hired()
        return
    from turnwise.cluster.launcher import RayLauncher
    from turnwise.cluster.learners.launcher import OnNodes
    from turnwise.cluster.nodes import connected
    from turnwise.cluster.samplers import sampler
    from turnwise.cluster.workers import worker
    from turnwise.cluster.workers.pool import WorkerPool

    _check_cores(recipe)
    with ExitStack() as stack:
        cluster = stack.enter_context(connected(config, list(kinds.values())))
        places = {name: stack.enter_context(cluster.places(kind)) for name, kind in kinds.items()}
        workers, ranks, samplers = None, None, None
        if "learners" in places:
            if folder is not None:
                places["learners"].check(folder.absolute())
            places["learners"].take_own()
            ranks = OnNodes(cluster.host, places["learners"])
        if "samplers" in places:
            samplers = RayLauncher(cluster.host, places["samplers"], sampler.work)
        if "workers" in places:
            launcher = RayLauncher(cluster.host, places["workers"], worker.work)
            workers = WorkerPool(launcher, config.workers, config.start_seconds)
        yield Hired(workers, ranks, samplers)


def kinds_of(recipe: Recipe) -> "dict[str, Kind]":
    """The processes that a recipe has on a cluster, by their keys; those first that need most of a
    node."""
    from turnwise.cluster.nodes import Kind

    config = recipe.cluster
    found = {}
    if config.learners > 1 and config.address != "local":
        cpus = max(1, recipe.threads // config.learners)
        gpus = int(_on_gpus(recipe))
        found["learners"] = Kind(
            "cluster.learners", config.learners, cpus, gpus, "PACK", first_here=True
        )
    if config.samplers:
        gpus = int(_on_gpus(recipe))
        cpus = 1 if gpus else recipe.threads
        found["samplers"] = Kind("cluster.samplers", config.samplers, cpus, gpus)
    if config.workers:
        found["workers"] = Kind("cluster.workers", config.workers)
    return found


def _check_cores(recipe: Recipe) -> None:
    """Raise ConfigError for more samplers than this machine has cores, where they are all here."""
    count, cores = recipe.cluster.samplers, len(os.sched_getaffinity(0))
    if recipe.cluster.address == "local" and count > cores and not _on_gpus(recipe):
        raise ConfigError(
            f"cluster.samplers is {count}, and this machine has {cores} cores: lower it, or name a "
            "cluster of more machines with cluster.address"
        )


def _on_gpus(recipe: Recipe) -> bool:
    """Whether the model will be on a GPU; none of them is touched, since this process may be given
    another one."""
    if recipe.model.device == "cpu":
        return False
    import torch

    return torch.cuda.device_count() > 0
