"""Benchmarks of judges: orders in what is judged change no verdict by their form; and the study of
self-critique, its task and what its base is taught.

The model of benchmarks/judge_injections.py is gullible: pasted into a prompt, every order is
obeyed, so that each test here can fail.
"""

import asyncio
import json
import random

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
from benchmarks.self_critique_teacher import (
    KIND_OF,
    SCORES,
    TEMPLATE,
    Kinds,
    Teacher,
    scripted_answer,
    verdict_on,
)
from judging_library import asker, parts
from turnwise.config import ModelConfig
from turnwise.models.load import load_tokenizer
from turnwise_judges.base import Message
from turnwise_judges.pointwise import PointwiseJudge
from turnwise_judges.prompt import read_reply

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


@pytest.fixture(scope="module")
def teacher() -> Teacher:
    tokenizer = load_tokenizer(ModelConfig(name="tiny_search"))
    tokenizer.chat_template = TEMPLATE
    return Teacher(tokenizer)


def test_no_task_is_both_trained_on_and_held_out() -> None:
    train, heldout = (
        {task.prompt for task in Kinds().tasks(split)} for split in ("train", "heldout")
    )
    assert len(train) == 4000
    assert not train & heldout


def test_the_verifier_sees_the_first_word_and_the_rubric_the_others() -> None:
    (task, *_) = Kinds().tasks("train")
    words = {KIND_OF[word] == task.secret["kind"]: word for word in KIND_OF}
    for right, word in words.items():
        for answer, plain in ((word, 1.0), (f"{word} as you asked", 0.0)):
            verdict = verdict_on(task, answer)
            assert (verdict.success, verdict.parts) == (right, {"plain": plain})
    assert not verdict_on(task, None).success


def test_scripted_answers_are_right_as_often_as_they_are_to_be() -> None:
    stream, tasks = random.Random(0), Kinds().tasks("train")[:400]
    for share in (0.0, 0.7, 1.0):
        hits = [verdict_on(task, scripted_answer(task, stream, share)).success for task in tasks]
        assert sum(hits) / len(hits) == pytest.approx(share, abs=0.07)


def test_what_is_taught_is_read_as_the_right_score(teacher: Teacher) -> None:
    seen = set()
    for number, played in enumerate(teacher.episodes(40, "train", seed=0)):
        taught = teacher.judgement(played, seed=number)
        request = teacher.judge.request(played)
        reply = teacher.tokenizer.decode(taught.ids[taught.mask][:-1])
        score, _ = read_reply(reply, request.nonce(number), request.form)
        quality = played.verdict.success, played.verdict.parts["plain"] == 1.0
        assert score == SCORES[quality]
        assert (score > 0.5) is played.verdict.success
        assert taught.ids[~taught.mask].tolist() == teacher.model.prompt(request.messages(number))
        assert "secret" not in json.dumps(request.data)
        seen.add(quality)
    assert seen == set(SCORES)
