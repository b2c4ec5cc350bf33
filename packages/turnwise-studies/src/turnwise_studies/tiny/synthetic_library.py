"""A library of made-up modules, classes, functions and methods.

It has the shapes of the real documentation: how many classes a module has, how names are put
together, how long texts are. Names are real ones in a place that is not theirs, or put together
anew from real words: no fact is the real one's.
"""

import random
import re
from collections import defaultdict
from collections.abc import Sequence

from turnwise.environments.search.corpus import Document, module_contents, module_document
from turnwise.environments.search.definitions import Definition, Module

RESULT_TOKENS = 40
NO_BASE = "object"
SHARED = 0.4
"""Share of methods that are called like an earlier one."""
REAL_NAME = 0.5
"""Share of names that a real thing of that kind has."""
THEME = 0.4
"""Share of words that occurred in the same module before, so that the names in it are alike."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
"""Words as names are made of them: HTTPError has two words, base64 has two."""


def synthetic_documents(documents: Sequence[Document], seed: int, modules: int) -> list[Document]:
    """In order of names."""
    return _Library(documents, random.Random(seed)).documents(modules)


class _Library:
    def __init__(self, real: Sequence[Document], stream: random.Random) -> None:
        self._random = stream
        self._children: defaultdict[str, list[Document]] = defaultdict(list)
        self._of_kind: defaultdict[str, list[Document]] = defaultdict(list)
        for document in real:
            owner = dict(document.facts).get("module", document.id.rpartition(".")[0])
            self._children[owner].append(document)
            self._of_kind[document.kind].append(document)
        self._words = _words_by_kind(real)
        self._classes: list[str] = []
        self._methods: list[str] = []
        self._theme: defaultdict[tuple[str, int], list[str]] = defaultdict(list)

    def documents(self, modules: int) -> list[Document]:
        documents: dict[str, Document] = {}
        for _ in range(modules):
            self._theme.clear()
            shape = self._random.choice(self._of_kind["module"])
            module = Module(self._name("module"), self._reworded(shape.text), {})
            members = [child for child in self._children[shape.id] if child.kind != "module"]
            owned = {entry.name: entry for entry in map(self._definition, members)}
            for document in (module_document(module), *module_contents(module.name, owned)):
                documents.setdefault(document.id, document)
        return [documents[name] for name in sorted(documents)]

    def _definition(self, like: Document) -> Definition:
        """A made-up member of the kind of a real module's member; its shape may be another's."""
        shape = self._random.choice(self._of_kind[like.kind])
        described = self._reworded(shape.text.removeprefix(shape.name))
        if like.kind == "method":
            return Definition(self._method_name(), described, "")
        name = self._name(like.kind)
        if like.kind == "function":
            return Definition(name, described, "")
        methods = [self._definition(method) for method in self._children[shape.id]]
        unique = {method.name: method for method in methods}
        ordered = tuple(unique[key] for key in sorted(unique))
        bases = dict.fromkeys(self._base(name) for fact, name in shape.facts if fact == "base")
        self._classes.append(name)
        return Definition(name, described, "", True, tuple(bases), ordered)

    def _base(self, real: str) -> str:
        known = real != NO_BASE and self._classes
        return self._random.choice(self._classes) if known else NO_BASE

    def _method_name(self) -> str:
        if self._methods and self._random.random() < SHARED:
            return self._random.choice(self._methods)
        self._methods.append(self._name("method"))
        return self._methods[-1]

    def _name(self, kind: str) -> str:
        name = self._random.choice(self._of_kind[kind]).name
        return name if self._random.random() < REAL_NAME else self._reworded(name)

    def _reworded(self, text: str) -> str:
        """Every word by another of the same length and case."""
        return _WORD.sub(self._other_word, text)

    def _other_word(self, match: re.Match[str]) -> str:
        kind = _kind(match.group())
        if self._theme[kind] and self._random.random() < THEME:
            return self._random.choice(self._theme[kind])
        self._theme[kind].append(self._random.choice(self._words[kind] or [match.group()]))
        return self._theme[kind][-1]


def _kind(word: str) -> tuple[str, int]:
    """The way a word is written, and its length."""
    if word.isdigit():
        return "digits", len(word)
    if word.isupper() and len(word) > 1:
        return "upper", len(word)
    return ("capital" if word[0].isupper() else "lower"), len(word)


def _words_by_kind(documents: Sequence[Document]) -> dict[tuple[str, int], list[str]]:
    """Each word of a text once, each of a name as often as it is in one, since names are confused
    by them."""
    texts = {word for document in documents for word in _WORD.findall(document.text)}
    found = [*texts, *(word for document in documents for word in _WORD.findall(document.name))]
    words: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
    for word in sorted(found):
        words[_kind(word)].append(word)
    return words
