"""Propositional theorems with a known proof, drawn backwards from what is to be shown.

A goal is split by a rule of natural deduction into smaller goals, so many times; what is left over
are the premises. A formula that a rule takes apart is never put together right before (the proofs
are normal, Prawitz 1965, chapter II), so that no step is a detour. A theorem is kept if its
premises can be true together, none of them can be left out, and each step and assumption is used.
No theorem of one split is in the other under other names, or with its premises in another order.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import permutations
from operator import and_
from typing import Annotated

from turnwise.environments.tasksets import SOLVED, Draft, TaskSet, drafted
from turnwise.errors import ConfigError
from turnwise.options import Options
from turnwise.ranges import Count, Range
from turnwise.seeds import derive
from turnwise.types import Task
from turnwise_environments.common import identity
from turnwise_environments.rewards.proofs import FALSE, Formula, Line, check, written

ATOMS = ("p", "q", "r", "s")
MOST_PREMISES = 5
MOST_CHARACTERS = 40
"""Longest formula of a theorem, in characters."""
Result = tuple[Formula, frozenset[Formula]]
"""A formula that was derived, and the assumptions that it stands on."""
_WORLDS = range(1 << len(ATOMS))
_EVERYWHERE = (1 << len(_WORLDS)) - 1
_ATOM_MASKS: Mapping[str, int] = {
    atom: sum(1 << world for world in _WORLDS if world >> place & 1)
    for place, atom in enumerate(ATOMS)
}
_ELIMINATIONS = ("->e", "->e", "&e", "|e", "|e", "~e")
"""Rules for any goal; what is there twice is drawn twice as often. `~e` stands for a contradiction,
which gives any goal by `~i` and `~~e`, or `false-e`."""
_INTRODUCTIONS: Mapping[str, Sequence[str]] = {
    "&": ["&i"],
    "|": ["|i"],
    "->": ["->i"] * 3,
    "~": ["~i"] * 3,
}


@dataclass(frozen=True)
class Theorem:
    """Example: Theorem((("&", ("p",), ("q",)),), ("q",), "1. p & q premise\\n2. q &e 1", 1)."""

    premises: tuple[Formula, ...]
    conclusion: Formula
    proof: str
    steps: int
    """Lines of the proof that follow by a rule."""

    @property
    def shape(self) -> str:
        """The theorem whatever its names and the order of its premises: the first text in
        alphabetical order."""
        *given, shown = map(written, (*self.premises, self.conclusion))
        texts = []
        for names in permutations(ATOMS):
            renamed = str.maketrans(dict(zip(ATOMS, names, strict=True)))
            premises = sorted(one.translate(renamed) for one in given)
            texts.append(f"{', '.join(premises)} |- {shown.translate(renamed)}")
        return min(texts)


@dataclass(frozen=True)
class _Goal:
    """A formula with the rule that gives it, and the goals that the rule cites."""

    formula: Formula
    rule: str
    cited: tuple["_Goal", ...] = ()


def draw(stream: random.Random, steps: int) -> Theorem | None:
    """A theorem whose known proof has so many steps; None where what was drawn is not kept."""
    goal = _grown(_formula(stream, stream.choice((0, 1, 1, 2))), steps, (), stream, False)
    premises = list(dict.fromkeys(_premises(goal)))
    if not _is_kept(premises, goal.formula):
        return None
    stream.shuffle(premises)
    proof = _proof(goal, premises)
    if not _is_straight(check(proof, premises, goal.formula), premises):
        return None
    return Theorem(tuple(premises), goal.formula, proof, steps)


def results(lines: Sequence[Line]) -> list[Result]:
    """The results that checked lines show by a rule."""
    return [
        (line.formula, _assumptions(line, lines))
        for line in lines
        if line.reason not in ("premise", "assume")
    ]


def _assumptions(line: Line, lines: Sequence[Line]) -> frozenset[Formula]:
    cited = [lines[number - 1] for number in line.stands_on]
    return frozenset(one.formula for one in cited if one.reason == "assume")


def _grown(
    goal: Formula, steps: int, scope: tuple[Formula, ...], stream: random.Random, major: bool
) -> _Goal:
    """A proof of the goal under the assumptions in scope. A `major` goal is one that a rule takes
    apart: it is not put together by one."""
    if steps == 0:
        return _Goal(goal, "assume" if goal in scope else "premise")
    own = [] if major else _INTRODUCTIONS.get(goal[0], [])
    rule = "~e" if goal == FALSE else stream.choice([*own, *own, *_ELIMINATIONS])
    if rule == "~e" and goal != FALSE:
        rule = "false-e" if scope and not major else "~~e"

    def sub(formula: Formula, share: int, *more: Formula, major: bool = False) -> _Goal:
        return _grown(formula, share, (*more, *scope), stream, major)

    first, second, third = _split(steps - 1, 3, stream)
    rest = first + second + third
    if rule == "&i":
        return _Goal(goal, rule, (sub(goal[1], first + third), sub(goal[2], second)))
    if rule == "|i":
        return _Goal(goal, rule, (sub(stream.choice(goal[1:]), rest),))
    if rule in ("->i", "~i"):
        shown = goal[2] if rule == "->i" else FALSE
        return _Goal(goal, rule, (_Goal(goal[1], "assume"), sub(shown, rest, goal[1])))
    if rule == "&e":
        both = [goal, _pivot(scope, stream, goal)]
        stream.shuffle(both)
        return _Goal(goal, rule, (sub(("&", *both), rest, major=True),))
    if rule == "->e":
        pivot = _pivot(scope, stream, goal)
        major_goal = sub(("->", pivot, goal), first + third, major=True)
        return _Goal(goal, rule, (major_goal, sub(pivot, second)))
    if rule == "|e":
        one = _pivot(scope, stream, goal)
        other = _pivot(scope, stream, one)
        cases = [
            part
            for case, share in ((one, second), (other, third))
            for part in (_Goal(case, "assume"), sub(goal, share, case))
        ]
        return _Goal(goal, rule, (sub(("|", one, other), first, major=True), *cases))
    if rule == "~~e":
        denied = ("~", goal)
        if rest < 2 or major:
            return _Goal(goal, rule, (sub(("~", denied), rest, major=True),))
        absurd = (_Goal(denied, "assume"), sub(FALSE, rest - 1, denied))
        return _Goal(goal, rule, (_Goal(("~", denied), "~i", absurd),))
    if rule == "~e":
        pivot = _pivot(scope, stream, goal)
        pivot = pivot[1] if pivot[0] == "~" else pivot
        against = sub(("~", pivot), second, major=True)
        return _Goal(goal, rule, (sub(pivot, first + third), against))
    return _Goal(goal, rule, (sub(FALSE, rest),))


def _split(total: int, parts: int, stream: random.Random) -> list[int]:
    counts = [0] * parts
    for _ in range(total):
        counts[stream.randrange(parts)] += 1
    return counts


def _pivot(scope: tuple[Formula, ...], stream: random.Random, goal: Formula) -> Formula:
    """A formula on the way to a goal, and not this: often one that is assumed."""
    assumed = [one for one in scope if one != goal]
    if assumed and stream.random() < 0.7:
        return stream.choice(assumed)
    while True:
        found = _formula(stream, stream.choice((0, 0, 0, 1)))
        if found != goal:
            return found


def _formula(stream: random.Random, operators: int) -> Formula:
    if operators == 0:
        return (stream.choice(ATOMS),)
    operator = stream.choice(("~", "&", "|", "->"))
    if operator == "~":
        return (operator, _formula(stream, operators - 1))
    left = stream.randrange(operators)
    one = _formula(stream, left)
    while (other := _formula(stream, operators - 1 - left)) == one:
        pass
    return (operator, one, other)


def _premises(goal: _Goal) -> list[Formula]:
    if goal.rule == "premise":
        return [goal.formula]
    return [one for cited in goal.cited for one in _premises(cited)]


def _proof(goal: _Goal, premises: Sequence[Formula]) -> str:
    rows = [f"{written(one)} premise" for one in premises]

    def number(part: _Goal, scope: Mapping[Formula, int]) -> int:
        """Write a part of the proof, and give the number of its last line."""
        if part.rule == "premise":
            return premises.index(part.formula) + 1
        if part.rule == "assume":
            return scope[part.formula]
        cited: list[int] = []
        inner = scope
        for one in part.cited:
            if one.rule == "assume" and _discharges(part, len(cited)):
                rows.append(f"{written(one.formula)} assume")
                cited.append(len(rows))
                inner = {**scope, one.formula: len(rows)}
            else:
                cited.append(number(one, inner))
                inner = scope
        rows.append(f"{written(part.formula)} {part.rule} {' '.join(map(str, cited))}")
        return len(rows)

    number(goal, {})
    return "\n".join(f"{place}. {row}" for place, row in enumerate(rows, start=1))


def _discharges(part: _Goal, place: int) -> bool:
    """Whether the rule cites an assumption at this place that it takes away."""
    return (part.rule in ("->i", "~i") and place == 0) or (part.rule == "|e" and place in (1, 3))


def _is_kept(premises: Sequence[Formula], conclusion: Formula) -> bool:
    """Whether it is a theorem that needs all of its premises, which can be true together."""
    if len(premises) > MOST_PREMISES or conclusion in premises:
        return False
    masks = [_mask(one) for one in premises]
    needless = (
        not _all_of(masks[:place] + masks[place + 1 :]) & ~_mask(conclusion)
        for place in range(len(masks))
    )
    formulas = (*premises, conclusion)
    return (
        bool(_all_of(masks))
        and not any(needless)
        and not any(map(_is_odd, formulas))
        and all(len(written(one)) <= MOST_CHARACTERS for one in formulas)
    )


def _is_straight(lines: Sequence[Line], premises: Sequence[Formula]) -> bool:
    """Whether a proof shows nothing twice, and uses all that it assumes."""
    found = results(lines)
    used = {number for line in lines if line.reason != "assume" for number in line.stands_on}
    assumed = {number for number, one in enumerate(lines, start=1) if one.reason == "assume"}
    is_given = any(formula in premises or formula in allowed for formula, allowed in found)
    return len(set(found)) == len(found) and not is_given and assumed <= used


def _is_odd(formula: Formula) -> bool:
    """Whether it says something twice: p & p, or ~~~p."""
    operator, *parts = formula
    if operator == "~" and parts[0][0] == "~" and parts[0][1][0] == "~":
        return True
    return (len(parts) == 2 and parts[0] == parts[1]) or any(map(_is_odd, parts))


def _all_of(masks: Sequence[int]) -> int:
    return reduce(and_, masks, _EVERYWHERE)


def _mask(formula: Formula) -> int:
    """The worlds in which a formula is true, a bit each."""
    operator, *parts = formula
    if not parts:
        return 0 if formula == FALSE else _ATOM_MASKS[str(operator)]
    masks = [_mask(part) for part in parts]
    if operator == "~":
        return ~masks[0] & _EVERYWHERE
    if operator == "&":
        return masks[0] & masks[1]
    return masks[1] | (masks[0] if operator == "|" else ~masks[0] & _EVERYWHERE)


RANDOM_SCORE = 0.0095
"""Measured on the standard tasks: success of `random_actions`."""
TRIES = 15
"""Theorems that are drawn for each draft, at most."""
DRAFTS_PER_TASK = 20
STEPS = 6
"""Steps of the longest known proof."""

Steps = Annotated[int, Range(1, STEPS)]


@dataclass(frozen=True)
class MadeTheorems(Options):
    """`count` theorems in each split, whose known proofs have `min_steps` to `max_steps` steps."""

    count: Count = 1000
    min_steps: Steps = 1
    max_steps: Steps = 5

    def load(self) -> TaskSet:
        """Raises ConfigError where there are not so many."""
        if self.min_steps > self.max_steps:
            raise ConfigError("proofs: min_steps is above max_steps: lower it")
        scores = SOLVED | ({"random": RANDOM_SCORE} if self == STANDARD else {})
        drafts = drafted(self._draft, 2 * self.count * DRAFTS_PER_TASK)
        return TaskSet.made("proofs", drafts, self.count, scores)

    def _draft(self, number: int) -> Draft | None:
        steps = self.min_steps + number % (self.max_steps - self.min_steps + 1)
        stream = random.Random(derive("proofs", steps, number))
        for _ in range(TRIES):
            theorem = draw(stream, steps)
            if theorem is not None:
                return Draft(theorem.shape, partial(_task, theorem))
        return None


STANDARD = MadeTheorems()


def _task(theorem: Theorem) -> Task:
    premises = [written(one) for one in theorem.premises]
    conclusion = written(theorem.conclusion)
    given = f" from {', '.join(premises)}" if premises else ""
    prompt = f"Prove {conclusion}{given}."
    stated = {"premises": premises, "conclusion": conclusion}
    secret = {**stated, "proof": theorem.proof}
    return Task(identity(prompt), prompt, secret, stated, {"steps": theorem.steps})
