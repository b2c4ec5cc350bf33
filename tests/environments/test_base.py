"""What an environment of one's own may write otherwise than the base: plain methods, its tasks."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from turnwise.environments.base import Environment
from turnwise.environments.tasksets import TaskSet
from turnwise.errors import ConfigError, DataError
from turnwise.tokens import Source
from turnwise.types import Action, Observation, Step, Task, Trajectory, Verdict

TASK = Task("one", "Say the word.")


class Closing:
    """A part that knows nothing of environments."""

    closed = False

    def close(self) -> None:
        self.closed = True


class Plain(Closing, Environment):  # what is awaited there is not here
    """All that is awaited is written without `async`."""

    def reset(self, task: Task, seed: int) -> Observation:
        return Observation(f"{task.prompt} {seed}", Source.USER)

    def step(self, action: Action) -> Awaitable[Step]:
        return super().step(action)

    def verify(self, trajectory: Trajectory) -> Verdict:
        return Verdict(reward=1.0, success=True)


def test_plain_methods_are_awaited_as_others_are() -> None:
    async def play() -> tuple[Any, ...]:
        environment = Plain()
        first = await environment.reset(TASK, 7)
        step = await environment.step(Action("", answer="sesame"))
        verdict = await environment.verify(Trajectory(TASK, "group", 0, 7))
        await environment.close()
        return first.content, step.done, verdict.success, environment.closed

    assert asyncio.run(play()) == ("Say the word. 7", True, True, True)


def test_a_method_that_nothing_waits_for_is_refused_as_async() -> None:
    async def oracle(self: Any, task: Task) -> Sequence[Action]:
        return []

    with pytest.raises(ConfigError, match=r"Mine\.oracle is `async def`.*write `def`"):
        type("Mine", (Environment,), {"oracle": oracle})


def test_a_method_that_takes_other_arguments_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"Mine\.reset has to take \(self, task, seed\)"):
        type("Mine", (Environment,), {"reset": lambda self, task: Observation(task.prompt)})
    type("Mine", (Environment,), {"reset": lambda self, *given: Observation("")})


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([{"id": "one"}], "number 0 is a dict: write Task"),
        ([TASK, "two"], "number 1 is a str: write Task"),
        ({"train": [TASK]}, "dict instead of a list of Task"),
        (iter([TASK]), "list_iterator instead of a list of Task"),
        ({"a": TASK}.values(), "dict_values instead of a list of Task"),
        (None, "NoneType instead of a list of Task"),
    ],
)
def test_tasks_that_are_none_are_one_line(found: Any, said: str) -> None:
    kind: Callable[[], Environment] = type("Mine", (Environment,), {"tasks": lambda self, s: found})
    with pytest.raises(DataError, match=f"Mine.tasks: {said}"):
        kind().tasks("train")


def test_a_task_set_of_anything_else_is_one_line() -> None:
    wrong: Any = [{"id": "one"}]
    with pytest.raises(DataError, match="the tasks: number 0 is a dict"):
        TaskSet.shuffled(wrong, 0.5)
    with pytest.raises(DataError, match="the heldout tasks: number 0 is a dict"):
        TaskSet.of({"train": [], "heldout": wrong})
