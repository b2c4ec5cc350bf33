"""Episodes whose parts are done by workers on different machines are those of one process.

Workers are the real ones, as tasks of this process (`fleet.py`). Not here: nodes with resources of
their own (`test_machines.py`).
"""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.cluster.workers.environments import Noting
from tests.cluster.workers.fleet import Fleet, train_with
from tests.cluster.workers.test_workers import (
    HERE,
    TABLES,
    built,
    everything,
    groups,
    same_run,
    timing,
)
from tests.fakes import Letters, byte_tokenizer
from tests.small_runs import train, write_recipe
from turnwise.cluster import serving
from turnwise.cluster.frames import receive
from turnwise.cluster.serving import Work
from turnwise.cluster.workers import worker
from turnwise.cluster.workers.divided import DividedWorkers
from turnwise.cluster.workers.frames import Setup
from turnwise.cluster.workers.parts import facts_of, parts_of
from turnwise.cluster.workers.pool import WorkerPool
from turnwise.config import load_recipe
from turnwise.engines.scripted import ScriptedEngine
from turnwise.environments.base import Part
from turnwise.environments.joint import Joint
from turnwise.environments.registry import environment_of
from turnwise.errors import ConfigError
from turnwise.rollout.divided_episode import EpisodePart
from turnwise.rollout.priority_semaphore import PrioritySemaphore
from turnwise.rollout.runner import RolloutRunner, members_of, new_groups
from turnwise.scaffolds.registry import make_scaffold
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.timeline import read_timeline
from turnwise.training.context import RunContext
from turnwise.training.first_checks import check_workers
from turnwise.types import Outcome, Trajectory

NOTING = f"environment.name={HERE / 'environments.py'}:Noting"
BOTH: tuple[EpisodePart, ...] = ("reset", "verify")


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recipe(tmp_path_factory.mktemp("recipe"), "Restorable", TABLES)


@pytest.fixture(scope="module")
def alone(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> RunContext:
    """The run in one process."""
    return train(recipe, RunFolder.new(tmp_path_factory.mktemp("alone") / "run"), NOTING)


def divided(*parts: EpisodePart, count: int = 2) -> DividedWorkers:
    """Workers for turns, and others for each of some parts."""
    others = {part: WorkerPool(Fleet(), count, 30.0, f"{part} worker", 1) for part in parts}
    return DividedWorkers({"play": WorkerPool(Fleet(), 2, 30.0), **others})


@pytest.mark.long
@pytest.mark.parametrize("parts", [("verify",), BOTH])
def test_parts_on_different_machines_change_no_bit_of_a_run(
    recipe: Path, alone: RunContext, tmp_path: Path, parts: tuple[EpisodePart, ...]
) -> None:
    found = train_with(divided(*parts), recipe, RunFolder.new(tmp_path / "run"), NOTING)
    assert same_run(found, alone)
    assert timing(found)["workers/lost"] == 0
    rows = read_timeline(found.folder.timeline_file(1)).to_pylist()
    where = {
        kind: {row["process"].partition(" (")[0][:-2] for row in rows if row["kind"] == kind}
        for kind in ("episode", "environment", "sampling", "grading")
    }
    assert where["episode"] == {"worker", *(f"{part} worker" for part in parts)}
    assert where["sampling"] == {"worker"}
    assert where["grading"] == {"verify worker"}
    assert ("reset worker" in where["environment"]) == ("reset" in parts)
    first = min(row["start"] for row in rows if row["kind"] == "episode")
    assert all(row["start"] >= first for row in rows if row["group"])


@pytest.mark.long
@pytest.mark.parametrize(("name", "size"), [("counterfactual", 2), ("tree_grpo", 8)])
def test_branches_are_divided_too(recipe: Path, name: str, size: int) -> None:
    pools = divided(*BOTH)
    found = asyncio.run(groups(built(recipe, pools, NOTING), pools, name, size))
    expected = asyncio.run(groups(built(recipe, None, NOTING), None, name, size))
    assert everything(found) == everything(expected)


@pytest.mark.long
@pytest.mark.parametrize("failures", [1, 3])
def test_a_verdict_that_fails_is_what_it_is_in_one_process(
    recipe: Path, tmp_path: Path, failures: int
) -> None:
    """It is not tried again: the grader is there, and says what is wrong."""

    def options(name: str) -> tuple[str, ...]:
        given = f"environment.options.failures={failures}"
        return NOTING, f"environment.options.notes={tmp_path / name}", given

    pools = divided("verify", count=1)
    found = members_of(asyncio.run(groups(built(recipe, pools, *options("a")), pools)))
    expected = members_of(asyncio.run(groups(built(recipe, None, *options("b")), None)))
    failed = [one for one in found if one.outcome == Outcome.GRADER_ERROR]
    problems = {one.problem for one in failed}
    assert len(failed) == failures
    assert problems == {one.problem for one in expected if one.problem}
    assert (tmp_path / "a").read_text().count("verify") == len(found)


async def dying(host: str, port: int, secret: bytes) -> None:
    """A worker that ends as soon as it is given something to do."""

    def build(setup: Setup) -> tuple[str, Work]:
        async def work(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await receive(reader)

        return facts_of(parts_of(setup).environment), work

    await serving.serve(host, port, secret, build)


class Mortal(Fleet):
    """Its first workers die."""

    def __init__(self, deaths: int) -> None:
        super().__init__()
        self.deaths = deaths

    async def _serve(self, port: int, secret: bytes) -> None:
        self.serve = dying if self.starts <= self.deaths else worker.serve
        await super()._serve(port, secret)


@pytest.mark.long
@pytest.mark.parametrize("part", BOTH)
def test_a_part_whose_worker_dies_is_done_again_and_nothing_else(
    recipe: Path, tmp_path: Path, part: EpisodePart
) -> None:
    mortal = WorkerPool(Mortal(1), 1, 30.0)
    pools = DividedWorkers({"play": WorkerPool(Fleet(), 2, 30.0), part: mortal})
    notes = f"environment.options.notes={tmp_path / 'notes'}"
    found = asyncio.run(groups(built(recipe, pools, NOTING, notes), pools))
    assert everything(found) == everything(asyncio.run(groups(built(recipe, None, NOTING), None)))
    assert mortal.metrics()["workers/lost"] == 1
    assert mortal.metrics()["workers/episodes_replayed"] >= 1
    noted, count = (tmp_path / "notes").read_text(), len(members_of(found))
    begun = {"reset": 1, "verify": 2}[part]  # where verdicts alone are elsewhere, they reset too
    assert noted.count("reset ") == begun * count
    assert noted.count("restore ") == noted.count("verify ") == count


def test_an_episode_whose_verdict_loses_two_workers_has_none_and_says_why(recipe: Path) -> None:
    mortal = WorkerPool(Mortal(2), 1, 30.0, "verify worker")
    pools = DividedWorkers({"play": WorkerPool(Fleet(), 2, 30.0), "verify": mortal})
    found = members_of(asyncio.run(groups(built(recipe, pools, NOTING), pools)))
    lost = [one for one in found if one.outcome == Outcome.GRADER_ERROR]
    assert len(lost) == pools.metrics()["workers/episodes_given_up"] >= 1
    for one in lost:
        assert one.problem.count("verify worker 0 (process") == 2
        assert one.reward is None
        assert one.tokens.mask.any()  # what was played is kept
    assert all(one.reward is not None for one in found if one not in lost)


class Unsaved(Noting):
    """Cannot be saved when it has ended."""

    def snapshot(self) -> bytes:
        raise ValueError("it is too large")


def test_an_episode_that_cannot_be_saved_has_no_verdict(recipe: Path) -> None:
    pools = divided("verify")
    environment = f"environment.name={HERE / 'test_divided.py'}:Unsaved"
    found = members_of(asyncio.run(groups(built(recipe, pools, environment), pools)))
    assert {(one.outcome, one.problem.partition(" (")[0]) for one in found} == {
        (Outcome.GRADER_ERROR, "ValueError: it is too large")
    }


@pytest.mark.long
def test_repairs_are_judged_elsewhere(recipe: Path) -> None:
    """By its own test calls, in a sandbox of the worker that judges: the oracle's and no other."""
    name, options = "environment.name=repair", "environment.options.seconds=120"
    given = ("rollout.max_turns=9", "rollout.max_tokens=9000", "rollout.max_turn_tokens=2000")
    few = "environment.options.tasks.count=4"
    loaded = load_recipe(str(recipe), [name, options, few, *given])
    environment, tokenizer = environment_of(loaded), byte_tokenizer()
    scaffold = make_scaffold(loaded.scaffold, tokenizer, environment.tools())
    tasks = environment.tasks("train")[:2]
    scripts = [environment.oracle(tasks[0]), environment.oracle(tasks[1])[-1:]]

    async def play(workers: DividedWorkers | None) -> list[Trajectory]:
        left = [list(script) for script in scripts]

        def policy(session: str, prompt: list[int]) -> Sequence[int]:
            del prompt
            return scaffold.render(left[int(session.partition("-")[0])].pop(0))

        engine, place = ScriptedEngine(policy), PrioritySemaphore(4)
        runner = RolloutRunner(
            environment, scaffold, engine, loaded.rollout, place, workers=workers
        )
        if workers is not None:
            workers.set_up(loaded, tokenizer, environment)
            await workers.start()
        try:
            return members_of(await runner.play_groups(new_groups(tasks, 1, 0, "x")))
        finally:
            if workers is not None:
                await workers.stop()

    found, expected = (asyncio.run(play(one)) for one in (divided(*BOTH), None))
    assert [one.outcome for one in found] == [Outcome.SUCCESS, Outcome.FAILURE]
    assert [one.verdict for one in found] == [one.verdict for one in expected]
    tokens = [[one.tokens.ids.tolist() for one in each] for each in (found, expected)]
    assert tokens[0] == tokens[1]


@pytest.mark.parametrize(
    ("overrides", "restorable", "message"),
    [
        ((), False, r"environment.needs divides .* give it snapshot\(\) and restore\(\), or set"),
        (("environment.latency.mean=1",), True, "environment.latency is drawn anew at each reset"),
        (("environment.needs={}",), True, r"needs that its class does not name, .*: set environ"),
    ],
)
def test_what_cannot_be_divided_is_refused(
    recipe: Path, overrides: tuple[str, ...], restorable: bool, message: str
) -> None:
    """Where all is done by one process, it is not divided."""
    needs = "environment.needs={reset={images=1}}"
    cluster = ("cluster.workers=2", "cluster.address=10.0.0.1:6379")
    loaded = load_recipe(str(recipe), [needs, *cluster, *overrides])
    environment = environment_of(loaded)
    if not restorable:
        environment = environment.variant(Plain)
    environment.needs = {"reset": {"images": 1.0}}
    with pytest.raises(ConfigError, match=message):
        check_workers(environment, loaded)
    check_workers(environment, load_recipe(str(recipe), [*overrides, "cluster.workers=2"]))


class Plain(Letters):
    """Has no snapshots."""


def test_environments_that_are_joined_need_what_one_of_them_needs() -> None:
    fast = {"name": f"{HERE / 'environments.py'}:Noting"}
    needy = {"name": f"{HERE / 'test_divided.py'}:Needy"}
    assert Joint({"a": fast, "b": needy}).needs == {"verify": {"test_suites": 2}}


class Needy(Noting):
    """Says what its verdict needs."""

    needs: Mapping[Part, Mapping[str, float]] = {"verify": {"test_suites": 2}}
