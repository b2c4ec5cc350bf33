"""A user's own questions: a JSON Lines (or JSON) file, split into train and held-out by content.

Not here: the built-in tasks (`tasks.py`).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.environments.records import read_records
from turnwise.environments.search.corpus import Document
from turnwise.environments.search.tasks import question_id
from turnwise.errors import DataError
from turnwise.rewards.answer import normalise
from turnwise.types import Task

ANSWER_FIELDS = ("answers", "answer")
NOT_IN_TEXT = frozenset({"yes", "no"})
"""Answers that are not expected to be found in a document."""


@dataclass(frozen=True)
class Question:
    """A question and every answer that counts as right."""

    text: str
    answers: tuple[str, ...]

    @property
    def id(self) -> str:
        """Hash of the content: the same for questions that differ in case and punctuation only."""
        return question_id(self.text)


def read_questions(path: Path) -> list[Question]:
    """The questions of a file whose lines have `question`, and `answer` or `answers`.

    An answer is a string or a list of strings. A question that occurs again is one question with
    the answers of all. Raises DataError, naming file and line, for what is missing or broken.
    """
    merged: dict[str, Question] = {}
    for where, record in read_records(path):
        question = Question(_text(record, where), _answers(record, where))
        known = merged.get(question.id, question)
        answers = tuple(dict.fromkeys((*known.answers, *question.answers)))
        merged[question.id] = Question(known.text, answers)
    if not merged:
        raise DataError(f"{path}: there are no questions in it")
    return list(merged.values())


def question_task(question: Question) -> Task:
    """The task of a question."""
    return Task(question.id, question.text, secret={"answers": list(question.answers)})


def unsupported(questions: Sequence[Question], documents: Iterable[Document]) -> int:
    """Number of questions without an accepted answer, as whole words, in any document."""
    wanted: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    for question in questions:
        for answer in map(_words, question.answers):
            wanted[answer[0]].add(answer)
    seen: set[tuple[str, ...]] = set()
    for document in documents:
        words = _words(f"{document.card} {document.text}")
        for start, word in enumerate(words):
            for answer in wanted.get(word, ()):
                if words[start : start + len(answer)] == answer:
                    seen.add(answer)
    return sum(
        not any(_words(answer) in seen or answer.lower() in NOT_IN_TEXT for answer in entry.answers)
        for entry in questions
    )


def _words(text: str) -> tuple[str, ...]:
    return tuple(normalise(text).split())


def _text(record: Mapping[str, Any], where: str) -> str:
    question = record.get("question")
    if not isinstance(question, str) or not normalise(question):
        raise DataError(
            f"{where}: 'question' must be there, a string that is not empty: a question has "
            "'question', and 'answer' or 'answers'"
        )
    return question.strip()


def _answers(record: Mapping[str, Any], where: str) -> tuple[str, ...]:
    for name in ANSWER_FIELDS:
        if name in record:
            value = record[name]
            answers = value if isinstance(value, list) else [value]
            if answers and all(isinstance(entry, str) and normalise(entry) for entry in answers):
                return tuple(answers)
            raise DataError(f"{where}: {name!r} must be a string or a list of strings, not empty")
    raise DataError(
        f"{where}: there is no field 'answer' or 'answers': a question has 'question' and one of "
        "them, a string or a list of strings"
    )
