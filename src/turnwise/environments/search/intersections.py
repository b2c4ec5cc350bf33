"""Question candidates with two conditions on a class, of which neither alone is enough.

Exactly one class over all documents meets both, and several meet either.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from turnwise.environments.search.chains import (
    BASE,
    HOPS,
    MODULE,
    TRIVIAL,
    Candidate,
    is_known,
    steps,
)
from turnwise.environments.search.graph import Edge, Graph, Relation
from turnwise.environments.search.wording import (
    describe,
    intersection_question,
    last_question,
    wanted,
    wanted_with,
)
from turnwise.seeds import derive

FEW = 3
"""Most classes that may share a method used as a condition: one search has to show them all."""

_FUNCTION = Relation("module", "function", "module")
_CLASS = Relation("class", "method", "class")
_METHODS = replace(_CLASS, inverse=True)

WAYS = 12
"""Functions, and methods, that are tried as a way to one module."""

Evidence = frozenset[int]
Find = tuple[tuple[str, str], str, Evidence]
"""((query, name to find), its description, documents that state it)."""
Condition = tuple[Relation, str]
"""MODULE or BASE, and its name. Example: (BASE, "TarInfo")."""


def intersections(graph: Graph) -> Iterator[Candidate]:
    """All intersections, in an order that depends on the documents only. A module may be named, or
    be what a chain leads to; the latter count as two or three hops."""
    for (one, two), name, evidence in _unique_pairs(graph):
        last = ((f"{two[1]} {one[1]}", name), wanted_with(one, two), evidence)
        first = one[1] if one[0] == BASE else describe((), "module", one[1])
        question = intersection_question(one[0].fact, first, two[1])
        yield _candidate("intersection", question, (one[1], two[1]), [last])
        if one[0] == MODULE:
            yield from _through_chains(graph, one[1], two[1], last)
    yield from _of_methods(graph)


def _unique_pairs(graph: Graph) -> Iterator[tuple[tuple[Condition, Condition], str, Evidence]]:
    """Two conditions, of which each is stated of several classes, and the one that states both."""
    members: dict[tuple[Condition, Condition], dict[str, Evidence]] = defaultdict(dict)
    for name in graph.names("class"):
        for (one, first), (two, second) in itertools.combinations(_conditions(graph, name), 2):
            # Of one document: two classes of one name may meet one condition each.
            evidence = first.evidence & second.evidence
            if two == BASE and evidence:
                members[(one, first.name), (two, second.name)][name] = evidence
    for pair, found in members.items():
        if len(found) == 1 and _is_shared(graph, *pair):
            name, evidence = found.popitem()
            # Nor do both hold of a class whose name is spelled in two ways, which was left out.
            if evidence == _stating(graph, pair[0]) & _stating(graph, pair[1]):
                yield pair, name, evidence


def _through_chains(graph: Graph, module: str, base: str, last: Find) -> Iterator[Candidate]:
    """Questions in which the module is that of a function, or of the class of a method."""
    for relations, start in _ways_to(graph, module):
        names: list[str] = [start]
        finds: list[Find] = []
        for relation in relations:
            edge = graph.follow(relation, names[-1])
            if edge is None or edge.name in (base, last[0][1], *names):
                break
            finds.append(((names[-1], edge.name), wanted(relation, names[-1]), edge.evidence))
            names.append(edge.name)
        if names[-1] == module and start not in (base, last[0][1]):
            phrase = describe(relations, relations[0].start, start)
            question = intersection_question("module", phrase, base)
            yield _candidate(HOPS[len(finds)], question, (start, base), [*finds, last])


def _ways_to(graph: Graph, module: str) -> Iterator[tuple[tuple[Relation, ...], str]]:
    """A few of the functions, and of the methods, that may lead to a module, chosen by hash."""
    functions = [edge.name for edge in graph.neighbours(replace(_FUNCTION, inverse=True), module)]
    classes = graph.neighbours(replace(MODULE, inverse=True), module)
    methods = [edge.name for entry in classes for edge in graph.neighbours(_METHODS, entry.name)]
    for relations, names in (((_FUNCTION,), functions), ((_CLASS, MODULE), methods)):
        ordered = sorted(set(names), key=lambda name: derive("way", module, name))
        yield from ((relations, name) for name in ordered[:WAYS])


def _candidate(
    hops: str, question: str, given: tuple[str, str], finds: Sequence[Find]
) -> Candidate:
    return Candidate(
        hops=hops,
        question=question,
        given=given,
        searches=tuple(search for search, _, _ in finds),
        wanted=tuple(described for _, described, _ in finds),
        evidence=tuple(evidence for _, _, evidence in finds),
        inverse=True,
    )


def _conditions(graph: Graph, name: str) -> list[tuple[Relation, Edge]]:
    return [
        (relation, edge)
        for relation in (MODULE, BASE)
        for edge in graph.neighbours(relation, name)
        if edge.name.lower() not in TRIVIAL and is_known(graph, relation, edge)
    ]


def _stating(graph: Graph, condition: Condition) -> Evidence:
    """All documents of classes that meet a condition."""
    relation, name = condition
    edges = graph.neighbours(replace(relation, inverse=True), name)
    return frozenset(position for edge in edges for position in edge.evidence)


def _is_shared(graph: Graph, *conditions: Condition) -> bool:
    """Whether more than one class meets each of the conditions."""
    return all(
        len(graph.neighbours(replace(relation, inverse=True), name)) > 1
        for relation, name in conditions
    )


def _of_methods(graph: Graph) -> Iterator[Candidate]:
    """Two methods that only one class has; and, as three hops, what a relation leads to from it."""
    for name in graph.names("class"):
        shared = [
            edge
            for edge in graph.neighbours(_METHODS, name)
            if 1 < len(graph.neighbours(_CLASS, edge.name)) <= FEW
        ]
        for one, two in itertools.pairwise(shared):
            if _owners(graph, one.name) & _owners(graph, two.name) == {name}:
                given = (one.name, two.name)
                both = wanted(_CLASS, " and ".join(given))
                finds: list[Find] = [
                    ((one.name, name), "", one.evidence),
                    ((two.name, name), both, two.evidence),
                ]
                yield _candidate(
                    "intersection", intersection_question("method", *given), given, finds
                )
                phrase = f"the class with the methods {one.name} and {two.name}"
                for relation, edge in steps(graph, "class", (*given, name)):
                    last = ((name, edge.name), wanted(relation, name), edge.evidence)
                    yield _candidate(
                        "three", last_question(relation, phrase), given, [*finds, last]
                    )


def _owners(graph: Graph, method: str) -> set[str]:
    return {edge.name for edge in graph.neighbours(_CLASS, method)}
