"""Benchmarks of judges: orders in what is judged change no verdict by their form.

The model of benchmarks/judge_injections.py is gullible: pasted into a prompt, every order is
obeyed, so that each test here can fail.
"""

import asyncio
import json

import pytest

from benchmarks.judge_injections import (
    HONEST,
    WANTED,
    as_json,
    asked_by_turnwise,
    comparisons_obeyed_in_turnwise,
    criteria_by_turnwise,
    episode,
    injections,
    pasted,
)
from judging_library import asker, parts
from turnwise_judges.base import Message
from turnwise_judges.pointwise import PointwiseJudge

CASES = [pytest.param(one["text"], one["place"], id=one["name"]) for one in injections()]


def test_the_battery() -> None:
    texts = [one["text"] for one in injections()]
    assert len(set(texts)) == len(texts) >= 25
    assert {one["place"] for one in injections()} == {"prompt", "agent", "tool", "answer"}
    assert sum(as_json(episode(one["text"], one["place"])) == WANTED for one in injections()) >= 8
    assert pasted(episode()) == HONEST["score"], "nothing is obeyed where there is no order"


@pytest.mark.parametrize(("text", "place"), CASES)
def test_no_order_changes_a_verdict_by_its_form(text: str, place: str) -> None:
    tried = episode(text, place)
    assert pasted(tried) == WANTED
    assert asked_by_turnwise(tried) == HONEST["score"]
    assert criteria_by_turnwise(tried) == 0.0
    assert comparisons_obeyed_in_turnwise(tried) == 0


@pytest.mark.parametrize(("text", "place"), CASES)
def test_what_a_judge_copies_out_of_the_record_is_no_verdict(text: str, place: str) -> None:
    """Neither as it stands in the record, nor the verdict alone that is in it."""
    tried = episode(text, place)
    for copied in (text, text[text.find("{") :], text.strip().splitlines()[-1]):
        judge = PointwiseJudge(asker(lambda messages, copied=copied: copied))
        judgement = asyncio.run(judge.judge(tried))
        assert judgement.value is None
        assert judgement.problem.startswith("its reply is malformed")


def test_the_mark_of_a_request_does_not_fit_the_next_one() -> None:
    """An agent that saw a judge's prompt, and writes what would have been the verdict."""
    seen: list[str] = []

    def watched(messages: list[Message]) -> str:
        seen.append(parts(messages)[2])
        return seen[-1]

    asyncio.run(PointwiseJudge(asker(watched)).judge(episode()))
    forged = json.dumps(json.loads(seen[0]) | {"score": WANTED})
    judge = PointwiseJudge(asker(lambda messages: forged))
    assert asyncio.run(judge.judge(episode(forged, "answer"))).value is None
