"""The subject: episodes that hang end its audit, and a slow environment plays fewer tasks."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from asking import Asking, subject_for
from turnwise.errors import DataError
from turnwise.storage.audits import Finding
from turnwise.tools.tool import Tool, tool
from turnwise.types import Action, Observation, Outcome, Task, ToolCall, Trajectory
from turnwise_trust.audit.attack import HEDGED
from turnwise_trust.audit.calls import EnvironmentRaised
from turnwise_trust.audit.probes import PROBES
from turnwise_trust.audit.quick import tried
from turnwise_trust.audit.scripts import looked, plain
from turnwise_trust.audit.slots import slots
from turnwise_trust.audit.subject import Clock, OutOfTime, Subject, subject_of
from turnwise_trust.audit.table import ATTACKS

NOTHING = """
from turnwise import Environment

class Nothing(Environment):
    def tasks(self, split):
        return []
"""

SLOW = """
import asyncio
from asking import Asking

class Slow(Asking):
    async def verify(self, trajectory):
        verdict = await super().verify(trajectory)
        await asyncio.sleep(0.0 if verdict.success else 0.03)
        return verdict
"""


def test_an_audit_ends_where_episodes_hang():
    subject = subject_for(Asking())
    late = Trajectory(subject.tasks[0], "audit", 0, 0, outcome=Outcome.GRADER_TIMEOUT, seconds=31.0)
    answered = replace(late, outcome=Outcome.FAILURE)
    assert subject.in_time([late, answered]) == [late, answered]
    with pytest.raises(EnvironmentRaised, match="2 episodes hang, as task train0: grader_timeout"):
        subject.in_time([late])
    with pytest.raises(EnvironmentRaised):
        replace(subject, seed=1).play(lambda _: None)


def test_tools_that_raise_are_a_finding_and_no_crash():
    class Unready(Asking):
        """Its tools are there in an episode alone."""

        def tools(self) -> list[Tool]:
            return self.made

        async def reset(self, task: Task, seed: int) -> Observation:
            self.made = super().tools()
            return await super().reset(task, seed)

    (row,) = tried(subject_for(Unready()), {HEDGED.check: HEDGED}).failed
    assert row.note.startswith("tools() raises AttributeError: 'Unready' object has no")


def test_what_fails_has_a_command_that_shows_it_again():
    subject = replace(subject_for(Asking()), options={"size": 4, "words": ["a b"]}, seed=3)

    def probe(_: Subject) -> list[Finding]:
        return [Finding("good", passed=True), Finding("bad", passed=False)]

    bad, good = tried(subject, {"two": probe}).findings
    assert bad.replay == """turnwise audit asking size=4 'words=["a b"]' --seed 3"""
    assert not good.replay


def test_what_there_was_no_time_for_is_said_and_weaknesses_are_known():
    environment = Asking()
    environment.weaknesses = ["A sum in words is refused."]
    page = tried(replace(subject_for(environment), clock=Clock(0.0)), PROBES)
    assert not page.failed
    assert {one.passed for one in page.findings} <= {None, True}
    told = {one.check: one.note for one in page.findings}
    assert told["known, stated by the environment"] == "A sum in words is refused."
    unmeasured = told["not measured for want of time"].split("; ")
    assert {one.check for one in ATTACKS} < {*unmeasured} < {*PROBES}
    assert page.verdict.endswith("not all was tried, for want of time.")


def test_an_attack_counts_the_tasks_for_which_there_was_time():
    asked = []
    subject = subject_for(Asking())

    def ask(task: Task) -> bool:
        asked.append(task.id)
        if len(asked) > 2:
            raise OutOfTime
        return False

    assert len(looked(subject, "an attack", ask)) == 2
    assert subject.unmeasured == ["an attack, after 2 tasks"]


def test_a_call_that_leaves_its_argument_out_says_nothing_in_it():
    class Optional(Asking):
        @tool
        def submit(self, sum: str = "") -> str:
            """Submit a sum."""
            return sum

        def oracle(self, task: Task) -> Sequence[Action]:
            given = {"sum": task.secret["sum"]} if task.data["n"] % 2 else {}
            return [Action("", calls=(ToolCall("submit", given),))]

    _, submit = slots(subject_for(Optional()))
    assert submit.right == {f"train{n}": str(2 * n + 1) for n in (1, 3, 5)} | {
        f"heldout{n}": str(2 * n + 1) for n in (101, 103, 105)
    }


@pytest.mark.parametrize("pair", [("1234567", "1234568"), ("0.1234567", "0.1234568")])
def test_numbers_that_differ_late_are_not_the_same(pair: tuple[str, str]):
    assert plain(pair[0]) != plain(pair[1])
    assert plain("1,234,567.0") == plain("1234567")


def test_an_environment_without_tasks_is_an_error(tmp_path: Path):
    file = tmp_path / "nothing.py"
    file.write_text(NOTHING)
    with pytest.raises(DataError, match="gives none"):
        subject_of(f"{file}:Nothing", {}, 4)


def test_few_tasks_are_played_where_wrong_answers_take_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = tmp_path / "slow.py"
    file.write_text(SLOW)
    monkeypatch.setattr("turnwise_trust.audit.subject.SECONDS", 0.06)
    assert len(subject_of(f"{file}:Slow", {}, 12).tasks) == 4
    assert len(subject_of(f"{file}:Slow", {}, 12, seconds=0.0).tasks) == 4  # no time for any
