r"""Knowledge projections: formulas of sets of names, their executor, and their form in text.

    class.base("TarInfo")                            the base classes of the class TarInfo
    ^class.base("Mapping")                           the classes that have the base class Mapping
    ^class.module("tarfile" | "zipfile")             the classes in either module
    ^class.base("A") & ^class.module(function.module("open_archive"))

A relation is named by the kind that states it and the fact; `^` goes the other way. A projection of
a set is the union of those of its members: R(A | B) is R(A) | R(B). A file has a formula a line;
empty lines and those that begin with # are passed over. Source: WebShaper (arXiv 2507.15061,
section 3).
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from turnwise.environments.records import lines_of, read_text
from turnwise.environments.search.graph import Graph, Relation
from turnwise.errors import DataError, unknown_name


@dataclass(frozen=True)
class Constant:
    """One name."""

    name: str


@dataclass(frozen=True)
class Projection:
    """All names in a relation to a set."""

    relation: Relation
    of: "Formula"


@dataclass(frozen=True)
class Union:
    """All members of the parts."""

    parts: tuple["Formula", ...]


@dataclass(frozen=True)
class Intersection:
    """The members that the parts have in common."""

    parts: tuple["Formula", ...]


Formula = Constant | Projection | Union | Intersection


def members(formula: Formula, graph: Graph) -> frozenset[str]:
    """The names that a formula stands for."""
    if isinstance(formula, Constant):
        return frozenset([formula.name])
    if isinstance(formula, Projection):
        found = (graph.neighbours(formula.relation, name) for name in members(formula.of, graph))
        return frozenset(edge.name for edges in found for edge in edges)
    sets = [members(part, graph) for part in formula.parts]
    joined = frozenset.union if isinstance(formula, Union) else frozenset.intersection
    return joined(*sets)


def nodes(formula: Formula) -> Iterator[Formula]:
    """The formula and all in it, the outermost first."""
    yield formula
    inner = () if isinstance(formula, Constant) else _inner(formula)
    for part in inner:
        yield from nodes(part)


def constants(formula: Formula) -> list[str]:
    """The names in a formula, from left to right."""
    return [one.name for one in nodes(formula) if isinstance(one, Constant)]


def replaced(formula: Formula, name: str, by: Formula) -> Formula:
    """The formula with another one in place of a constant."""
    if isinstance(formula, Constant):
        return by if formula.name == name else formula
    if isinstance(formula, Projection):
        return replace(formula, of=replaced(formula.of, name, by))
    return replace(formula, parts=tuple(replaced(part, name, by) for part in formula.parts))


def kind_of(formula: Formula) -> str:
    """The kind of a formula's members; empty for constants alone."""
    return next((one.relation.end for one in nodes(formula) if isinstance(one, Projection)), "")


def inverse(relation: Relation) -> Relation:
    """The relation that goes the other way."""
    return replace(relation, inverse=not relation.inverse)


def relation_name(relation: Relation) -> str:
    """The relation as formulas name it. Example: "^class.base"."""
    return f"{'^' if relation.inverse else ''}{relation.subject}.{relation.fact}"


def text_of(formula: Formula) -> str:
    """The formula as text, which `parsed` reads."""
    if isinstance(formula, Constant):
        return json.dumps(formula.name, ensure_ascii=False)
    if isinstance(formula, Projection):
        return f"{relation_name(formula.relation)}({text_of(formula.of)})"
    sign = " | " if isinstance(formula, Union) else " & "
    return sign.join(
        f"({text_of(part)})" if isinstance(part, Union | Intersection) else text_of(part)
        for part in formula.parts
    )


def read_formulas(file: Path, graph: Graph, relations: Sequence[Relation]) -> list[Formula]:
    """The formulas of a file. Raises DataError, in one line that names the place, for another
    text than a formula, an unknown relation, and a projection without members."""
    found = []
    if not file.is_file():
        raise DataError(f"{file}: there is no such file")
    for where, line in lines_of(read_text(file), file):
        if not line.lstrip().startswith("#"):
            formula = parsed(line, relations, where)
            check_members(formula, graph, where)
            found.append(formula)
    if not found:
        raise DataError(f"{file}: there is no formula in it")
    return found


def check_members(formula: Formula, graph: Graph, where: str) -> None:
    """Raise DataError for a part that stands for nothing, the innermost first."""
    for one in reversed(list(nodes(formula))):
        if not members(one, graph):
            raise DataError(f"{where}: {text_of(one)} has no members: change or remove it")


MOST_BRACKETS = 50
"""More would be nested deeper than Python calls: a policy may write thousands of them."""
_TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|\^?[\w.-]+(?=\s*\()|[()|&])')


def parsed(text: str, relations: Sequence[Relation], where: str = "formula") -> Formula:
    """The formula that a text is. Raises DataError, which begins with the place, for another one.

    >>> base = Relation("base", "class", "class")
    >>> parsed('class.base("TarInfo")', [base])
    Projection(relation=Relation(...), of=Constant(name='TarInfo'))
    """
    if text.count("(") > MOST_BRACKETS:
        raise DataError(f"{where}: more than {MOST_BRACKETS} brackets are too many for a formula")
    tokens, at = [], 0
    while rest := text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            raise DataError(f"{where}: {rest[:40]!r} is no part of a formula: quote names")
        tokens.append(match[1])
        at = match.end()
    reader = _Reader(tokens, {relation_name(one): one for one in relations}, where)
    found = reader.union()
    if reader.at < len(tokens) or isinstance(found, Constant):
        raise DataError(f'{where}: {text.strip()!r:.80} is no formula: relation("name") is one')
    _check_names(found, where)
    return found


def _check_names(formula: Formula, where: str) -> None:
    """Raise DataError for a name outside of a projection: no search could find it."""
    projected = [one.of for one in nodes(formula) if isinstance(one, Projection)]
    for one in nodes(formula):
        inside = isinstance(one, Union) and any(one is of for of in projected)
        if isinstance(one, Union | Intersection) and not inside:
            for part in one.parts:
                if isinstance(part, Constant):
                    raise DataError(f"{where}: put {text_of(part)} into a relation's brackets")


@dataclass
class _Reader:
    """Reads by descent: a union of intersections of projections, names and brackets."""

    tokens: Sequence[str]
    relations: Mapping[str, Relation]
    where: str
    at: int = 0

    def union(self) -> Formula:
        return self._joined("|", self._intersection, Union)

    def _intersection(self) -> Formula:
        return self._joined("&", self._term, Intersection)

    def _joined(
        self, sign: str, read: Callable[[], Formula], kind: type[Union] | type[Intersection]
    ) -> Formula:
        parts = [read()]
        while self._next() == sign:
            self.at += 1
            parts.append(read())
        return parts[0] if len(parts) == 1 else kind(tuple(parts))

    def _term(self) -> Formula:
        token = self._next()
        self.at += 1
        if token.startswith('"'):
            try:
                return Constant(json.loads(token))
            except ValueError:
                raise DataError(f"{self.where}: {token:.80} is no name in quotes") from None
        if token == "(":
            return self._closed()
        if self._next() != "(":
            raise DataError(f"{self.where}: there is {token or 'an end'!r} where a part belongs")
        if token not in self.relations:
            raise DataError(f"{self.where}: {unknown_name('relation', token, self.relations)}")
        self.at += 1
        return Projection(self.relations[token], self._closed())

    def _closed(self) -> Formula:
        inner = self.union()
        if self._next() != ")":
            raise DataError(f"{self.where}: a bracket is not closed")
        self.at += 1
        return inner

    def _next(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""


def _inner(formula: Projection | Union | Intersection) -> Sequence[Formula]:
    return (formula.of,) if isinstance(formula, Projection) else formula.parts
