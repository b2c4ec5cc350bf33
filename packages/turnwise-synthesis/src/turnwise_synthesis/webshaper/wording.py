"""Formulas in plain English: one question, in which each part is a clause."""

from turnwise.environments.search.graph import Relation
from turnwise_synthesis.webshaper.projections import (
    Constant,
    Formula,
    Projection,
    Union,
    kind_of,
)

_CLAUSES = {
    ("module", "function", False): "defines {}",
    ("module", "class", False): "defines {}",
    ("class", "method", False): "has {}",
    ("base", "class", False): "is the base of {}",
    ("module", "function", True): "is in {}",
    ("module", "class", True): "is in {}",
    ("class", "method", True): "belongs to {}",
    ("base", "class", True): "is derived from {}",
}
"""Clauses about the names that a relation leads to, by fact, subject and direction."""


def question_of(formula: Formula) -> str:
    """The question for what a formula stands for.

    Example: "Which class both is in the module that defines the function foo and is derived from
    the class Bar?"
    """
    return f"Which {kind_of(formula)} {_clause(formula)}?"


def _clause(formula: Formula) -> str:
    if isinstance(formula, Projection):
        return _of(formula.relation).format(_phrase(formula.of, formula.relation.start))
    assert not isinstance(formula, Constant)  # the reader of formulas has seen to it
    first, last = ("either", "or") if isinstance(formula, Union) else ("both", "and")
    return f"{first} {f' {last} '.join(map(_clause, formula.parts))}"


def _phrase(formula: Formula, kind: str) -> str:
    """The things of a kind that a formula stands for."""
    if isinstance(formula, Constant):
        return f"the {kind} {formula.name}"
    if isinstance(formula, Union):
        return f"either {' or '.join(_phrase(part, kind) for part in formula.parts)}"
    return f"the {kind} that {_clause(formula)}"


def _of(relation: Relation) -> str:
    own = _CLAUSES.get((relation.fact, relation.subject, relation.inverse))
    return own or ("has the {} {{}}" if relation.inverse else "is the {} of {{}}").format(
        relation.fact
    )
