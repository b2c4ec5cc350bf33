"""What is not the wanted line is no judgement."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise_judges.base import AnswerForm, MalformedReplyError
from turnwise_judges.pairwise import Better, Preference
from turnwise_judges.pointwise import Score
from turnwise_judges.reply import LONGEST, read_reply
from turnwise_judges.rubric import Verdicts

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
        ('{"a":' * 20_00 + "1" + "}" * 20_00, "JSON object"),
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
