r"""A checker of proofs in propositional logic, line by line: the strict end of verification.

A proof is lines of a number, a formula and a reason; the numbers count from 1, and a semicolon ends
a line as well:

    1. p -> q        premise
    2. ~q            premise
    3. p             assume
    4. q             ->e 1 3
    5. false         ~e 4 2
    6. ~p            ~i 3 5

| rule | cites | gives |
|---|---|---|
| `copy` | A | A |
| `&i` | A, B | A & B |
| `&e` | A & B | A, or B |
| `\|i` | A | A \| B, or B \| A |
| `\|e` | A \| B, A assumed, C from it, B assumed, C from it | C |
| `->i` | A assumed, B from it | A -> B |
| `->e` | A -> B, A | B |
| `~i` | A assumed, false from it | ~A |
| `~e` | A, ~A | false |
| `~~e` | ~~A | A |
| `false-e` | false | anything |

It is natural deduction as in Lemmon 1965 (Beginning Logic, chapter 1): the checker keeps, for each
line, the assumptions that it stands on; a rule that discharges one takes it away. A proof holds if
its last line is the conclusion and stands on premises alone. Nothing is searched for, so a line
that does not follow by its rule from the lines that it cites is wrong, true or not.

Formulas: names in small letters, `false`, `~ & | ->` in this order of binding, `->` to the right.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from turnwise.rewards.measuring import PartError
from turnwise.rewards.parts import reward_part
from turnwise.types import Trajectory

MAX_LINES, MAX_CHARACTERS = 200, 200
"""Longest proof in lines, and longest formula in characters."""
FALSE = ("false",)
Formula = tuple[Any, ...]
"""("p",), ("~", A), or (operator, A, B)."""
_BINDING = {"->": 1, "|": 2, "&": 3}
_TOKEN = re.compile(r"\s*(->|[~&|()]|[a-z][a-z0-9_]*)")
_LINE = re.compile(r"\s*(\d{1,4})[.)]?\s+(.+?)\s+(premise|assume|\S+(?:\s+\d{1,4})+)\s*")


class ProofError(Exception):
    """A proof does not hold; the text says which line is wrong, and why."""


@dataclass(frozen=True)
class Line:
    """A checked line. Example: Line(("p",), frozenset({1}), "premise")."""

    formula: Formula
    stands_on: frozenset[int]
    """The numbers of the premises and assumptions that it depends on."""
    reason: str


@reward_part("proof", 0, 1)
def proof(trajectory: Trajectory) -> float:
    """1 where the answer proves `secret["conclusion"]` from `secret["premises"]`, else 0."""
    secret = trajectory.task.secret
    try:
        premises = [parse(text) for text in secret["premises"]]
        conclusion = parse(secret["conclusion"])
    except (KeyError, TypeError, ProofError) as error:
        raise PartError(f"the task's secret has no `premises` and `conclusion`: {error}") from None
    try:
        check(trajectory.answer or "", premises, conclusion)
    except ProofError:
        return 0.0
    return 1.0


def check(text: str, premises: Sequence[Formula], conclusion: Formula) -> list[Line]:
    """The checked lines of a proof. Raises ProofError where it does not hold."""
    lines, error = sound_lines(text, premises)
    if error:
        raise ProofError(error)
    last = lines[-1]
    open_lines = [one for one in last.stands_on if lines[one - 1].reason == "assume"]
    if last.formula != conclusion or open_lines:
        why = f"stands on the assumptions {sorted(open_lines)}" if open_lines else "is another one"
        raise ProofError(f"the last line is not the conclusion: it {why}")
    return lines


def sound_lines(text: str, premises: Sequence[Formula]) -> tuple[list[Line], str]:
    """The lines of a proof up to the first wrong one, and why that is wrong; "" where none is."""
    rows, lines = rows_of(text), list[Line]()
    if not 0 < len(rows) <= MAX_LINES:
        return lines, f"a proof has 1 to {MAX_LINES} lines, not {len(rows)}"
    for number, row in enumerate(rows, start=1):
        try:
            lines.append(_checked(row, number, lines, premises))
        except ProofError as error:
            return lines, f"line {number}: {error}"
    return lines, ""


def rows_of(text: str) -> list[str]:
    """The lines of a proof as they are written, without empty ones.

    >>> rows_of("1. p premise; 2. p copy 1")
    ['1. p premise', '2. p copy 1']
    """
    return [" ".join(row.split()) for row in text.replace(";", "\n").splitlines() if row.strip()]


def parse(text: str) -> Formula:
    """The formula that a text is. Raises ProofError for anything else.

    >>> parse("p -> ~(q & r)")
    ('->', ('p',), ('~', ('&', ('q',), ('r',))))
    """
    tokens = _TOKEN.findall(text)
    if len(text) > MAX_CHARACTERS or "".join(tokens) != "".join(text.split()):
        raise ProofError(f"{text[:40]!r} is no formula")
    formula, rest = _formula(tokens, 0)
    if rest:
        raise ProofError(f"{rest[0]!r} is left over in {text[:40]!r}")
    return formula


def written(formula: Formula, binding: int = 0) -> str:
    """A formula as `parse` reads it, in parentheses only where it stands beside an operator that
    binds at least so strongly.

    >>> written(parse("(p -> q) -> ~(q & r)"))
    '(p -> q) -> ~(q & r)'
    """
    operator, *parts = formula
    if not parts:
        return str(operator)
    if operator == "~":
        return "~" + written(parts[0], len(_BINDING) + 1)
    own = _BINDING[operator]
    left, right = (own + 1, own) if operator == "->" else (own, own + 1)
    text = f"{written(parts[0], left)} {operator} {written(parts[1], right)}"
    return f"({text})" if own < binding else text


def _formula(tokens: list[str], least: int) -> tuple[Formula, list[str]]:
    """A formula whose operators bind at least so strongly, and the tokens behind it."""
    if not tokens:
        raise ProofError("a formula ends too early")
    first, rest = tokens[0], tokens[1:]
    if first == "~":
        inner, rest = _formula(rest, len(_BINDING) + 1)
        left: Formula = ("~", inner)
    elif first == "(":
        left, rest = _formula(rest, 0)
        if rest[:1] != [")"]:
            raise ProofError("a parenthesis is not closed")
        rest = rest[1:]
    elif first[0].isalpha():
        left = (first,)
    else:
        raise ProofError(f"{first!r} is no formula")
    while rest and _BINDING.get(rest[0], -1) >= least:
        operator = rest[0]
        own = _BINDING[operator]
        right, rest = _formula(rest[1:], own if operator == "->" else own + 1)
        left = (operator, left, right)
    return left, rest


def _checked(row: str, number: int, lines: Sequence[Line], premises: Sequence[Formula]) -> Line:
    found = _LINE.fullmatch(row) if len(row) <= 2 * MAX_CHARACTERS else None
    if found is None or int(found[1]) != number:
        raise ProofError(f"write its number, {number}, a formula, and a rule with the lines cited")
    formula, (name, *words) = parse(found[2]), found[3].split()
    if name in ("premise", "assume"):
        if name == "premise" and formula not in premises:
            raise ProofError("it is not among the premises")
        return Line(formula, frozenset({number}), name)
    cited = [int(word) for word in words]
    rule = RULES.get(name)
    if rule is None or len(cited) != rule.cites or not all(1 <= one < number for one in cited):
        raise ProofError(f"{found[3]!r} is no rule with as many lines before this one")
    if not rule.follows(formula, *(lines[one - 1].formula for one in cited)):
        raise ProofError(f"it does not follow by {found[3]}")
    stands_on: frozenset[int] = frozenset()
    assumed = set(rule.discharges.values())
    for place in set(range(rule.cites)) - assumed:
        away = {cited[rule.discharges[place]]} if place in rule.discharges else set()
        stands_on |= lines[cited[place] - 1].stands_on - away
    for place in assumed:
        if lines[cited[place] - 1].reason != "assume":
            raise ProofError(f"line {cited[place]} is not an assumption")
    return Line(formula, stands_on, name)


@dataclass(frozen=True)
class Rule:
    """A rule of inference. Example: RULES["&i"]."""

    cites: int
    follows: Callable[..., bool]
    """Whether a formula follows from those of the cited lines."""
    discharges: Mapping[int, int] = field(default_factory=dict)
    """Assumptions that the result no longer stands on: the place of a derived line among the cited
    ones -> that of its assumption."""


RULES: Mapping[str, Rule] = {
    "copy": Rule(1, lambda goal, one: goal == one),
    "&i": Rule(2, lambda goal, one, other: goal == ("&", one, other)),
    "&e": Rule(1, lambda goal, both: both[0] == "&" and goal in both[1:]),
    "|i": Rule(1, lambda goal, one: goal[0] == "|" and one in goal[1:]),
    "|e": Rule(
        5,
        lambda goal, either, first, one, second, other: (
            either == ("|", first, second) and one == other == goal
        ),
        {2: 1, 4: 3},
    ),
    "->i": Rule(2, lambda goal, assumed, found: goal == ("->", assumed, found), {1: 0}),
    "->e": Rule(2, lambda goal, rule, one: rule == ("->", one, goal)),
    "~i": Rule(2, lambda goal, assumed, found: found == FALSE and goal == ("~", assumed), {1: 0}),
    "~e": Rule(2, lambda goal, one, other: goal == FALSE and other == ("~", one)),
    "~~e": Rule(1, lambda goal, one: one == ("~", ("~", goal))),
    "false-e": Rule(1, lambda goal, one: one == FALSE),
}
