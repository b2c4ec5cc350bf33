"""Pretraining tasks can be answered from what they show, and from nothing of any environment."""

import re
from itertools import groupby
from operator import itemgetter

from tests.fakes import byte_tokenizer
from turnwise_studies.tiny.pretraining import COPY_LENGTH, STATEMENTS, PretrainingTaskMaker


def test_copying_repeats() -> None:
    example = PretrainingTaskMaker(byte_tokenizer(), 0).copying()
    assert len(example.ids) == COPY_LENGTH
    period = example.known.index(True) - 1
    for index, known in enumerate(example.known):
        if known:
            assert example.ids[index] == example.ids[index - period]


def test_every_told_value_stands_on_a_card() -> None:
    tokenizer = byte_tokenizer()
    for seed in range(20):
        example = PretrainingTaskMaker(tokenizer, seed).look_up(3)
        cards = tokenizer.decode(example.ids).partition("</information>\n")[0]
        spans = groupby(zip(example.ids, example.known, strict=True), key=itemgetter(1))
        told = [tokenizer.decode([id for id, _ in span]) for known, span in spans if known]
        assert len(told) == STATEMENTS
        values = [re.sub("</(answer|search)>", "", value).strip() for value in told]
        assert all(value and value in cards for value in values)


def test_whole_statements_have_the_tags_to_be_predicted_and_no_question() -> None:
    tokenizer = byte_tokenizer()
    statements = [("the class A\n", "Find A", "A")] * 9
    example = PretrainingTaskMaker(tokenizer, 0).example([["[1] Class A."]], statements, whole=True)
    known = [id for id, known in zip(example.ids, example.known, strict=True) if known]
    text = tokenizer.decode(known)
    assert text.count("Find A") == len(statements)
    assert "<think>" in text
    assert "the class" not in text
    assert "Question" not in tokenizer.decode(example.ids)


def test_pretraining_tasks_repeat_with_the_seed() -> None:
    tokenizer = byte_tokenizer()
    made = [PretrainingTaskMaker(tokenizer, seed).look_up(2) for seed in (3, 3, 4)]
    assert made[0] == made[1] != made[2]
