"""BFCL's questions: what is read, and which calls are accepted."""

from pathlib import Path
from typing import Any

import pytest

from environment_contract import keeps_its_word
from environment_playing import judged, write
from turnwise.errors import DataError
from turnwise.types import Action, ToolCall
from turnwise_environments.choosing import all_tasks
from turnwise_environments.function_calling.bfcl import LeaderboardFile, is_accepted
from turnwise_environments.function_calling.recorded import RecordedCalls

QUESTION: dict[str, Any] = {
    "id": "parallel_0",
    "question": [[{"role": "user", "content": "Play a song of Ann and one of Bob."}]],
    "function": [{"name": "play.song", "parameters": {"type": "dict", "properties": {}}}],
}
ANSWER: dict[str, Any] = {
    "id": "parallel_0",
    "ground_truth": [
        {"play.song": {"artist": ["Ann B.", "Ann"], "minutes": [20], "loud": ["", True]}},
        {"play.song": {"artist": ["Bob"], "minutes": [1.5], "way": [{"from": ["a", "b"]}, ""]}},
    ],
}


def read(folder: Path, questions: list[Any], answers: list[Any]) -> RecordedCalls:
    file, key = (
        write(folder / f"{name}.jsonl", *rows)
        for name, rows in (("questions", questions), ("answers", answers))
    )
    json_lines = Path(file).rename(folder / "questions.json")  # as BFCL names them
    return RecordedCalls(LeaderboardFile(str(json_lines), answers=key))


def test_a_question_becomes_a_task(tmp_path: Path) -> None:
    second = {**QUESTION, "id": "parallel_1", "question": QUESTION["question"] * 2}
    third = {**QUESTION, "id": "parallel_2"}
    environment = read(tmp_path, [QUESTION, second, third], [ANSWER, {"id": "parallel_2"}])
    (task,) = all_tasks(environment)
    assert task.prompt.startswith('Tools:\n{"name": "play.song"')
    assert task.prompt.endswith("\n\n<user> Play a song of Ann and one of Bob. </user>")
    keeps_its_word(environment, most=1)
    calls = (
        '{"name": "play.song", "parameters": {"minutes": 1.5, "artist": "bob"}}'
        '{"name": "play.song", "parameters": {"minutes": 20, "artist": "ANN", "loud": true}}'
    )
    for text, right in ((calls, True), (calls.replace("20", "21"), False)):
        action = Action(text, calls=(ToolCall("tool_call", {"calls": text}),))
        assert judged(environment, task, action).success is right
    told = environment.task_set.warnings
    assert "1 records were left out: it has several turns" in told
    assert any("line 3: the file of answers has none for 'parallel_2'" in one for one in told)
    assert any("line 2: 'ground_truth' must be there, a list" in one for one in told)


ACCEPTED = [
    {"f": {"x": [1, 2.5], "y": ["", True], "z": [["a, b", "C"], ""], "o": [{"k": [3]}, ""]}}
]


@pytest.mark.parametrize(
    ("arguments", "right"),
    [
        ({"x": 1}, True),
        ({"x": 2.5, "y": True, "z": ["A b", "c"], "o": {"k": 3}}, True),
        ({}, False),
        ({"x": True}, False),
        ({"x": "1"}, False),
        ({"x": 1, "y": 1}, False),
        ({"x": 1, "z": ["C", "a, b"]}, False),
        ({"x": 1, "o": {}}, False),
        ({"x": 1, "more": 1}, False),
    ],
)
def test_values_are_compared(arguments: dict[str, Any], right: bool) -> None:
    assert is_accepted([ToolCall("f", arguments)], ACCEPTED) is right
    assert not is_accepted([ToolCall("g", arguments)], ACCEPTED)
    assert not is_accepted([ToolCall("f", arguments)] * 2, ACCEPTED)


def test_a_call_takes_no_place_that_another_one_needs() -> None:
    accepted = [{"f": {"x": [1], "y": ["", 2]}}, {"f": {"x": [1], "y": ["", 3]}}]
    calls = [ToolCall("f", {"x": 1}), ToolCall("f", {"x": 1, "y": 2})]
    assert is_accepted(calls, accepted)
    assert not is_accepted(calls[1:] * 2, accepted)


BROKEN = {
    "'question' and 'function' must be there": ({**QUESTION, "function": None}, ANSWER),
    "a question is messages, a function has": ({**QUESTION, "question": [["Hello"]]}, ANSWER),
    "a function has a name": ({**QUESTION, "function": [1]}, ANSWER),
    "its answer calls 'play.song', which 'function' lacks": ({**QUESTION, "function": []}, ANSWER),
    "an answer is {tool: values}": (QUESTION, {**ANSWER, "ground_truth": [{"f": ["x"]}]}),
    "no calls fit its answer": (QUESTION, {**ANSWER, "ground_truth": [{"play.song": {"x": []}}]}),
}


@pytest.mark.parametrize("message", BROKEN)
def test_broken_records_are_named(tmp_path: Path, message: str) -> None:
    question, answer = BROKEN[message]
    with pytest.raises(DataError) as error:
        read(tmp_path, [question], [answer])
    assert message in str(error.value)
