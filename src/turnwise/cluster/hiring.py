"""Processes beside the run's own, for as long as a run takes.

Ray keeps them, and is imported where a recipe asks for some (`nodes.py`). Not here: what each kind
does (`workers`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from turnwise.config import ClusterConfig, Recipe

if TYPE_CHECKING:
    from turnwise.cluster.nodes import Kind
    from turnwise.cluster.workers.pool import WorkerPool


@dataclass(frozen=True)
class Hired:
    """The processes that a recipe asks for, to be started."""

    workers: "WorkerPool | None" = None
    """Play its episodes; None where the run's process does."""


@contextmanager
def hired(recipe: Recipe) -> Iterator[Hired]:
    """Inside, there are places for the processes that a recipe asks for. Raises ConfigError where
    there is no such cluster, or it is too small."""
    config = recipe.cluster
    if not config.workers:
        yield Hired()
        return
    from turnwise.cluster.nodes import connected
    from turnwise.cluster.workers.launcher import RayLauncher
    from turnwise.cluster.workers.pool import WorkerPool

    workers = kinds_of(config)[0]
    with connected(config, kinds_of(config)) as cluster, cluster.places(workers) as places:
        launcher = RayLauncher(cluster.host, places)
        yield Hired(WorkerPool(launcher, config.workers, config.start_seconds))


def kinds_of(config: ClusterConfig) -> "list[Kind]":
    """The processes that a recipe has on the cluster."""
    from turnwise.cluster.nodes import Kind

    return [Kind("cluster.workers", config.workers)]
