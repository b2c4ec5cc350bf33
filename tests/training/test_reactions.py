"""What is done about an Echo Trap, in real runs that fall into one and are killed."""

import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

from tests.fakes import save_small_model
from tests.small_runs import Listening, prepared, train, write_recipe
from turnwise.algorithms.registry import make_algorithm
from turnwise.config import Recipe, load_recipe
from turnwise.errors import ConfigError, RunStoppedError
from turnwise.learning.learner import Learner
from turnwise.storage import checkpoint
from turnwise.storage.run_folder import RunFolder
from turnwise.training.echo_trap_watch import EchoTrapWatch
from turnwise.training.learners import Learners
from turnwise.training.reactions import best_step, check_reaction
from turnwise.training.validation import Validation

SEEN_AT, STEPS = 23, 28
"""The step at which the runs here have fallen into the trap, and their length."""


class Killed(Exception):
    """Stands for a kill: nothing is saved."""


class Listener(Listening):
    """Kills the run during a step."""

    def __init__(self, killed_at: int = 0) -> None:
        super().__init__()
        self.killed_at = killed_at

    def advance(self, text: str = "") -> None:
        super().advance(text)
        if len(self.progress) == self.killed_at:
            raise Killed


class StillWriting:
    """A learner of whose last checkpoints other processes write some: they are whole when they are
    waited for."""

    def __init__(self, learner: Learner, checkpoints: Path) -> None:
        self._learner, self._checkpoints = learner, checkpoints

    def __getattr__(self, name: str) -> Any:
        return getattr(self._learner, name)

    def wait_until_saved(self) -> None:
        for draft in self._checkpoints.glob("draft-*"):
            draft.rename(draft.with_name(draft.name.removeprefix("draft-")))


TABLES = f"""
engine = {{ max_sequences = 8 }}
rollout = {{ max_turns = 1, max_turn_tokens = 8, max_tokens = 200 }}
learning = {{ learning_rate = 2e-2 }}
train = {{ steps = {STEPS}, tasks_per_step = 2, group_size = 4, checkpoint_every = 3 }}
evaluation = {{ tasks = 0 }}
monitor.echo_trap.highest_reward = 5.0
"""


def trapped_recipe(model: Path, reaction: str) -> Recipe:
    """A learning rate so high that the policy soon writes the same letters, whatever is asked."""
    path = write_recipe(model.parent, "Letters", TABLES, model)
    given = ["model.device=cpu", "train.keep_checkpoints=1"]
    return load_recipe(str(path), [*given, f"monitor.echo_trap.reaction={reaction}"])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_small_model(tmp_path_factory.mktemp("trapped") / "model")


def run(recipe: Recipe, folder: RunFolder, killed_at: int = 0) -> list[str]:
    """Until its end or until it is killed in a step; returns what was said but for other alarms."""
    listener = Listener(killed_at)
    with pytest.raises(Killed) if killed_at else nullcontext():
        train(recipe, folder, display=listener)
    return [line for line in listener.said if not line.startswith("alarm at step")]


@pytest.mark.slow
@pytest.mark.parametrize("reaction", ["roll_back", "lower_learning_rate", "filter"])
def test_a_run_that_was_killed_ends_like_one_that_was_not(
    model: Path, tmp_path: Path, reaction: str
) -> None:
    """Killed as it reacts, so that it has to react again, and some steps later."""
    recipe = trapped_recipe(model, reaction)
    whole, killed = RunFolder.new(tmp_path / "whole"), RunFolder.new(tmp_path / "killed")
    computes, *said = run(recipe, whole)
    assert len(said) == 2  # seen once, and what was done
    assert said[0].startswith(f"Echo Trap: at step {SEEN_AT}")
    lines = whole.lines("metrics.jsonl")
    rates = [line["policy/learning_rate"] for line in lines]
    after = 2e-2 if reaction == "filter" else 1e-2
    assert rates == [2e-2] * SEEN_AT + [after] * (STEPS - SEEN_AT)
    words = {
        "lower_learning_rate": "The learning rate is 0.5 times what it was: now 0.01",
        "filter": "From now on the 25% of a step's groups whose rewards differ most",
        "roll_back": "Weights and optimizer are again those of step",
    }
    assert said[1].startswith(words[reaction])
    run(recipe, killed, SEEN_AT)
    run(recipe, RunFolder.open(killed.path), STEPS - 1)
    assert run(recipe, RunFolder.open(killed.path)) == [computes]
    files = [folder.path / "metrics.jsonl" for folder in (whole, killed)]
    assert files[0].read_bytes() == files[1].read_bytes()
    name = f"step-{STEPS:06d}/model.safetensors"
    weights = [load_file(folder.checkpoints / name) for folder in (whole, killed)]
    assert all(np.array_equal(weights[0][key], weights[1][key]) for key in weights[0])


@pytest.mark.long
@pytest.mark.parametrize(("heldout", "best_step"), [(None, 3), (6, 6)])
def test_rolling_back_gives_the_best_weights_and_keeps_the_newer_step(
    model: Path, tmp_path: Path, heldout: int | None, best_step: int
) -> None:
    """The rewards of a history make step 3 the best, held-out success another one where it was
    measured; its checkpoint is not among the newest."""
    recipe = trapped_recipe(model, "roll_back")
    folder = RunFolder.new(tmp_path / "run")
    listener = Listener()
    context = prepared(recipe, folder, display=listener)
    learners: Any = Learners(context)
    learner = learners.policy
    learners.policy, history = StillWriting(learner, folder.checkpoints), list[dict[str, float]]()
    watch = EchoTrapWatch(context, history, Validation(context, 0))
    signs = {"reward/group_std": 0.01, "policy/entropy": 0.1, "reward/mean": 0.5}
    best = {}
    for step in range(1, 21):
        line = {"step": step, **signs}
        if step <= 5:
            line |= {"reward/group_std": 0.4, "policy/entropy": 1.0, "reward/mean": 0.9}
        history.append(line)
        next(learner.model.parameters()).data.fill_(step)
        if step == heldout:
            folder.append("validation.jsonl", {"step": step, "validation/success": 0.5})
            watch = EchoTrapWatch(context, history, Validation(context, step))
        if step % 3 == 0:
            best_yet = watch.best_step(history)
            learners.save(step, learners.state(), best_yet)
        if step == best_step:
            best = {key: value.clone() for key, value in learner.model.state_dict().items()}
    assert sorted(path.name for path in folder.checkpoints.iterdir()) == [
        f"step-{best_step:06d}",
        "step-000018",
    ]
    saved = folder.checkpoints / f"step-{best_step:06d}"
    saved.rename(saved.with_name(f"draft-{saved.name}"))
    watch.check(20, learners)
    assert f"again those of step {best_step}" in listener.said[-1]
    assert all((value == best[key]).all() for key, value in learner.model.state_dict().items())
    assert learner.optimizer.learning_rate_factor == 0.5
    watch.check(21, learners)
    assert len(listener.said) == 2  # not at every step
    watch.check(30, learners)
    assert learner.optimizer.learning_rate_factor == 0.25  # lower than the first time
    shutil.rmtree(folder.checkpoints)
    watch.check(40, learners)
    assert listener.said[-1].startswith("There is no checkpoint to go back to. The learning rate")


@pytest.mark.slow
def test_stopping_says_why_and_a_resumed_run_goes_on(model: Path, tmp_path: Path) -> None:
    recipe, folder = trapped_recipe(model, "stop"), RunFolder.new(tmp_path / "run")
    with pytest.raises(RunStoppedError, match=rf"at step {SEEN_AT} .* or lower learning_rate"):
        run(recipe, folder)
    assert checkpoint.latest(folder.checkpoints) == folder.checkpoints / f"step-{SEEN_AT:06d}"
    run(recipe, RunFolder.open(folder.path))
    assert len(folder.lines("metrics.jsonl")) == STEPS


@given(st.lists(st.floats(-1, 1), max_size=40), st.integers(1, 9))
def test_the_best_step_has_the_highest_average(rewards: list[float], every: int) -> None:
    history = [{"step": n + 1, "reward/mean": reward} for n, reward in enumerate(rewards)]
    found, best = None, -np.inf
    for step in range(1, len(rewards) + 1):
        average = sum(rewards[max(0, step - 5) : step]) / min(step, 5)
        if step % every == 0 and average > best + 1e-9:
            found, best = step, average
    chosen = best_step(history, every)
    if found is None:
        assert chosen is None
    else:
        assert chosen % every == 0
        last = rewards[max(0, chosen - 5) : chosen]
        assert sum(last) / len(last) == pytest.approx(best, abs=1e-6)


def test_of_equals_the_earliest_is_the_best() -> None:
    history = [{"step": step, "reward/mean": 0.5} for step in range(1, 31)]
    assert best_step(history, 5) == 5
    assert best_step(history[:4], 5) is None


def test_reactions_that_could_do_nothing_are_refused(model: Path) -> None:
    recipe = trapped_recipe(model, "filter")
    check_reaction(recipe, make_algorithm("grpo", {}))
    with pytest.raises(ConfigError, match="has from the beginning"):
        check_reaction(recipe, make_algorithm("starpo_s", {}))
    seldom = trapped_recipe(model, "roll_back")
    check_reaction(seldom, make_algorithm("grpo", {}))
    every = seldom.train.model_copy(update={"checkpoint_every": 10})
    seldom = seldom.model_copy(update={"train": every})
    with pytest.raises(ConfigError, match=r"train\.checkpoint_every below"):
        check_reaction(seldom, make_algorithm("grpo", {}))
