"""Data of an episode stays data: quoted in one line of ASCII, with a nonce that it cannot hold; and
what is not the wanted line is no judgement."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judging_library import episode, parts
from turnwise.types import Action, Observation, Outcome, Step, Task, Trajectory, Turn
from turnwise_judges.base import AnswerForm, MalformedReplyError
from turnwise_judges.pairwise import Better, Preference
from turnwise_judges.pointwise import Score
from turnwise_judges.prompt import LONGEST, Request, escaped, read_reply, record_of
from turnwise_judges.rubric import Verdicts

TOKENS = ["<|im_end|>", "<s>", "[INST]", "[gMASK]", "<｜User｜>", "<start_of_turn>", "</think>"]


@pytest.mark.long
@given(st.dictionaries(st.text(), st.text() | st.lists(st.text())))
def test_quoting_is_one_line_of_printable_ascii_that_reads_back(value: object) -> None:
    line = escaped(value)
    assert json.loads(line) == value
    assert re.fullmatch(r"[ -~]*", line)
    assert "<" not in line


@pytest.mark.parametrize("token", TOKENS)
def test_no_special_token_stands_in_the_data(token: str) -> None:
    assert token not in escaped({"agent": f"a{token}b"})


def request(answer: str, question: str = "How good?") -> Request[float]:
    return Request(record_of(episode(answer), 10_000), question, Score(0, 10))


def test_the_data_comes_first_and_the_question_after_it() -> None:
    asked = request("tarfile")
    system, user = asked.messages(seed=3)
    data, question, example = parts([system, user])
    assert "TarFile" in data
    assert "How good?" in question
    expected = {"nonce": asked.nonce(3), "reason": "in a few words", "score": 5.0}
    assert json.loads(example) == expected
    assert "TarFile" not in system["content"]
    assert user["content"].count(asked.nonce(3)) == 3


def test_the_nonce_depends_on_the_seed_and_on_all_that_is_asked() -> None:
    nonces = {
        request("tarfile").nonce(0),
        request("tarfile").nonce(1),
        request("zipfile").nonce(0),
        request("tarfile", "How bad?").nonce(0),
        request(request("tarfile").nonce(0)).nonce(0),
    }
    assert len(nonces) == 5
    assert request("tarfile").nonce(0) == request("tarfile").nonce(0)


def test_a_record_has_neither_the_secret_nor_the_verdict() -> None:
    record = record_of(episode("zipfile", reward=0.0), 10_000)
    assert record == {
        "task": "Which module defines TarFile?",
        "turns": [
            {
                "agent": "<search>TarFile</search>",
                "returned": "tarfile: read and write tar archives",
            },
            {"agent": "<answer>zipfile</answer>", "returned": ""},
        ],
        "answer": "zipfile",
    }


def test_a_record_says_what_ended_the_episode_and_counts_images() -> None:
    turns = (Turn(Action("look"), Step(Observation("a map", images=(b"png",)))),)
    cut = Trajectory(Task("t", "?"), "g", 0, 0, turns=turns, outcome=Outcome.TRUNCATED_TURNS)
    assert record_of(cut, 10_000) == {
        "task": "?",
        "turns": [{"agent": "look", "returned": "a map", "images": 1}],
        "answer": None,
        "ended_by": "truncated_turns",
    }


@pytest.mark.parametrize("letter", ["a", "é", "😀", '"', "<"])
def test_a_record_has_a_bounded_length_as_it_is_quoted(letter: str) -> None:
    """Letters that are quoted with twelve characters too: an agent could choose them."""
    long = episode("tarfile", returned=letter * 20_000)
    record = record_of(long, 2_000)
    assert len(escaped(record)) < 2_400
    returned = record["turns"][0]["returned"]
    assert re.fullmatch(rf"({letter}*) … \d+ characters left out … \1", returned)
    left_out = int(re.findall(r"\d+", returned)[0])
    assert returned.count(letter) - ("characters left out".count(letter)) + left_out == 20_000
    assert record["answer"] == "tarfile"
    assert record["task"] == "Which module defines TarFile?"
    assert len(escaped(record)) > 1_500


@pytest.mark.parametrize("said", ["", "a word or two of the agent, again and again"])
def test_a_record_of_many_turns_has_a_bounded_length_too(said: str) -> None:
    turns = tuple(
        Turn(Action(f"{number} {said}"), Step(Observation(said))) for number in range(2_000)
    )
    record = record_of(Trajectory(Task("t", "?"), "g", 0, 0, turns=turns), 20_000)
    assert 5_000 < len(escaped(record)) < 20_100
    first, *_, last = record["turns"]
    assert (first["agent"][0], last["agent"][:4]) == ("0", "1999")
    assert {"turns_left_out": 2_000 - len(record["turns"]) + 1} in record["turns"]


def test_long_texts_are_cut_alike_and_short_ones_not_at_all() -> None:
    record = record_of(episode("b" * 5_000, returned="a" * 3_000), 1_000)
    agent, returned = record["turns"][1]["agent"], record["turns"][0]["returned"]
    assert 100 < agent.count("b") < 260
    assert abs(agent.count("b") - returned.count("a")) < 80
    assert record["turns"][0]["agent"] == "<search>TarFile</search>"


NONCE = "00ff"
FORMS: dict[str, AnswerForm[Any]] = {
    "score": Score(0, 10),
    "better": Preference(),
    "criteria": Verdicts(["kind", "short"]),
}


def line(**values: Any) -> str:
    return json.dumps({"nonce": NONCE, "reason": "so", **values})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (line(score=7), 7.0),
        (f"  {line(score=0)}\n", 0.0),
        (line(score=9.5), 9.5),
        (line(better="second"), Better.SECOND),
        (line(criteria={"short": "no", "kind": "cannot tell"}), "both"),
    ],
)
def test_the_wanted_line(text: str, value: object) -> None:
    key = next(key for key in json.loads(text) if key in FORMS)
    found, reason = read_reply(text, NONCE, FORMS[key])
    assert found == ({"short": "no", "kind": "cannot tell"} if value == "both" else value)
    assert reason == "so"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "single line"),
        ("7", "JSON object"),
        ("Score: 7", "JSON object"),
        (f"Sure! {line(score=7)}", "JSON object"),
        (f"{line(score=7)}\n{line(score=8)}", "single line"),
        (f"```json\n{line(score=7)}\n```", "single line"),
        (f"{line(score=7)}\u2028{line(score=8)}", "single line"),
        (f"[{line(score=7)}]", "JSON object"),
        (line(score=7).replace(NONCE, "00fe"), "the mark"),
        (json.dumps({"reason": "so", "score": 7}), "the mark"),
        (json.dumps({"nonce": NONCE, "score": 7}), "reason"),
        (json.dumps({"nonce": NONCE, "reason": 3, "score": 7}), "reason"),
        (line(), "keys"),
        (line(score=7, better="first"), "keys"),
        (line(score=7).replace('"score": 7', '"score": 7, "score": 8'), "each key once"),
        (line(score=7).replace("7", "NaN"), "JSON object"),
        (line(score=7).replace("7", "1e999"), "JSON object"),
        (line(score=10.5), "between 0 and 10"),
        (line(score=-1), "between 0 and 10"),
        (line(score=True), "not a number"),
        (line(score="7"), "not a number"),
        (line(score=None), "not a number"),
        (line(score=[7]), "not a number"),
        (line(score=7).replace("7", "9" * 5000), "JSON object"),
        ('{"a":' * 2000 + "1" + "}" * 2000, "JSON object|the mark"),
        (" " * 9 + "7" * (LONGEST + 1), "too long"),
    ],
)
def test_anything_else(text: str, problem: str) -> None:
    with pytest.raises(MalformedReplyError, match=problem):
        read_reply(text, NONCE, FORMS["score"])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("better", "FIRST"),
        ("better", 1),
        ("better", ["first"]),
        ("criteria", {"kind": "yes"}),
        ("criteria", {"kind": "yes", "short": "maybe"}),
        ("criteria", {"kind": "yes", "short": ["yes"]}),
        ("criteria", {"kind": "yes", "short": "yes", "more": "yes"}),
        ("criteria", ["yes", "yes"]),
    ],
)
def test_other_words_than_the_forms(key: str, value: object) -> None:
    with pytest.raises(MalformedReplyError):
        read_reply(line(**{key: value}), NONCE, FORMS[key])


@pytest.mark.long
@given(st.text() | st.from_regex(r'\{"nonce": ?"00ff", ?"reason": ?".*", ?"score": ?.*\}'))
def test_nothing_crashes_and_scores_are_in_range(text: str) -> None:
    try:
        score, _ = read_reply(text, NONCE, Score(0, 10))
    except MalformedReplyError:
        return
    assert 0 <= score <= 10
