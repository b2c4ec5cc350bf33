"""A user's own documents: a folder of text files, a JSON Lines file or a JSON array.

Each becomes one or more documents whose card is its title. Not here: the built-in documents
(`corpus.py`) and how results are cut (`environment.py`).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from turnwise.environments.records import read_records, read_text
from turnwise.environments.search.corpus import Document
from turnwise.errors import DataError
from turnwise.tools.bm25 import BM25Index

PASSAGE_WORDS = 100
"""Paragraphs of text files are cut into passages of so many words at most."""

TITLE_FIELDS = ("title", "name")
TEXT_FIELDS = ("text", "contents")

_PARAGRAPH = re.compile(r"\n\s*\n")


def index_documents(documents: Sequence[Document]) -> BM25Index:
    """An index in which a search for a document's name finds that document first.

    Base classes count once more, so that subclasses come before methods and whatever else names
    a class in passing.
    """
    texts = []
    for document in documents:
        bases = [target for fact, target in document.facts if fact == "base"]
        texts.append(" ".join([document.card, document.text, *bases]))
    return BM25Index(texts, [document.name for document in documents])


def read_documents(path: Path) -> list[Document]:
    """The documents of a folder (.txt, .md, at any depth), a .jsonl or a .json file, in order.

    A JSON document has `title` (or `name`) and `text` (or `contents`). Raises DataError, naming
    file and line, for what is missing, empty, or not readable.
    """
    if path.is_dir():
        documents = [document for file in _text_files(path) for document in _passages(file, path)]
    else:
        documents = [
            _document(record, where, number)
            for number, (where, record) in enumerate(read_records(path))
        ]
    if not any(document.text for document in documents):
        raise DataError(f"{path}: there are no documents with text in it")
    return documents


def _document(record: Mapping[str, Any], where: str, number: int) -> Document:
    title = _field(record, TITLE_FIELDS, where)
    text = _field(record, TEXT_FIELDS, where)
    return Document(str(number), title, "passage", title, text)


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


def _text_files(folder: Path) -> list[Path]:
    files = (path for path in folder.rglob("*") if path.suffix in (".txt", ".md"))
    return sorted(path for path in files if path.is_file())


def _passages(file: Path, folder: Path) -> Iterator[Document]:
    title = file.relative_to(folder).with_suffix("").as_posix()
    number = 0
    for paragraph in _PARAGRAPH.split(read_text(file)):
        words = paragraph.split()
        for start in range(0, len(words), PASSAGE_WORDS):
            text = " ".join(words[start : start + PASSAGE_WORDS])
            yield Document(f"{title}#{number}", title, "passage", title, text)
            number += 1
