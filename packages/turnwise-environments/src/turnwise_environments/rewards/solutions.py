r"""Values of letters as sets: `x = 1` or `x = 2` is {1, 2}, and `x > 2` the interval from 2 on.

Only what is solved is read: a letter alone on one side, and not on the other.
"""

import re

from turnwise_environments.rewards.expressions import Expression, symbols_of

INTERVALS = ("()", "(]", "[)", "[]")
REGIONS = (*INTERVALS, "\\{\\}", "\\cup", "\\cap", "\\setminus")
"""Kinds of expressions that are sets of numbers; a tuple of two may be one."""
_NAME = re.compile(
    r"(\\?[a-zA-Z]+|(?:[A-Z] ){1,2}[A-Z])(?: _ \w+| _ \{ \w+ \})?(?: \^ \{ - 1 \})?(?: \( \w+ \))?"
)
_ENDS = Expression("scalar", "- \\infty"), Expression("scalar", "\\infty")


def solved(one: Expression) -> tuple[Expression, frozenset[str]]:
    """The values alone, and the letters that they are of; the expression itself where none are.

    >>> x, two = Expression("scalar", "x"), Expression("scalar", "2")
    >>> solved(Expression("<", parts=(x, two)))[0].kind
    '()'
    """
    if one.kind == "=":
        for name, value in (one.parts, one.parts[::-1]):
            letters = name_of(name)
            if letters and not letters & symbols_of(value):
                return solved(value)[0], letters
    if {*one.kind.split()} <= {"<", "<=", "!="} and one.parts:
        return _region(one)
    if one.kind in ("or", "list", "\\{\\}", "\\cup"):
        return _together(one)
    return one, frozenset()


def name_of(one: Expression) -> frozenset[str]:
    """The letter that an expression is, or those of a tuple; none for anything else."""
    if one.kind == "()" and all(map(name_of, one.parts)):
        return frozenset().union(*map(name_of, one.parts))
    found = _NAME.fullmatch(one.text)
    return frozenset([found[1]] if found and found[1] not in ("e", "i", "\\pi", "\\infty") else [])


def _region(one: Expression) -> tuple[Expression, frozenset[str]]:
    """The interval of an inequality that is solved, or the two around what is left out."""
    signs, letters = one.kind.split(), [name_of(side) for side in one.parts]
    place = next((n for n, found in enumerate(letters) if found), 0)
    others = [side for n, side in enumerate(one.parts) if n != place]
    own = letters[place]
    if not own or any(own & symbols_of(side) for side in others):
        return one, frozenset()
    if signs == ["!="]:
        below = Expression("()", "", (_ENDS[0], others[0]))
        above = Expression("()", "", (others[0], _ENDS[1]))
        return Expression("\\cup", "", (below, above)), own
    before, after = one.parts[place - 1 : place], one.parts[place + 1 :]
    if "!=" in signs or len(before) + len(after) != len(others):
        return one, frozenset()
    left = "[" if before and signs[place - 1] == "<=" else "("
    right = "]" if after and signs[place] == "<=" else ")"
    return Expression(left + right, "", (*(before or _ENDS[:1]), *(after or _ENDS[1:]))), own


def _together(one: Expression) -> tuple[Expression, frozenset[str]]:
    """The set of several values, or a tuple of those of several letters."""
    found = [solved(part) for part in one.parts]
    letters = frozenset[str]().union(*(own for _, own in found))
    parts = [value for value, _ in found]
    if any(own and own != letters for _, own in found):
        if one.kind != "list" or [len(own) for _, own in found] != [1] * len(letters):
            return one, frozenset()
        ordered = sorted(found, key=lambda each: min(each[1]))  # x = 1, y = 2 is (1, 2)
        return Expression("()", "", tuple(value for value, _ in ordered)), letters
    if one.kind in ("or", "list") and any(
        {"<", "<=", "!="} & {*part.kind.split()} for part in one.parts
    ):
        kind = "\\cup" if one.kind == "or" else "\\cap"
        sets = (
            part if part.kind in REGIONS else Expression("\\{\\}", "", (part,)) for part in parts
        )
        return Expression(kind, "", tuple(sets)), letters
    if one.kind == "\\cup" and any(part.kind != "\\{\\}" for part in parts):
        return Expression("\\cup", "", tuple(parts)), letters
    flat = [
        inner
        for part in parts
        for inner in (part.parts if part.kind == "\\{\\}" != one.kind else [part])
    ]
    return Expression("\\{\\}", "", tuple(flat)), letters
