"""The study of self-critique: its task, and what its base is taught."""

import json
import random

import pytest

from benchmarks.self_critique import (
    KIND_OF,
    SCORES,
    TEMPLATE,
    Kinds,
    Teacher,
    scripted_answer,
    verdict_on,
)
from turnwise.config import ModelConfig
from turnwise.models.load import load_tokenizer
from turnwise_judges.prompt import read_reply


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
    for number, episode in enumerate(teacher.episodes(40, "train", seed=0)):
        taught = teacher.judgement(episode, seed=number)
        request = teacher.judge.request(episode)
        reply = teacher.tokenizer.decode(taught.ids[taught.mask][:-1])
        score, _ = read_reply(reply, request.nonce(number), request.form)
        quality = episode.verdict.success, episode.verdict.parts["plain"] == 1.0
        assert score == SCORES[quality]
        assert (score > 0.5) is episode.verdict.success
        assert taught.ids[~taught.mask].tolist() == teacher.model.prompt(request.messages(number))
        assert "secret" not in json.dumps(request.data)
        seen.add(quality)
    assert seen == set(SCORES)
