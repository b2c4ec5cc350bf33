"""Several attempts in one episode: what each is shown, and what of them is judged."""

import asyncio
from dataclasses import replace

import pytest

from environment_playing import calling, played, said, steps_of, verdict_of
from tests.rollout.playing import TOKENIZER, encode, rolling
from turnwise.config import RolloutConfig
from turnwise.environments.base import Environment
from turnwise.environments.registry import make_environment
from turnwise.errors import NotSupportedError
from turnwise.types import Action, Outcome, Trajectory
from turnwise_environments.attempts import ASKED
from turnwise_environments.games.doors import Doors


@pytest.fixture
def doors() -> Environment:
    options = {"name": "doors", "options": {"rooms": 2}, "attempts": 3}
    return make_environment("attempts", options)


def wrong(environment: Environment, room: int) -> Action:
    right = environment.tasks("train")[0].data["right"][room]
    return calling("open", door="red" if right != "red" else "blue")


def test_a_reflection_is_asked_for_kept_and_shown_in_the_next_attempt(doors: Environment) -> None:
    task = doors.tasks("train")[0]
    first, second = doors.oracle(task)
    reflection = calling("reflect", text="the second one was wrong")
    script = [first, wrong(doors, 1), second, reflection, first, second]
    play = played(doors, task, *script)
    shown = [said(step) for step in steps_of(play)[:5]]
    assert shown == [
        "Room 2.",
        f"It is a trap.\n{ASKED}",
        ASKED,  # whatever else is done before a reflection
        "Attempt 2. the second one was wrong",
        "Room 2.",
    ]
    assert [step.forgets for step in steps_of(play)] == [False] * 3 + [True] + [False] * 2
    assert verdict_of(play).success
    assert verdict_of(play).parts == {"by_1": 0.0, "by_2": 1.0, "by_3": 1.0}


def test_the_last_attempt_is_shown_as_it_went_or_nothing_of_it() -> None:
    for memory, shown in (("trajectory", " open {}: It is a trap."), ("none", "")):
        options = {"name": "doors", "attempts": 2, "memory": memory}
        environment = make_environment("attempts", options)
        slip = wrong(environment, 0)
        play = played(environment, environment.tasks("train")[0], slip, slip, slip)
        first, last = steps_of(play)
        assert said(first) == f"Attempt 2.{shown.format(slip.calls[0].arguments['door'])}"
        assert last.done
        assert not verdict_of(play).success


def test_a_tool_that_the_recipe_adds() -> None:
    environment = make_environment("attempts", {"name": "doors"}, tools=["calculate"])
    task, slip = environment.tasks("train")[0], wrong(environment, 0)
    both = Action("", calls=(*calling("calculate", expression="6 * 7").calls, *slip.calls))
    (step,) = steps_of(played(environment, task, both))
    assert said(step) == f"42\nIt is a trap.\n{ASKED}"


class HintingDoors(Doors):
    def __init__(self) -> None:
        super().__init__()
        self.task_set = replace(self.task_set, warnings=["one record is left out"])

    def guidance(self, attempt: Trajectory) -> str:
        (turn,) = attempt.turns
        return f"Not {turn.action.calls[0].arguments['door']}."


def test_a_hint_is_the_plan_or_the_environments_own() -> None:
    for name in ("doors", f"{__file__}:HintingDoors"):
        environment = make_environment("attempts", {"name": name, "memory": "guidance"})
        task, slip = environment.tasks("train")[0], wrong(environment, 0)
        first, *others = task.data["right"]
        plan = f"Plan: open {first}, open {others[0]}, open {others[1]}."
        hint = plan if name == "doors" else f"Not {slip.calls[0].arguments['door']}."
        assert said(steps_of(played(environment, task, slip))[0]) == f"Attempt 2. {hint}"
    assert environment.warnings == ("one record is left out",)


class Silent(Doors):
    oracle = Environment.oracle


def test_hints_of_an_environment_that_has_none_are_refused() -> None:
    with pytest.raises(NotSupportedError, match="Silent has no oracle"):
        make_environment("attempts", {"name": f"{__file__}:Silent", "memory": "guidance"})


@pytest.mark.long
def test_an_attempt_begins_in_a_context_without_those_before(doors: Environment) -> None:
    task = doors.tasks("train")[0]
    texts = [
        f"<open> {wrong(doors, 0).calls[0].arguments['door']}</open>",
        "<reflect> no</reflect>",
    ]
    turns, prompts = iter([encode(text) for text in texts * 2 + texts[:1]]), []

    def policy(session: str, prompt: list[int]) -> list[int]:
        prompts.append(TOKENIZER.decode(prompt))
        return next(turns)

    runner = rolling(doors, policy, RolloutConfig(max_turns=9, max_tokens=900), seats=1)
    (group,) = asyncio.run(runner.collect([task], 1, 0, "test"))
    (trajectory,) = group.trajectories
    assert trajectory.outcome == Outcome.FAILURE
    assert len(trajectory.tokens.contexts) == 3
    for number in (2, 3):
        begun = prompts[2 * number - 2]
        assert begun.startswith(prompts[0])
        assert begun.endswith(f"Attempt {number}. no</information>\n")
        assert "trap" not in begun
    assert trajectory.tokens.mask.sum() == sum(len(encode(text)) for text in texts * 2 + texts[:1])
