"""The validator: whether a question needs all that it says, and all searches on its way.

Beside what `way.py` refuses (several answers, a search that does not find), a question is refused
that can be guessed, that has a shortcut, or a part of which may be dropped.
"""

from collections.abc import Iterator
from dataclasses import replace

from turnwise.environments.search.chains import TRIVIAL, Candidate
from turnwise.environments.search.tasks import is_guessable
from turnwise_synthesis.items import Refused
from turnwise_synthesis.webshaper.knowledge import Knowledge
from turnwise_synthesis.webshaper.projections import (
    Formula,
    Intersection,
    Projection,
    Union,
    constants,
    members,
    nodes,
)
from turnwise_synthesis.webshaper.way import Node
from turnwise_synthesis.webshaper.wording import question_of

GUESSABLE, SHORTCUT, REDUNDANT = "guessable", "shortcut", "redundant"


def validate(node: Node, knowledge: Knowledge) -> None:
    """Raise Refused, with the reason, for a question that is not sound."""
    if is_redundant(node, knowledge):
        raise Refused(REDUNDANT)
    if guessable(node, knowledge):
        raise Refused(GUESSABLE)
    if has_shortcut(node, knowledge):
        raise Refused(SHORTCUT)


def guessable(node: Node, knowledge: Knowledge) -> bool:
    """Whether the question holds its answer or a part of it, or its answer is the most frequent
    one, or a name on the way belongs to nearly everything."""
    given = tuple(constants(node.formula))
    pairs = tuple((search.query, search.found) for search in node.way)
    candidate = Candidate("", question_of(node.formula), given, pairs, (), ())
    last = [one.relation for one in nodes(node.formula) if isinstance(one, Projection)]
    names = {name.lower() for name in (*given, *(one.name for one in node.all()))}
    return (
        is_guessable(candidate)
        or node.name == knowledge.most_frequent(last[0])
        or not TRIVIAL.isdisjoint(names)
    )


def has_shortcut(node: Node, knowledge: Knowledge) -> bool:
    """Whether fewer searches than there are on the way could do: a search for a part below another
    one, or for the whole question, shows a name that is to be found after it; or a relation leads
    at once from a name in such a part to the answer."""
    if not node.below:
        return False
    whole = (question_of(node.formula), " ".join(constants(node.formula)))
    if any(node.name in knowledge.stated(query) for query in whole):
        return True
    return any(_shows_more(one, {node.name}, knowledge) for one in node.below)


def _shows_more(node: Node, later: set[str], knowledge: Knowledge) -> bool:
    """Whether the searches of a node show a name that is to be found later."""
    shown = (knowledge.stated(search.query) for search in node.searches)
    if any(not later.isdisjoint(names) for names in shown):
        return True
    if any(not later.isdisjoint(_linked(name, knowledge)) for name in constants(node.formula)):
        return True
    return any(_shows_more(one, later | {node.name}, knowledge) for one in node.below)


def _linked(name: str, knowledge: Knowledge) -> set[str]:
    """All names to which some relation leads from a name."""
    found = (knowledge.graph.neighbours(relation, name) for relation in knowledge.relations)
    return {edge.name for edges in found for edge in edges}


def is_redundant(node: Node, knowledge: Knowledge) -> bool:
    """Whether a name occurs twice, or a part of a union or an intersection may be dropped, and what
    the union or intersection stands for stays the same."""
    names = [name.lower() for name in constants(node.formula)]
    names += [one.name.lower() for one in node.all()]
    if len(set(names)) < len(names):
        return True
    return any(_drops(one, knowledge) for one in _joined(node.formula))


def _joined(formula: Formula) -> Iterator[Formula]:
    """Unions and intersections in a formula, and the projections of unions as the unions that they
    are."""
    for one in nodes(formula):
        if isinstance(one, Projection) and isinstance(one.of, Union):
            yield Union(tuple(replace(one, of=part) for part in one.of.parts))
        elif isinstance(one, Union | Intersection):
            yield one


def _drops(formula: Formula, knowledge: Knowledge) -> bool:
    assert isinstance(formula, Union | Intersection)
    whole = members(formula, knowledge.graph)
    rests = (
        replace(formula, parts=(*formula.parts[:at], *formula.parts[at + 1 :]))
        for at in range(len(formula.parts))
    )
    return any(members(rest, knowledge.graph) == whole for rest in rests)
