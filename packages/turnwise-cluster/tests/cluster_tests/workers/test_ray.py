"""Workers as processes that Ray keeps: placed, killed, and gone when the run is."""

import asyncio
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster_tests.workers.fleet import train_with
from cluster_tests.workers.processes import descendants, left_after
from cluster_tests.workers.test_workers import (
    HERE,
    TABLES,
    Harassed,
    built,
    groups,
    same_run,
    timing,
)
from tests.small_runs import start, train, write_recipe
from turnwise.rollout.runner import members_of
from turnwise.storage.run_folder import RunFolder
from turnwise.types import Outcome
from turnwise_cluster.nodes import Cluster, connected
from turnwise_cluster.placement import ProcessSpec
from turnwise_cluster.settings import ClusterConfig
from turnwise_cluster.workers.pool import RayLauncher, WorkerPool

LOCAL = ClusterConfig(workers=2)
KIND = ProcessSpec("cluster.workers", 2)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recipe(tmp_path_factory.mktemp("recipe"), "Restorable", TABLES)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    before = signal.getsignal(signal.SIGTERM)
    with connected(LOCAL, [KIND]) as found:
        assert signal.getsignal(signal.SIGTERM) is before
        yield found


@pytest.fixture
def launcher(cluster: Cluster) -> Iterator[RayLauncher]:
    with cluster.places(KIND) as places:
        yield RayLauncher(cluster.host, places)


class Killed(Harassed):
    """Kills the process of a worker whenever a certain number of turns has been sampled."""

    def __init__(self, launcher: RayLauncher, count: int, *deaths: int) -> None:
        super().__init__(count, *deaths)
        self._launcher = launcher

    def kill(self, index: int) -> None:
        (process,) = re.findall(r"process (\d+)", self._links[index][0].name)
        os.kill(int(process), signal.SIGKILL)


@pytest.mark.slow
def test_a_run_with_processes_of_which_one_is_killed_is_the_run_without(
    launcher: RayLauncher, recipe: Path, tmp_path: Path
) -> None:
    alone = train(recipe, RunFolder.new(tmp_path / "alone"))
    found = train_with(Killed(launcher, 2, 3), recipe, RunFolder.new(tmp_path / "run"))
    assert same_run(found, alone)
    assert timing(found)["workers/lost"] == 1
    assert timing(found)["workers/episodes_replayed"] >= 1


@pytest.mark.slow
def test_code_that_blocks_a_worker_is_interrupted_there(
    launcher: RayLauncher, recipe: Path
) -> None:
    pool = WorkerPool(launcher, 1, 60.0)
    environment = f"environment.name={HERE / 'environments.py'}:Blocking"
    parts = built(recipe, pool, environment, "rollout.max_seconds=0.5")
    found = members_of(asyncio.run(groups(parts, pool)))
    late = [one for one in found if one.episode % 2]
    assert {one.outcome for one in late} == {Outcome.GRADER_TIMEOUT}
    assert "it blocks the event loop at" in late[0].problem
    assert all(one.reward is not None for one in found if one not in late)
    assert pool.metrics()["workers/lost"] == 0


@pytest.mark.slow
def test_an_address_where_nothing_is_ends_the_run_in_one_line(recipe: Path, tmp_path: Path) -> None:
    given = ("cluster.workers=2", "cluster.address=127.0.0.1:1", "--run", tmp_path / "run")
    process = start("train", recipe, *given)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "cluster.address is 127.0.0.1:1, and nothing answers there" in said
    assert len(said.strip().splitlines()) == 1


def interrupted(recipe: Path, folder: Path, number: signal.Signals, steps: int) -> int:
    """The exit code of a run with workers that gets a signal after two steps; no process is left
    of it."""
    given = ("cluster.workers=2", f"train.steps={steps}", "train.checkpoint_every=2")
    process = start("train", recipe, *given, "--run", folder)
    metrics, end = folder / "metrics.jsonl", time.monotonic() + 120
    while not metrics.is_file() or metrics.read_text().count("\n") < 2:
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.05)
    below = descendants(process.pid)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert left_after(below, 20) == set()
    return process.returncode


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGUSR1, 75)])
def test_a_signal_saves_and_ends_the_run_and_its_processes(
    recipe: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    assert interrupted(recipe, tmp_path / "run", number, 2000) == code
    done = len((tmp_path / "run/metrics.jsonl").read_text().splitlines())
    assert (tmp_path / f"run/checkpoints/step-{done:06d}").is_dir()
