"""What environments report of turns: all of it for the oracle, and nothing for what only looks like
work. Each test of a loop would pay more than once if sums were not of changes."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from environment_playing import answered, calling, judged, opened, played
from turnwise.environments.base import Environment
from turnwise.environments.derived import equipped, guarded
from turnwise.environments.turn_parts import results_of
from turnwise.types import Action, Step, Task, ToolCall, ToolResult, Trajectory, Turn
from turnwise_environments.choosing import all_tasks, spread
from turnwise_environments.measurement import played_all
from turnwise_environments.progress import changes_of, is_harm, share_of_changes
from turnwise_environments.shop.environment import BACK, BUY

EARNED = {
    "search": "gain",
    "multi_tool": "gain",
    "deep_research": "gain",
    "mathematics": "progress",
    "desk": "progress",
    "function_calling": "progress",
    "shop": "progress",
    "proofs": "progress",
    "sql": "progress",
}


FEW: dict[str, dict[str, Any]] = {
    "function_calling": {"count": 200},
    "mathematics": {"tasks": {"count": 300}},
    "proofs": {"tasks": {"count": 200}},
    "sql": {"tasks": {"count": 20}},
}
"""Options of those whose standard tasks take seconds to make."""


def made(name: str) -> Environment:
    (environment,) = opened(name, FEW.get(name, {}))
    return environment


def earning(environment: Environment, most: int = 20) -> list[Task]:
    """Some tasks in which there is something to be earned on the way."""
    tasks = [task for task in all_tasks(environment) if task.secret.get("searches", True)]
    return spread(tasks, most)


def sums(
    name: str, environment: Environment, scripts: Sequence[Sequence[Action]], tasks: Sequence[Task]
) -> list[float]:
    plays = played_all(environment, tasks, scripts)
    verdicts = [play.trajectory.verdict for play in plays]
    return [sum(one.turn_parts[EARNED[name]]) for one in verdicts if one is not None]


@pytest.mark.parametrize("name", EARNED)
def test_the_oracle_earns_all_of_it_once_and_neither_talk_nor_a_call_held_back_does(
    name: str,
) -> None:
    environment = made(name)
    tasks = earning(environment)
    oracles = [environment.oracle(task) for task in tasks]
    assert sums(name, environment, oracles, tasks) == pytest.approx([1.0] * len(tasks))
    twice = [[one for one in script for _ in range(1 + bool(one.calls))] for script in oracles]
    assert max(sums(name, environment, twice, tasks)) <= 1.0 + 1e-9
    talk = [[answered(str(action)) for action in script] for script in oracles]
    assert sums(name, environment, talk, tasks) == [0.0] * len(tasks)
    dry = guarded(environment, {tool.name: "dry_run" for tool in environment.tools()})
    assert sums(name, dry, oracles, tasks) == [0.0] * len(tasks)


def test_tools_that_a_recipe_added_are_not_run_again(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from turnwise import tool\n\ncalls = []\n\n@tool\ndef order(thing: str) -> str:\n"
        '    """Order a thing."""\n    calls.append(thing)\n    return str(len(calls))\n'
    )
    environment = equipped(made("desk"), [f"{mine}:order"])
    task = earning(environment, 1)[0]
    order = calling("order", thing="tea")
    plays = [played(environment, task, order, *environment.oracle(task)) for _ in range(2)]
    contents = [results_of(play.trajectory.turns[0])[0].content for play in plays]
    assert contents == ["1", "2"]


def test_searching_again_is_a_repeat_and_no_gain_and_ablations_earn_nothing() -> None:
    environment = made("search")
    for task in earning(environment, 10):
        first, *_ = environment.oracle(task)
        verdict = judged(environment, task, first, first, answered("?"))
        gain, repeats = verdict.turn_parts["gain"], verdict.turn_parts["repeats"]
        assert gain[0] > 0
        assert gain[1:] == [0.0, 0.0]
        assert repeats == [0.0, 1.0, 0.0]

    both = Action("", calls=first.calls * 2)
    verdict = judged(environment, task, both, answered("?"))
    assert verdict.turn_parts["repeats"] == [0.5, 0.0]
    assert verdict.turn_parts["gain"][0] <= 1.0
    nothing = environment.ablations()["no_search"]
    assert not any(judged(nothing, task, *environment.oracle(task)).turn_parts["gain"])


def test_what_a_program_prints_is_no_document() -> None:
    environment = made("multi_tool")
    task = next(task for task in all_tasks(environment) if task.secret["searches"])
    text = f"[1] {environment._found(task.secret['searches'][0])[0]}"
    gains = {}
    for tool in ("search", "python"):
        turn = Turn(Action(""), Step(results=(ToolResult(ToolCall(tool, {}), text),)))
        verdict = asyncio.run(environment.verify(Trajectory(task, "g", 0, 0, turns=(turn,))))
        (gains[tool],) = verdict.turn_parts["gain"]
    assert gains["search"] > gains["python"] == 0.0


def test_a_typed_number_is_not_worked_out() -> None:
    environment = made("mathematics")
    tasks = earning(environment, 15)
    typed, guessed = [], []
    for task in tasks:
        play = played(environment, task, *environment.oracle(task))
        turns = play.trajectory.turns
        values = [result.content for turn in turns for result in results_of(turn)]
        typed.append([calling("calculator", expression=value) for value in values])
        guessed.append(
            [calling("calculator", expression=f"{value} - 0.125 + 0.125") for value in values]
        )
    assert sums("mathematics", environment, typed, tasks) == [0.0] * len(tasks)
    assert sums("mathematics", environment, guessed, tasks) == [0.0] * len(tasks)


def test_undoing_and_doing_again_earns_once() -> None:
    environment = made("desk")
    task = next(one for one in all_tasks(environment) if one.secret["call"][0] == "refuse")
    name, right = task.secret["call"]
    wrong = {**right, "rule": right["rule"] + 1}
    calls = [calling(name, **arguments) for arguments in (right, wrong, right, wrong, right)]
    verdict = judged(environment, task, *calls)
    assert verdict.turn_parts["progress"] == [1.0, -1.0, 1.0, -1.0, 1.0]
    assert verdict.turn_parts["harm"] == [0.0, 1.0, 0.0, 1.0, 0.0]


def test_every_write_at_once_earns_little() -> None:
    environment = made("desk")
    task = next(one for one in all_tasks(environment) if one.secret["call"][0] == "refuse")
    calls = [
        calling("refuse", order=int(order), rule=rule, price=data["price"])
        for order, data in task.data["state"]["orders"].items()
        for rule in [task.secret["call"][1]["rule"]]
    ]
    verdict = judged(environment, task, *calls)
    assert sum(verdict.turn_parts["progress"]) == pytest.approx(1 / len(calls))
    assert sum(verdict.turn_parts["harm"]) == len(calls) - 1


def test_questions_are_answered_once_and_only_by_what_was_asked_for() -> None:
    environment = made("function_calling")
    task = next(
        one
        for one in all_tasks(environment)
        if len(one.secret["answers"]) == 3 and None not in one.secret["answers"][:2]
    )
    first, second, third = task.secret["answers"]
    count = 3 - (third is None)
    verdict = judged(environment, task, answered(first), answered("?"), answered(third or "done"))
    assert verdict.turn_parts["answered"] == [1 / count, 0.0, (third is not None) / count]
    late = judged(environment, task, answered(second), answered(first), answered("done"))
    assert sum(late.turn_parts["answered"]) == 0.0 or first == second


def test_a_look_without_a_purchase_earns_nothing() -> None:
    environment = made("shop")
    for task in earning(environment, 10):
        *way, _ = environment.oracle(task)
        look = judged(environment, task, *way).turn_parts["progress"]
        assert sum(look) == pytest.approx(0.0)
        back = [calling("click", target=BACK), way[0]]
        loop = judged(environment, task, *way, *back, *way[1:], calling("click", target=BUY))
        assert sum(loop.turn_parts["progress"]) == pytest.approx(1.0)


CELLS = st.dictionaries(st.sampled_from("abc"), st.integers(0, 2), max_size=3)


@given(CELLS, CELLS, st.lists(CELLS, max_size=6))
def test_progress_adds_up_to_what_is_done_at_the_end(
    before: dict[str, Any], wanted: dict[str, Any], states: list[dict[str, Any]]
) -> None:
    shares = [share_of_changes(before, wanted, now) for now in states]
    assert sum(changes_of(shares)) == pytest.approx(shares[-1] if shares else 0.0)
    assert all(0 <= share <= 1 for share in shares)
    assert share_of_changes(before, wanted, wanted) == (before != wanted)
    assert share_of_changes(before, wanted, before) == 0.0
    assert not is_harm(before, wanted, wanted)
