"""A library of made-up modules, classes, functions and methods, with questions about it.

Its documents, its questions and its search are those of the real environment, but every name is
drawn anew, word by word, so that no fact of it is true. The base model of `tiny` learns here what a
question asks for.
"""

import random
import re
from collections.abc import Sequence

from turnwise.environments.search.corpus import Document, module_contents, module_document
from turnwise.environments.search.definitions import Definition, Module
from turnwise.environments.search.documents import index_documents
from turnwise.environments.search.environment import SearchEnvironment
from turnwise.environments.search.tasks import build_tasks
from turnwise.types import Task

RESULT_TOKENS = 40
LONGEST_WORD = 12
LONGEST_SUMMARY = 24
"""Words."""


def vocabulary(texts: Sequence[str]) -> list[str]:
    """The words of some texts, as names are made of them: `base64` and `Error` are words."""
    found = {word for text in texts for word in re.findall(r"[A-Za-z][a-z]*[0-9]*", text)}
    return sorted(word.lower() for word in found if 1 < len(word) <= LONGEST_WORD)


def made_up_environment(words: Sequence[str], seed: int, modules: int) -> SearchEnvironment:
    """The search environment over a made-up library; all its tasks are training tasks.

    `words` are what names and sentences are made of.
    """
    documents = _Library(words, random.Random(seed)).documents(modules)
    records = build_tasks(documents, index_documents(documents))
    tasks = [
        Task(**{key: value for key, value in record.items() if key != "split"})
        for record in records
    ]
    return SearchEnvironment.over(documents, {"train": tasks, "heldout": []}, RESULT_TOKENS)


class _Library:
    def __init__(self, words: Sequence[str], stream: random.Random) -> None:
        self._words = words
        self._random = stream
        self._classes: list[str] = []

    def documents(self, modules: int) -> list[Document]:
        """Everything in so many modules, in order of names."""
        documents: dict[str, Document] = {}
        for _ in range(modules):
            module = Module(self._module_name(), self._summary(), {})
            owned = {definition.name: definition for definition in self._definitions()}
            for document in (module_document(module), *module_contents(module.name, owned)):
                documents.setdefault(document.id, document)
        return [documents[name] for name in sorted(documents)]

    def _definitions(self) -> list[Definition]:
        classes = [self._class() for _ in range(self._random.randint(1, 5))]
        return [*classes, *(self._function() for _ in range(self._random.randint(0, 5)))]

    def _class(self) -> Definition:
        name = "".join(self._word().capitalize() for _ in range(self._random.randint(1, 3)))
        known = self._classes and self._random.random() < 0.7
        base = self._random.choice(self._classes) if known else "object"
        self._classes.append(name)
        methods = {method.name: method for method in (self._function() for _ in range(4))}
        ordered = tuple(methods[key] for key in sorted(methods))
        return Definition(name, self._arguments(), self._summary(), True, (base,), ordered)

    def _function(self) -> Definition:
        words = [self._word() for _ in range(self._random.randint(1, 3))]
        name = self._random.choice(("_", "_", "")).join(words)
        return Definition(name, self._arguments(), self._summary())

    def _module_name(self) -> str:
        return ".".join(self._word() for _ in range(self._random.choice((1, 1, 1, 2, 3))))

    def _arguments(self) -> str:
        names = [self._word() for _ in range(self._random.randint(0, 4))]
        return f"({', '.join(self._random.choice((name, f'{name}=None')) for name in names)})"

    def _summary(self) -> str:
        count = self._random.randint(0, LONGEST_SUMMARY)
        return " ".join(self._word() for _ in range(count)).capitalize()

    def _word(self) -> str:
        return self._random.choice(self._words)
