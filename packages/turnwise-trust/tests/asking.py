"""A small environment to break, and its findings by name."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from turnwise.environments.base import Environment
from turnwise.storage.audits import Finding
from turnwise.tools.tool import tool
from turnwise.types import Action, Task, ToolCall, Trajectory, Verdict
from turnwise_environments.choosing import all_tasks
from turnwise_trust.audit.calls import known_oracle
from turnwise_trust.audit.subject import Subject

COUNT = 6


class Asking(Environment):
    """Asks for a sum, which one tool works out. Sound: each test breaks one thing of it."""

    def tasks(self, split: str) -> Sequence[Task]:
        first = 0 if split == "train" else 100
        return [
            Task(f"{split}{n}", f"What is {n} and {n + 1}?", {"sum": str(2 * n + 1)}, {"n": n})
            for n in range(first, first + COUNT)
        ]

    @tool
    def add(self, one: int, other: int) -> str:
        """Add two numbers."""
        return str(one + other)

    def verify(self, trajectory: Trajectory) -> Verdict:
        right = (trajectory.answer or "").strip() == trajectory.task.secret["sum"]
        return Verdict(float(right), right)

    def oracle(self, task: Task) -> Sequence[Action]:
        n = task.data["n"]
        call = ToolCall("add", {"one": n, "other": n + 1})
        return [Action("", calls=(call,)), Action("", answer=task.secret["sum"])]


def subject_for(environment: Environment, **changes: Any) -> Subject:
    tasks = all_tasks(environment)
    known, problem = known_oracle(environment, tasks)
    return Subject("asking", {}, environment, tasks, 0, known, problem, **changes)


def found(
    probe: Callable[[Subject], Iterable[Finding]], environment: Environment
) -> dict[str, Finding]:
    """The findings of a probe by the beginning of their names."""
    return {one.check: one for one in probe(subject_for(environment))}


def failed(
    probe: Callable[[Subject], Iterable[Finding]], environment: Environment
) -> dict[str, Finding]:
    return {name: one for name, one in found(probe, environment).items() if one.passed is False}
