"""The audit before a training: what it refuses, what a recipe accepts, and what it leaves alone."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.small_runs import FAKES, Listening, interrupted, resume, train, write_recipe
from turnwise.config import load_recipe
from turnwise.engines.base import Completion, Sampling
from turnwise.errors import ConfigError
from turnwise.monitor.display import SilentDisplay
from turnwise.storage.audits import audits, read_audit
from turnwise.storage.run_folder import RunFolder
from turnwise.training.context import RunContext
from turnwise.training.prepare import prepare
from turnwise.types import Task, Trajectory, Verdict
from turnwise_trust.audit.stage import NAME, QuickAudit

TABLES = """
rollout = { max_turns = 2, max_turn_tokens = 8, max_tokens = 200 }
train = { steps = 1, tasks_per_step = 1, group_size = 2 }
evaluation = { tasks = 1 }
"""
ENVIRONMENTS = """
import asyncio
from turnwise import Environment, Task, Verdict

class Paid(Environment):
    def tasks(self, split):
        return [Task(f"{split} {number}", f"Book {split} flight {number}.") for number in range(8)]

    def verify(self, trajectory):
        return Verdict(1.0, True)

class Slow(Paid):
    async def reset(self, task, seed):
        await asyncio.sleep(10)
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    (tmp_path / "paid.py").write_text(ENVIRONMENTS)
    return write_recipe(tmp_path, f"{tmp_path / 'paid.py'}:Paid", TABLES)


def audited(recipe: Path, *overrides: str, **parts_of_run: Any) -> RunContext:
    """A run as it stands after its first stage."""
    folder = RunFolder.new(recipe.parent / "run", overwrite=True)
    context = prepare(load_recipe(str(recipe), overrides), folder, SilentDisplay())
    parts = replace(context.components, **parts_of_run)
    context = replace(context, components=parts)
    assert asyncio.run(QuickAudit().run(context, 0)) == 0
    return context


@pytest.mark.long
def test_what_fails_refuses_the_run_also_when_it_goes_on(recipe: Path) -> None:
    folder = RunFolder.new(recipe.parent / "run")
    problem = 'paid.py:Paid may not .*does nothing: 1, .*audit.accept=."an agent that does nothing"'
    with pytest.raises(ConfigError, match=problem):
        train(recipe, folder)
    assert "refused" in audits(folder.path)[NAME]
    with pytest.raises(ConfigError, match=problem):
        resume(RunFolder.open(folder.path))


@pytest.mark.long
def test_what_a_recipe_accepts_is_said_by_the_report_and_asked_once(recipe: Path) -> None:
    folder, display = RunFolder.new(recipe.parent / "run"), Listening()
    accept = 'audit.accept=["an agent that does nothing"]'
    train(recipe, folder, accept, display=display)
    title = audits(folder.path)[NAME]
    assert title.endswith("failed, and accepted by the recipe: an agent that does nothing")
    assert f"warning: {title}" in display.said
    assert title in folder.report()["statement"]["audits"]
    assert title in (folder.path / "report.md").read_text()
    finding, _ = read_audit(folder.path, NAME)["findings"]
    assert finding.passed is False
    assert finding.note.endswith("accepted by the recipe")
    again = interrupted(folder, recipe.parent / "again", "step-000001")
    before = (again.path / "audits" / f"{NAME}.json").stat().st_mtime_ns
    resume(again)
    assert (again.path / "audits" / f"{NAME}.json").stat().st_mtime_ns == before
    assert title in again.report()["statement"]["audits"]


@pytest.mark.long
def test_a_sound_environment_is_trained_on_with_its_audit(recipe: Path) -> None:
    context = audited(recipe, f"environment.name={FAKES}:Capitals")
    assert audits(context.folder.path)[NAME].endswith("nothing that was tried failed")
    assert all(one.passed for one in read_audit(context.folder.path, NAME)["findings"])


class Agent:
    """Asks its model once, and is paid where `paid` says so of the task and the reply's tokens."""

    def __init__(self, paid: Callable[[Task, Completion], bool]) -> None:
        self.paid = paid

    def episode(self, engine: Any, planned: Trajectory, **_: Any) -> SimpleNamespace:
        async def run() -> Trajectory:
            engine.open(planned.group)
            reply = await engine.generate([1, 2, 3], Sampling(max_tokens=8), session=planned.group)
            engine.close(planned.group)
            success = self.paid(planned.task, reply)
            return replace(planned, verdict=Verdict(float(success), success))

        return SimpleNamespace(run=run)

    def check(self, groups: object) -> None:
        """Nothing is held against it."""


@pytest.mark.parametrize(
    ("paid", "check"),
    [
        (lambda task, reply: not reply.tokens, "nothing"),
        (lambda task, reply: list(reply.tokens) == [1, 2, 3], "what it was asked"),
        (lambda task, reply: list(reply.tokens) not in ([], [1, 2, 3]), "one word"),
    ],
)
def test_an_agent_is_refused_that_is_paid_whatever_its_model_says(
    recipe: Path, paid: Callable[[Task, Completion], bool], check: str
) -> None:
    with pytest.raises(ConfigError, match="Or accept it") as refused:
        audited(recipe, player=Agent(paid))
    assert f"an agent whose model says {check}: 1, share of 8 tasks" in str(refused.value)
    assert str(refused.value).count("an agent whose") == 2  # the others passed
    accept = f'audit.accept=["an agent whose model says {check}"]'
    audited(recipe, accept, player=Agent(paid))


def test_luck_of_an_agent_is_no_finding(recipe: Path) -> None:
    context = audited(recipe, player=Agent(lambda task, reply: task.id.endswith("3")))
    findings = read_audit(context.folder.path, NAME)["findings"]
    assert [(one.figure, one.passed) for one in findings] == [(1 / 8, True)] * 3


def test_an_agent_on_workers_is_left_alone(recipe: Path) -> None:
    context = audited(recipe, player=SimpleNamespace(), workers=SimpleNamespace())
    assert "none, as an agent of the run's own plays" in audits(context.folder.path)[NAME]


def test_it_ends_in_time(recipe: Path) -> None:
    slow = f"environment.name={recipe.parent / 'paid.py'}:Slow"
    context = audited(recipe, slow, "audit.seconds=0.05")
    idle, oracle, unmeasured = read_audit(context.folder.path, NAME)["findings"]
    assert (idle.passed, oracle.passed, unmeasured.passed) == (None, None, None)
    assert idle.note.startswith("no episode got a verdict: ")
    # A busy machine has no time for others either.
    assert {"a repeated step", "one answer for all tasks"} <= set(unmeasured.note.split("; "))
    title = audits(context.folder.path)[NAME]
    assert "nothing could be judged: an agent that does nothing: no episode got" in title


@pytest.mark.parametrize("override", ["audit.seconds=0", "train.steps=0"])
def test_it_can_be_left_out_and_is_where_nothing_is_trained(recipe: Path, override: str) -> None:
    assert audits(audited(recipe, override).folder.path) == {}
