"""The workshop of the study voyager: what is made, what is kept, and what is shown of it."""

import asyncio

import pytest

from turnwise.environments.base import Environment
from turnwise.types import Action, Step, Task, Trajectory, Verdict
from turnwise_studies.shipped.voyager import BUDGET, Workshop, calling


def play(made: Environment, task: Task, actions: list[Action]) -> tuple[list[Step], Verdict]:
    """The steps and the verdict of an episode."""

    async def work() -> tuple[list[Step], Verdict]:
        await made.reset(task.public(), 0)
        steps = [await made.step(action) for action in actions]
        return steps, await made.verify(Trajectory(task, "test", 0, 0))

    return asyncio.run(work())


def shown(step: Step) -> str:
    assert step.observation is not None
    return step.observation.content


@pytest.mark.parametrize("kept", [1.0, 0.5, 0.0])
def test_the_oracle_makes_all_items_with_any_library(kept: float) -> None:
    workshop = Workshop(library=(kept,), count=6)
    for task in workshop.tasks("heldout"):
        steps, verdict = play(workshop.fresh(), task, list(workshop.oracle(task)))
        assert verdict.success
        assert [step.done for step in steps] == [False] * (len(steps) - 1) + [True]
        assert sum(step.forgets for step in steps) == 7
        assert len(steps) == 24 or kept < 1


def test_a_skill_is_kept_where_its_plan_makes_the_item_and_is_shown_first() -> None:
    workshop = Workshop(count=1)
    (task,) = workshop.tasks("train")
    items = list(task.data["recipes"])
    first, wasted = list(workshop.oracle(task))[:3], [calling("get", "text")] * BUDGET
    for verified, kept in ((True, items[:1]), (False, items[:2])):
        workshop.verified = verified
        steps, verdict = play(workshop.fresh(), task, [*first, *wasted])
        assert verdict.parts["items"] == 1.0
        assert verdict.parts["level_1"] == 0.5
        told = shown(steps[-1])
        below, material = task.data["recipes"][items[2]]
        assert told.startswith(f"Make {items[2]}: {below} {material}. Skills: ")
        assert (below in told.partition("Skills: ")[2]) == (below in kept)


def test_a_skill_is_run_in_one_call_and_what_cannot_be_done_changes_nothing() -> None:
    workshop = Workshop(count=1)
    (task,) = workshop.tasks("train")
    item = next(iter(task.data["recipes"]))
    wrong = [calling("use", item), calling("make", item), calling("get", item)]
    script = [*wrong, *list(workshop.oracle(task))[:3], calling("use", item)]
    steps, _ = play(workshop.fresh(), task, script)
    assert [step.results[0].ok for step in steps] == [False] * 3 + [True] * 4
    first, second = task.data["recipes"][item]
    assert shown(steps[3]) == f"held: {first}. {item} lacks {second}."
    assert shown(steps[4]) == f"held: {first} {second}. Fits: {item}."
    assert play(workshop.fresh(), task, [Action("", answer="no")] * 8)[1].reward == 0.0
