"""Drills can be answered from what they show, and from nothing of any environment."""

from tests.fakes import byte_tokenizer
from turnwise.synthesis.drills import COPY_LENGTH, STATEMENTS, DrillMaker


def test_copying_repeats() -> None:
    drill = DrillMaker(byte_tokenizer(), 0).copying()
    assert len(drill.ids) == COPY_LENGTH
    period = drill.known.index(True) - 1
    for index, known in enumerate(drill.known):
        if known:
            assert drill.ids[index] == drill.ids[index - period]


def test_every_told_value_stands_on_a_card() -> None:
    tokenizer = byte_tokenizer()
    for seed in range(20):
        drill = DrillMaker(tokenizer, seed).look_up(3)
        text = tokenizer.decode(drill.ids)
        cards, _, statements = text.partition("</information>\n")
        lines = statements.replace("\n<", " <").splitlines()
        told = [line for line in lines if line]
        assert len(told) >= STATEMENTS
        values = [
            line.partition("> ")[2].partition("</")[0] if "</" in line else line.rpartition(": ")[2]
            for line in told
        ]
        assert all(value and value in cards for value in values)


def test_drills_repeat_with_the_seed() -> None:
    tokenizer = byte_tokenizer()
    assert DrillMaker(tokenizer, 3).look_up(2) == DrillMaker(tokenizer, 3).look_up(2)
    assert DrillMaker(tokenizer, 3).look_up(2) != DrillMaker(tokenizer, 4).look_up(2)
