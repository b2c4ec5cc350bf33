"""Pretraining tasks on made-up cards can be answered from their lines, and ask nothing."""

import re

import pytest

from turnwise.config import ModelConfig
from turnwise.environments.search.corpus import Document, standard_library
from turnwise.models.load import load_tokenizer
from turnwise_studies.tiny.cards import STATEMENTS, Library, statements
from turnwise_studies.tiny.pretraining import PretrainingTaskMaker

CARDS = (
    Document("m.A", "A", "class", "", "", (("module", "m"), ("base", "B"))),
    Document("m.C", "C", "class", "", "", (("module", "m"), ("base", "D"))),
    Document("m.A.f", "f", "method", "", "", (("class", "A"),)),
    Document("m.A.g", "g", "method", "", "", (("class", "A"),)),
    Document("m.C.f", "f", "method", "", "", (("class", "C"),)),
)


@pytest.fixture(scope="module")
def texts() -> list[tuple[str, str]]:
    """What is told in some pretraining tasks, each with all that stands before it."""
    tokenizer = load_tokenizer(ModelConfig())
    library = Library(standard_library(), tokenizer, 0, modules=40)
    maker = PretrainingTaskMaker(tokenizer, 0)
    told = []
    for _ in range(30):
        example = library.example(maker)
        starts = [
            at for at, known in enumerate(example.known) if known and not example.known[at - 1]
        ]
        assert len(starts) == STATEMENTS
        for start in starts:
            end = next(
                (at for at, known in enumerate(example.known) if at > start and not known), None
            )
            value = tokenizer.decode(example.ids[start:end])
            told.append((tokenizer.decode(example.ids[:start]), value))
    return told


@pytest.mark.long
def test_every_told_value_stands_before_it(texts: list[tuple[str, str]]) -> None:
    for shown, told in texts:
        value = re.sub(r"</(answer|search)>", "", told).strip()
        assert value in shown


def test_no_drill_asks_a_question_or_searches(texts: list[tuple[str, str]]) -> None:
    """No search is followed by results, and nothing has the form of a task's prompt."""
    for shown, _ in texts:
        assert "Question" not in shown
        assert "?" not in shown.rpartition("</information>")[2]
        assert "<search>" not in shown.rpartition("<information>")[0]


def test_only_what_cards_state_beyond_doubt_is_asked_for() -> None:
    *fields, inverse, pairs, owners = statements(CARDS)
    of_functions, of_classes, methods, bases = fields
    assert ("", "Module of A", "m") in of_classes
    assert {asked.split()[0] for field in (of_functions, of_classes) for _, asked, _ in field} == {
        "Module"
    }
    assert ("", "Base of C", "D") in bases
    assert not [asked for _, asked, _ in methods if asked == "Class of f"]  # two classes have it
    assert ("", "Class with Base D", "C") in inverse
    assert not [asked for _, asked, _ in inverse if asked == "Class with Module m"]
    assert ("", "Class with Module m and Base D", "C") in pairs
    assert owners == [("", "Class of f and g", "A")]
