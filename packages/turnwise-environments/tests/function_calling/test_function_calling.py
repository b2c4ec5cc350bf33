"""Function calling: the oracle, trivial and broken policies, state, and what the agent is told."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from environment_playing import (
    answered,
    judged,
    played,
    prototype,
    reward,
    said,
    steps_of,
    verdict_of,
)
from turnwise.tokens import Source
from turnwise.types import Action, Task, ToolCall
from turnwise_environments.choosing import all_tasks, spread
from turnwise_environments.function_calling.applications import application_tools, signature
from turnwise_environments.function_calling.environment import MAX_CALLS, FunctionCalling
from turnwise_environments.measurement import played_all, random_script
from turnwise_environments.rewards.toolrl import read_calls, write_calls

made = prototype("function_calling", count=200)


def calling(text: str | ToolCall) -> Action:
    calls = write_calls([text]) if isinstance(text, ToolCall) else text
    return Action("", calls=(ToolCall("tool_call", {"calls": calls}),))


@pytest.mark.long
def test_what_the_oracle_calls_is_what_was_expected(made: FunctionCalling) -> None:
    tasks = spread(all_tasks(made), 300)
    for play in played_all(made, tasks, [made.oracle(task) for task in tasks]):
        assert verdict_of(play).parts["toolrl_correct"] == 3.0
        assert not any("Error" in seen for seen in play.trajectory.observed)


@pytest.mark.slow
def test_trivial_policies(made: FunctionCalling) -> None:
    """Who does nothing, in any words, fails every task; the random policy's rate is declared."""
    tasks = all_tasks(made)
    for task in tasks:
        assert task.data["state"] != task.secret["state"]
        shown = " ".join(task.data["requests"])
        assert not any(answer in shown for answer in task.secret["answers"] if answer)
    for words in ("done", "", "yes " * 1000):
        said = [answered(words)] * 3
        for task in tasks[:20]:
            assert reward(made, task, *said[: task.info["requests"]]) == 0.0
    assert reward(made, tasks[0]) == 0.0
    whole = FunctionCalling()
    lucky = sum(reward(whole, task, *random_script(whole, task)) for task in whole.tasks("heldout"))
    assert lucky / 1000 == pytest.approx(whole.spec.reference_scores["random"], abs=1e-9)


@pytest.mark.long
def test_no_change_can_be_left_out_altered_or_added_and_looking_is_free(
    made: FunctionCalling,
) -> None:
    tasks = [task for task in made.tasks("train") if task.info["calls"] > 2][:25]
    for task in tasks:
        script = list(made.oracle(task))
        for place, action in enumerate(script):
            without = [*script[:place], *script[place + 1 :]]
            if action.answer is None:
                calls = read_calls(str(action.calls[0].arguments["calls"]))
                changes = any(not re.match("find|list|read", call.name) for call in calls)
                assert reward(made, task, *without) == float(not changes)
                altered = [*script[:place], calling(off_by_one(calls)), *script[place + 1 :]]
                assert (reward(made, task, *altered) == 1.0) == (
                    off_by_one(calls) == write_calls(calls)
                )
            else:
                assert reward(made, task, *without) == 0.0
        undone = ToolCall("add_event", {"title": "a trap", "day": "mon", "hour": 9})
        if "add_event" in task.data["tools"]:
            assert reward(made, task, calling(undone), *script) == 0.0
        reads = [name for name in task.data["tools"] if name == "list_day"]
        extra = [calling(ToolCall(name, {"day": "mon"})) for name in reads]
        assert reward(made, task, *extra, *script) == 1.0


def off_by_one(calls: Sequence[ToolCall]) -> str:
    """The calls with one less for each number (or one more where that is too little)."""

    def other(value: Any) -> Any:
        return value + (-1 if value > 12 else 1) if isinstance(value, int) else value

    changed = [{key: other(value) for key, value in call.arguments.items()} for call in calls]
    return write_calls([ToolCall(call.name, new) for call, new in zip(calls, changed, strict=True)])


def test_what_is_asked_for_must_be_told(made: FunctionCalling) -> None:
    task = next(task for task in made.tasks("train") if task.secret["answers"][-1])
    *before, last = made.oracle(task)
    wrong = ["done", "", "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22", task.prompt]
    for answer in wrong:
        assert reward(made, task, *before, answered(answer)) == 0.0
    assert reward(made, task, *before, last) == 1.0


def test_the_user_goes_on_when_a_request_is_answered(made: FunctionCalling) -> None:
    task = next(task for task in made.tasks("train") if task.info["requests"] == 3)
    play = played(made, task, answered("a"), answered("b"), answered("c"))
    assert list(play.trajectory.observed) == task.data["requests"][1:]
    assert steps_of(play)[0].observation.source == Source.USER
    assert task.prompt.endswith(task.data["requests"][0])
    assert task.data["requests"][1] not in task.prompt


def test_prompts_name_the_tools(made: FunctionCalling) -> None:
    for task in made.tasks("train")[:50]:
        assert all(
            signature(application_tools()[name]) in task.prompt for name in task.data["tools"]
        )
        needed = {
            call.name for turns in task.secret["calls"] for t in turns for call in read_calls(t)
        }
        assert needed <= set(task.data["tools"]) <= application_tools().keys()


BAD = {
    "move it": "call 1 is not JSON: Expecting value; write",
    '{"name": "set_mode"}': "call 1 is not an object with name and parameters",
    '{"name": "set_mode", "parameters": {"room": "hall", "mode": "hot"}}': "'off', 'eco' or 'heat'",
    '{"name": "set_degrees", "parameters": {"room": "hall", "degrees": "20"}}': "valid integer",
    '{"name": "set_degrees", "parameters": {"room": "hall", "degrees": true}}': "valid integer",
    '{"name": "set_degrees", "parameters": {"room": "hall", "degrees": 99}}': "5 to 30, not 99",
    '{"name": "set_degrees", "parameters": {"room": "moon", "degrees": 20}}': "rooms: attic, hall",
    '{"name": "find_event", "parameters": {"title": "gym"}}': "there is no tool 'find_event'",
    '{"name": "cancel_event", "parameters": {"title": "gym"}}': "there is no event 'gym'",
    '{"name": "tool_call", "parameters": {}}': "there is no tool 'tool_call'; tools: read_room",
    '{"name": "__init__", "parameters": {}}': "there is no tool '__init__'",
}


@pytest.mark.parametrize("calls", BAD)
async def test_bad_calls_are_told_and_change_nothing(made: FunctionCalling, calls: str) -> None:
    state = {"calendar": {}, "cabinet": {}, "heating": {"hall": [20, "heat"], "attic": [18, "eco"]}}
    tools = ["read_room", "set_degrees", "set_mode", "cancel_event"]
    task = Task("t", "", data={"state": state, "tools": tools, "requests": ["x"]})
    environment = made.fresh()
    await environment.reset(task, 0)
    before = environment.snapshot()
    step = await environment.step(calling(calls))
    assert said(step).startswith("Error: ")
    assert BAD[calls] in said(step)
    assert not step.done
    assert environment.snapshot() == before
    good = '{"name": "set_mode", "parameters": {"room": "hall", "mode": "off"}}'
    if calls.startswith("{") and "is not an object" not in BAD[calls]:
        mixed = await environment.step(calling(f"{calls}\n{good}"))
        assert said(mixed).splitlines()[-1] == "set"


def test_too_many_calls_and_another_tool(made: FunctionCalling) -> None:
    wrong = (
        calling('{"name": "a", "parameters": {}}\n' * 17),
        Action("", calls=(ToolCall("set_mode", {}),)),
    )
    many, other = steps_of(played(made, made.tasks("train")[0], *wrong))
    assert f"make {MAX_CALLS} at most" in said(many)
    assert "tools: tool_call" in said(other)


def test_toolrls_reward(made: FunctionCalling) -> None:
    shaped = FunctionCalling(count=20, max_requests=1)
    task = next(task for task in shaped.tasks("train") if task.info["calls"] == 1)
    call, last = shaped.oracle(task)
    written = f"<think>x</think><tool_call>{call.calls[0].arguments['calls']}</tool_call>"
    formed = [
        replace(call, text=written),
        replace(last, text=f"<think>x</think><answer>{last.answer}</answer>"),
    ]

    def toolrl(*actions: Action) -> tuple[float, float]:
        parts = judged(shaped, task, *actions).parts
        return parts["toolrl_format"], parts["toolrl_correct"]

    assert toolrl(*formed) == (1.0, 3.0)
    assert toolrl(call, last) == (0.0, 3.0)
    assert toolrl(formed[1]) == (1.0, -3.0)
    assert toolrl(calling("nonsense")) == (0.0, -3.0)


def test_some_kinds_of_request_only() -> None:
    few = FunctionCalling(count=40, max_requests=2, tools=1, kinds=["set_degrees", "add_event"])
    for task in all_tasks(few):
        texts = [text for turns in task.secret["calls"] for text in turns]
        names = {call.name for text in texts for call in read_calls(text)}
        assert names <= {"set_degrees", "add_event"}
        assert set(task.data["tools"]) == names  # no more than it needs
