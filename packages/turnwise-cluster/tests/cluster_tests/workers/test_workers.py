"""Workers play what the process of the run would have played, whatever becomes of them.

They are the real ones, as tasks of this process (`fleet.py`).
"""

import asyncio
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cluster_tests.workers.fleet import Fleet, train_with
from tests.small_runs import train, write_recipe
from turnwise.algorithms.registry import make_algorithm
from turnwise.config import load_recipe
from turnwise.conflicts import check
from turnwise.engines.base import Completion, Sampling, StopReason
from turnwise.environments.registry import environment_of
from turnwise.errors import ConfigError, UserError
from turnwise.parts.components import Components, build_components
from turnwise.parts.resources import Resources
from turnwise.rollout.collect import oversampled_groups
from turnwise.rollout.runner import Workers, members_of
from turnwise.storage.audits import BEFORE_RUN, read_audit
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.timeline import read_timeline
from turnwise.training.context import RunContext
from turnwise.types import Group, Outcome, Trajectory
from turnwise_cluster.workers import link, worker
from turnwise_cluster.workers import pool as pool_module
from turnwise_cluster.workers.episode import Assignment, Sample
from turnwise_cluster.workers.frames import Asked
from turnwise_cluster.workers.link import Replay
from turnwise_cluster.workers.pool import WorkerPool

HERE = Path(__file__).parent
TABLES = """
engine.max_sequences = 4
rollout = { max_turns = 3, max_turn_tokens = 12, max_tokens = 200, max_ungraded_share = 1.0 }
learning.learning_rate = 1e-3
train = { steps = 2, tasks_per_step = 2, group_size = 4 }
evaluation.tasks = 1
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recipe(tmp_path_factory.mktemp("recipe"), "Restorable", TABLES)


@pytest.fixture(scope="module")
def alone(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> RunContext:
    """The run without workers."""
    return train(recipe, RunFolder.new(tmp_path_factory.mktemp("alone") / "run"))


def same_run(one: RunContext, other: RunContext) -> bool:
    """Whether metrics and weights are the same, bit for bit."""
    weights, others = one.components.model.state_dict(), other.components.model.state_dict()
    metrics = [(run.folder.path / "metrics.jsonl").read_bytes() for run in (one, other)]
    return metrics[0] == metrics[1] and all(
        torch.equal(weights[key], others[key]) for key in weights
    )


def timing(context: RunContext) -> dict[str, float]:
    """The last line of timing.jsonl."""
    return dict(list(context.folder.lines("timing.jsonl"))[-1])


@pytest.mark.long
@pytest.mark.parametrize("count", [1, 4])
def test_workers_change_no_bit_of_a_run(
    recipe: Path, alone: RunContext, tmp_path: Path, count: int
) -> None:
    fleet = Fleet()
    found = train_with(WorkerPool(fleet, count, 30.0), recipe, RunFolder.new(tmp_path / "run"))
    assert same_run(found, alone)
    assert fleet.starts == count
    assert timing(found)["workers/lost"] == 0
    findings = read_audit(found.folder.path, BEFORE_RUN)["findings"]
    assert all(one.figure <= one.bound for one in findings if one.bound is not None)
    assert len([one for one in findings if one.bound and one.note.startswith("nats")]) == 2
    rows = read_timeline(found.folder.timeline_file(1)).to_pylist()
    processes = {row["process"].partition(" (")[0] for row in rows}
    assert processes == {"learner", *(f"worker {index}" for index in range(count))}
    assert {"waiting", "signals", "update", "weights", "environment", "sampling"} <= {
        row["kind"] for row in rows
    }


async def groups(
    parts: Components, pool: Workers | None, name: str = "grpo", size: int = 2
) -> Sequence[Group]:
    """Groups as an algorithm's rollout plays them."""
    algorithm = make_algorithm(name, {})
    try:
        await parts.load(0)
        if pool is not None:
            await pool.start()
        runner = parts.runner(parts.recipe.rollout)
        tasks = parts.environment.tasks("train")
        found: Sequence[Group] = await algorithm.call("rollout", runner, tasks, size, 0, "train/0")
        return found
    finally:
        await parts.stop()


def everything(found: Sequence[Group]) -> list[object]:
    """All that was played, but for the seconds that it took."""
    every = [*members_of(found), *(one for group in found for one in group.baseline_rollouts)]
    return [
        (
            one.id,
            one.task,
            one.outcome,
            one.verdict,
            one.answer_cut,
            one.tokens.ids.tolist(),
            one.tokens.logprob.tobytes(),
            one.tokens.version.tolist(),
            [turn.action for turn in one.turns],
            one.snapshots,
            one.parent,
            one.first_turn,
        )
        for one in every
    ]


def built(recipe: Path, pool: Workers | None, *overrides: str) -> Components:
    return build_components(load_recipe(str(recipe), overrides), resources=Resources(pool))


@pytest.mark.wing("algorithms")
@pytest.mark.long
@pytest.mark.parametrize(("name", "size"), [("counterfactual", 2), ("remax", 2), ("tree_grpo", 8)])
def test_branches_and_baselines_are_played_by_workers_too(
    recipe: Path, name: str, size: int
) -> None:
    pool = WorkerPool(Fleet(), 2, 30.0)
    found = asyncio.run(groups(built(recipe, pool), pool, name, size))
    expected = asyncio.run(groups(built(recipe, None), None, name, size))
    assert everything(found) == everything(expected)
    tokens = [one.tokens for one in members_of(found)]
    assert not any(one.ids.flags.writeable or one.logprob.flags.writeable for one in tokens)


@pytest.mark.long
def test_a_reward_and_an_ablation_of_the_recipe_are_the_workers_too(
    recipe: Path, tmp_path: Path
) -> None:
    environment = f"environment.name={HERE / 'environments.py'}:Sighted"
    given = (environment, "reward.parts.letters=0.5", "reward.dominance=false")
    ours = train(recipe, RunFolder.new(tmp_path / "a"), *given)
    pool = WorkerPool(Fleet(), 2, 30.0)
    theirs = train_with(pool, recipe, RunFolder.new(tmp_path / "b"), *given)
    assert same_run(ours, theirs)
    for name in ("trained", "blind"):
        found = [run.folder.evaluation(name) for run in (ours, theirs)]
        rewards = [evaluation["reward"] for evaluation in found if evaluation is not None]
        assert len(rewards) == 2
        assert rewards[0] == rewards[1]


def test_an_answer_that_is_cut_away_in_a_worker_is_known_here(recipe: Path) -> None:
    pool, environment = WorkerPool(Fleet(), 1, 30.0), f"{HERE / 'environments.py'}:Cutting"
    parts = built(recipe, pool, f"environment.name={environment}")
    assert all(one.answer_cut for one in members_of(asyncio.run(groups(parts, pool))))


class Harassed(WorkerPool):
    """Loses a worker whenever a certain number of turns has been sampled."""

    def __init__(self, count: int, *deaths: int) -> None:
        self.fleet, self.deaths, self.turns, self.due = Fleet(), deaths, 0, 0
        super().__init__(self.fleet, count, 30.0)

    async def play(
        self, assignment: Assignment, sample: Sample, keep: Callable[[Trajectory], None]
    ) -> None:
        async def watched(prompt: Sequence[int], sampling: Sampling) -> Completion:
            completion = await sample(prompt, sampling)
            self.turns += 1
            self.due += self.turns in self.deaths
            if self.due and self._links:
                self.due -= 1
                self.kill(max(self._links, key=lambda index: self._links[index][0].load))
            return completion

        await super().play(assignment, watched, keep)

    def kill(self, index: int) -> None:
        self.fleet.kill(index)


@pytest.mark.long
@pytest.mark.parametrize(("count", "deaths"), [(1, (3, 30)), (3, (1, 6, 11, 17, 23))])
def test_a_run_whose_workers_die_is_the_run_in_which_none_does(
    recipe: Path, alone: RunContext, tmp_path: Path, count: int, deaths: tuple[int, ...]
) -> None:
    pool = Harassed(count, *deaths)
    found = train_with(pool, recipe, RunFolder.new(tmp_path / "run"))
    assert same_run(found, alone)
    last = timing(found)
    assert last["workers/lost"] == len(deaths)
    assert last["workers/episodes_replayed"] >= len(deaths)
    assert last["workers/episodes_given_up"] == 0
    assert pool.fleet.starts == count + len(deaths)


def test_an_episode_that_loses_two_workers_is_ungraded_and_says_why(recipe: Path) -> None:
    pool = Harassed(1, 1, 6)
    found = members_of(asyncio.run(groups(built(recipe, pool), pool)))
    lost = [one for one in found if one.outcome == Outcome.INFRASTRUCTURE_STEP]
    assert lost
    assert len(lost) == pool.metrics()["workers/episodes_given_up"]
    assert all(one.reward is None and one.problem.count("worker 0 (process") == 2 for one in lost)
    assert len(found) == 4
    assert all(one.reward is not None for one in found if one not in lost)


def test_an_environment_that_does_not_repeat_is_sampled_anew(recipe: Path) -> None:
    """Another prompt than before is no turn that was sampled."""
    sampled = []

    async def sample(prompt: Sequence[int], sampling: Sampling) -> Completion:
        sampled.append(list(prompt))
        return Completion([7], [-1.0], StopReason.END_OF_TEXT, 0)

    async def replayed() -> None:
        replay = Replay(sample)
        for prompts in ([1], [1, 2], [1, 2, 3]), ([1], [1, 9], [1, 2, 3]):
            for prompt in prompts:
                await replay.turn(Asked(0, np.array(prompt, np.int32), Sampling(4, seed=5)))
            replay.rewind()

    asyncio.run(replayed())
    assert sampled == [[1], [1, 2], [1, 2, 3], [1, 9], [1, 2, 3]]


@pytest.mark.parametrize(
    ("changed", "lost", "message"),
    [
        pytest.param(
            {(pool_module, "GRACE"): -0.1, (worker, "BEAT"): 1000.0},
            {2},
            "gives no sign of life",
            marks=pytest.mark.long,
            id="worker",
        ),
        pytest.param(
            {(link, "GRACE"): -0.2, (link, "CALLS"): 1},
            {1, 2},  # the pool may stop before it knows of the second one
            r"has said nothing of train/0/\w+ episode \d for 0.3 s",
            id="episode",
        ),
    ],
)
def test_a_worker_or_an_episode_that_says_nothing_costs_the_worker(
    recipe: Path,
    monkeypatch: pytest.MonkeyPatch,
    changed: dict[Any, float],
    lost: set[int],
    message: str,
) -> None:
    for (module, name), value in changed.items():
        monkeypatch.setattr(module, name, value)
    pool = WorkerPool(Fleet(), 1, 30.0)
    environment = f"environment.name={HERE / 'environments.py'}:Sleeper"
    parts = built(recipe, pool, environment, "rollout.max_seconds=0.5")
    found = members_of(asyncio.run(groups(parts, pool)))
    assert pool.metrics()["workers/lost"] in lost
    assert {one.outcome for one in found} == {Outcome.INFRASTRUCTURE_STEP}
    assert re.search(message, found[0].problem)


def test_a_cancelled_episode_says_what_it_was(recipe: Path) -> None:
    """As with oversampling, which counts what the others have cost."""
    pool = WorkerPool(Fleet(), 2, 30.0)
    environment = f"environment.name={HERE / 'environments.py'}:SlowVerdict"
    parts = built(recipe, pool, environment, "engine.deterministic=false")

    async def oversampled() -> list[Group]:
        try:
            await parts.load(0)
            await pool.start()
            tasks, runner = parts.environment.tasks("train"), parts.runner(parts.recipe.rollout)
            return await oversampled_groups(runner, tasks, 1, 0, "x", extra=1)
        finally:
            await parts.stop()

    for group in asyncio.run(oversampled()):
        assert [one.episode for one in group.trajectories] == [0]
        (late,) = group.oversampled
        assert late.outcome == Outcome.CANCELLED
        assert late.tokens.mask.any()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Missing", "documents.jsonl: there is no such file"),
        ("Changing", r"worker \d .* has turnwise .*, changing [23], .* install the same version"),
    ],
)
def test_a_worker_that_cannot_work_ends_the_run_in_one_line(
    recipe: Path, name: str, message: str
) -> None:
    pool = WorkerPool(Fleet(), 2, 30.0)
    parts = built(recipe, pool, f"environment.name={HERE / 'environments.py'}:{name}")
    with pytest.raises(UserError, match=message) as caught:
        asyncio.run(groups(parts, pool))
    assert "\n" not in str(caught.value)


def test_a_stranger_is_told_nothing(recipe: Path) -> None:
    heard = []

    async def stranger(host: str, port: int, secret: bytes) -> None:
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(bytes(len(secret)))
        heard.append(await reader.read())
        writer.close()
        await worker.serve(host, port, secret)

    pool = WorkerPool(Fleet(stranger), 1, 30.0)
    found = members_of(asyncio.run(groups(built(recipe, pool), pool)))
    assert heard == [b""]
    assert all(one.reward is not None for one in found)


def test_pictures_stay_in_the_process_of_the_run(recipe: Path) -> None:
    loaded = load_recipe(str(recipe), ["cluster.workers=2"])
    environment = environment_of(loaded)
    check([*loaded.all_claims(), *environment.claims()])
    environment.shows_images = True
    with pytest.raises(ConfigError, match=r"is shown images, .* set cluster.workers=0"):
        check([*loaded.all_claims(), *environment.claims()])
