"""A user's own documents and questions: a folder of text files, JSON Lines files or JSON arrays.

Each becomes documents whose card is its title, or a question with every answer that is right.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turnwise.environments.records import read_each, read_text
from turnwise.environments.search.corpus import Document
from turnwise.environments.search.tasks import question_id
from turnwise.errors import DataError
from turnwise.rewards.answer import normalise
from turnwise.tools.bm25 import BM25Index
from turnwise.types import Task, encodable

PASSAGE_WORDS = 100
"""Paragraphs of text files are cut into passages of so many words at most."""

TITLE_FIELDS = ("title", "name")
TEXT_FIELDS = ("text", "contents")

_PARAGRAPH = re.compile(r"\n\s*\n")


def index_documents(documents: Sequence[Document]) -> BM25Index:
    """An index in which a search for a document's name finds that document first. Base classes
    count once more, so that subclasses come before methods and whatever else names a class in
    passing."""
    texts = []
    for document in documents:
        bases = [target for fact, target in document.facts if fact == "base"]
        texts.append(" ".join([document.card, document.text, *bases]))
    return BM25Index(texts, [document.name for document in documents])


def read_documents(path: Path) -> tuple[list[Document], list[str]]:
    """The documents of a folder (.txt, .md, at any depth) or a file, in order, and a sentence on
    each broken record. A record has `title` (or `name`) and `text` (or `contents`, whose first line
    is the title where there is none). Raises DataError, naming file and line, for what is missing,
    empty, or not readable."""
    told: list[str] = []
    if path.is_dir():
        texts = (one for one in path.rglob("*") if one.suffix in (".txt", ".md") and one.is_file())
        documents = [document for file in sorted(texts) for document in _passages(file, path)]
    else:
        read, told = read_each(path, _document)
        documents = [
            Document(str(number), title, "passage", title, text)
            for number, (title, text) in enumerate(read)
        ]
    if not any(document.text for document in documents):
        raise DataError(f"{path}: there are no documents with text in it")
    return documents, told


def _document(record: Mapping[str, Any], where: str) -> tuple[str, str]:
    contents = record.get("contents")
    if isinstance(contents, str) and not any(name in record for name in TITLE_FIELDS):
        title, _, text = contents.partition("\n")
        return " ".join(title.strip('" ').split()), " ".join(text.split())
    return _field(record, TITLE_FIELDS, where), _field(record, TEXT_FIELDS, where)


def _field(record: Mapping[str, Any], names: Sequence[str], where: str) -> str:
    for name in names:
        if name in record:
            if not isinstance(record[name], str):
                raise DataError(f"{where}: {name!r} must be a string, not {record[name]!r:.40}")
            return " ".join(record[name].split())
    raise DataError(
        f"{where}: there is no field {' or '.join(map(repr, names))}: a document has 'title' (or "
        f"'name') and 'text' (or 'contents'); this one has {', '.join(map(repr, record)) or 'none'}"
    )


def _passages(file: Path, folder: Path) -> Iterator[Document]:
    title = encodable(file.relative_to(folder).with_suffix("").as_posix())
    number = 0
    for paragraph in _PARAGRAPH.split(read_text(file)):
        words = paragraph.split()
        for start in range(0, len(words), PASSAGE_WORDS):
            text = " ".join(words[start : start + PASSAGE_WORDS])
            yield Document(f"{title}#{number}", title, "passage", title, text)
            number += 1


ANSWER_FIELDS = ("golden_answers", "answers", "answer")
NOT_IN_TEXT = frozenset({"yes", "no"})
"""Answers that are not expected to be found in a document."""


@dataclass(frozen=True)
class Question:
    """A question and every answer that counts as right."""

    text: str
    answers: tuple[str, ...]
    way: Mapping[str, Any] = field(default_factory=dict)
    """The searches that find the answer (`chain`) and the name that each finds (`wanted`), where
    they are known, as in built-in tasks."""

    @property
    def id(self) -> str:
        """Hash of the content: the same for questions that differ in case and punctuation only."""
        return question_id(self.text)


def read_questions(path: Path) -> tuple[list[Question], list[str]]:
    """The questions of a file whose records have `question`, and `answer` or `answers`, and a
    sentence on each broken one. An answer is a string or a list of strings. A question that occurs
    again is one question with the answers of all. Raises DataError as `read_each` does."""
    merged: dict[str, Question] = {}

    def read(record: Mapping[str, Any], where: str) -> Question:
        return Question(_question(record, where), _answers(record, where), _way(record, where))

    questions, told = read_each(path, read)
    for question in questions:
        known = merged.get(question.id, question)
        answers = tuple(dict.fromkeys((*known.answers, *question.answers)))
        merged[question.id] = Question(known.text, answers, known.way)
    if not merged:
        raise DataError(f"{path}: there are no questions in it")
    return list(merged.values()), told


def question_task(question: Question) -> Task:
    """The task of a question."""
    return Task(
        question.id, question.text, secret={"answers": list(question.answers), **question.way}
    )


def unsupported(questions: Sequence[Question], documents: Iterable[Document]) -> int:
    """Number of questions without an accepted answer, as whole words, in any document."""
    # By their first words: the documents are gone through once, however many questions there are.
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


def _question(record: Mapping[str, Any], where: str) -> str:
    question = record.get("question")
    if not isinstance(question, str) or not normalise(question):
        raise DataError(
            f"{where}: 'question' must be there, a string that is not empty: a question has "
            "'question', and 'answer' or 'answers'"
        )
    return question.strip()


def _way(record: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    if "chain" not in record:
        return {}
    chain, names = record["chain"], record.get("wanted", [])
    pairs = isinstance(chain, list) and [one for one in chain if isinstance(one, list)]
    if pairs != chain or not isinstance(names, list) or any(len(one) != 2 for one in chain):
        raise DataError(f"{where}: 'chain' must be pairs of a query and the name that it finds")
    return {"chain": chain, "wanted": names}


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
