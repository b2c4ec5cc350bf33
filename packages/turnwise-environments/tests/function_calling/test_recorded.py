"""Recorded calls: ToolRL's format, what it is compared with, and files that are broken."""

from pathlib import Path
from typing import Any

import pytest

from environment_contract import keeps_its_word
from environment_playing import judged, write
from turnwise.environments.registry import make_environment
from turnwise.errors import DataError
from turnwise.types import Action, ToolCall, Verdict
from turnwise_environments.function_calling.recorded import RecordedCalls, RecordFile

CALL = '{"name": "weather", "parameters": {"city": "Rome", "days": 2}}'
RECORD = {
    "instruction": "Help.\n**Available Tools**\n1. Name: weather\n**Steps for Each Turn**\nThink.",
    "input": "**Dialogue Records History**\n<user> Weather in Rome? </user>",
    "output": f"<think> a <tool_call> is due </think>\n<tool_call>\n{CALL}\n</tool_call>",
}
ANSWER = {
    **RECORD,
    "input": "**Dialogue Records History**\n<user> Hello! </user>",
    "output": "<think> greet </think>\n<response> Hello. </response>",
}


def calling(calls: str) -> Action:
    text = f"<think>so</think><tool_call>{calls}</tool_call>"
    return Action(text, calls=(ToolCall("tool_call", {"calls": calls}),))


def test_a_record_becomes_a_task(tmp_path: Path) -> None:
    path = write(tmp_path / "r.json", RECORD, ANSWER, RECORD)
    environment = make_environment(
        "recorded_calls", {"tasks": {"file": path, "heldout_share": 1.0}}
    )
    (task,) = environment.tasks("heldout")
    assert task.prompt == "Tools:\n1. Name: weather\n\n<user> Weather in Rome? </user>"
    assert task.secret == {"calls": CALL, "response": ""}
    assert environment.spec.reference_scores == {"noop": 0.0, "answer": 0.0, "oracle": 1.0}
    keeps_its_word(environment, most=1)


def test_calls_are_compared(tmp_path: Path) -> None:
    environment = RecordedCalls(RecordFile(write(tmp_path / "r.json", RECORD), heldout_share=0.0))
    (task,) = environment.tasks("train")
    assert (environment.tasks("heldout"), environment.oracle(task)[0].calls[0].arguments) == (
        [],
        {"calls": CALL},
    )
    right = judged(environment, task, calling(CALL))
    assert (right.reward, right.success) == (4.0, True)
    near = judged(environment, task, calling(CALL.replace("2", "3")))
    assert (near.reward, near.success) == (6 * (1 + 1 + 1) / 4 - 3 + 1, False)
    for wrong in ("Rome", "[]", '{"name": "weather"}'):
        assert judged(environment, task, calling(wrong)).reward <= -2.0
    hello = Action("<think>a</think><answer>Hello</answer>", answer="Hello")
    assert judged(environment, task, hello) == Verdict(
        -3.0, False, {"toolrl_correct": -3.0, "toolrl_format": 0.0}, "0 of 1 calls"
    )
    assert judged(environment, task).reward == -3.0


def test_records_without_calls_are_there_when_they_are_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "r.json", RECORD, ANSWER)
    environment = RecordedCalls(RecordFile(path, heldout_share=0.0, without_calls=True))
    task = next(task for task in environment.tasks("train") if not task.secret["calls"])
    assert environment.spec.reference_scores["answer"] == 0.5
    said = Action("<think>a</think><answer>Hello</answer>", answer="Hello")
    assert judged(environment, task, said).reward == 1.0
    assert judged(environment, task, *environment.oracle(task)).success
    called = judged(environment, task, calling(CALL))
    assert (called.reward, called.success) == (0.0, False)
    assert not judged(environment, task).success


BROKEN: dict[str, Any] = {
    "entry 1: 'output' must be there": [{"instruction": "", "input": ""}],
    "entry 1: there is no '**Available Tools**'": [{**RECORD, "instruction": "Help."}],
    "entry 1: there is no '**Dialogue Records History**'": [{**RECORD, "input": "Hello"}],
    "entry 1: 'output' has neither": [{**RECORD, "output": "<think>a</think>"}],
    "entry 1: 'output': call 1 is not JSON": [{**RECORD, "output": "<tool_call>x</tool_call>"}],
    "entry 1: expected a JSON object": [3],
    "no records in it; 1 records were left out: an answer is expected": [ANSWER],
}


@pytest.mark.parametrize("message", BROKEN)
def test_broken_records_are_named(tmp_path: Path, message: str) -> None:
    path = write(tmp_path / "broken.json", *BROKEN[message])
    with pytest.raises(DataError) as error:
        RecordedCalls(RecordFile(path))
    assert message in str(error.value)
    assert path in str(error.value)
