r"""Mathematical answers as structures: what may be compared at all, before anything is worked out.

`read_expression` reads a small language of LaTeX and plain notation, whole or not at all: numbers,
single letters, `+ - * / ^ ( ) |`, fractions, roots, usual functions, pi, infinity; and around them
equations and inequalities, tuples, intervals, sets, unions, lists, matrices. Words, percent signs,
integrals, sums, limits, factorials, and two numbers side by side are not in it, so that neither
`not 5`, nor `I guess 1, 2, 3`, nor an integral that was not worked out is an answer.

Not here: whether two expressions are equal (`symbolic.py`).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

MAX_CHARACTERS, MAX_DEPTH, MAX_DIGITS, MAX_PARTS = 300, 12, 20, 20
MAX_EXPONENT_DIGITS = 3

FUNCTIONS = "arcsin|arccos|arctan|sin|cos|tan|cot|sec|csc|log|ln|exp"
CONSTANTS = "alpha|beta|gamma|delta|theta|lambda|mu|phi|omega|pi|infty"
RELATIONS = {"=": "=", "<": "<", ">": ">", "\\le": "<=", "\\ge": ">=", "\\ne": "!="}
_FLIPPED = {">": "<", ">=": "<="}
UNORDERED = ("list", "\\{\\}", "union")
_OPEN, _CLOSE = ("(", "[", "{", "\\{"), (")", "]", "}", "\\}")
_MATRIX = ("\\begin{matrix}", "\\end{matrix}")

_REWRITTEN = tuple(
    (re.compile(pattern), shown)
    for pattern, shown in (
        (r"\\(?:left|right|displaystyle|quad|[bB]igg?[lr]?)(?![a-zA-Z])|(?<!\\)\\[!,;: ]|~", " "),
        (r"\\[dtc](frac|binom)(?![a-zA-Z])", r"\\\1"),
        (r"\\(?:mathrm|mathbf|text)\{([a-zA-Z])\}", r" \1 "),
        (r"\\lbrace(?![a-zA-Z])", r"\\{"),
        (r"\\rbrace(?![a-zA-Z])", r"\\}"),
        (r"\$?(?:\\text\{\s*and\s*\}|(?<=[\s$])and(?=[\s$]))\s*\$?", " , "),
        (r"<=", r"\\le "),
        (r">=", r"\\ge "),
        (r"\\(?:leq|leqslant)(?![a-zA-Z])|≤", r"\\le "),
        (r"\\(?:geq|geqslant)(?![a-zA-Z])|≥", r"\\ge "),
        (r"\\neq(?![a-zA-Z])|≠", r"\\ne "),
        (r"\\(?:lvert|rvert|vert)(?![a-zA-Z])", "|"),
        (r"\\(?:lt)(?![a-zA-Z])", "<"),
        (r"\\(?:gt)(?![a-zA-Z])", ">"),
        (r"\\(?:times|cdot)(?![a-zA-Z])|[×·]|\*(?!\*)(?<!\*\*)", r" \\cdot "),
        (r"\*\*", "^"),
        (r"−", "-"),
        (r"∞|(?<!\\)\binf(?:inity)?\b", r"\\infty "),
        (r"π", r"\\pi "),
        (r"∪|(?<=[\])])\s*U\s*(?=[\[(])", r"\\cup "),
        (r"\{,\}(?=[0-9]{3})", ""),
        (r"\\log\s*_\s*([0-9a-z])", r"\\log_{\1}"),
        (r"\^\s*-\s*([0-9]+|[a-z])", r"^{-\1}"),
        (r"(?<!\\)\bsqrt\s*\(([^()]*)\)", r"\\sqrt{\1}"),
        (rf"(?<![\\a-zA-Z])({FUNCTIONS}|{CONSTANTS})(?![a-zA-Z])", r"\\\1 "),
        (r"\\(begin|end)\{[pb]?matrix\}", r"\\\1{matrix}"),
        (r"\\begin\{array\}\s*\{[lcr ]*\}", r"\\begin{matrix}"),
        (r"\\end\{array\}", r"\\end{matrix}"),
    )
)
_WRAPPED = re.compile(
    r"\\(?:boxed|fbox)\s*\{(.*)\}|\\boxed\s+([0-9a-zA-Z])|\{([^{},]+)\}|"
    r"\$\$((?:[^$\\]|\\.)+)\$\$|\$((?:[^$\\]|\\.)+)\$|"
    r"\\\(((?:(?!\\[()]).)*)\\\)|\\\[((?:(?!(?<!\\)\\[\[\]]).)*)\\\]|\*\*([^*]+)\*\*|####\s*(.*)",
    re.DOTALL,
)
MAX_WRAPPINGS = 4
_ASSIGNED = re.compile(
    r"\s*([a-zA-Z]|\(\s*[a-zA-Z](?:\s*,\s*[a-zA-Z])*\s*\))\s*(?:=(?!=)|\\in(?![a-z]))"
)
_UNIT = re.compile(
    r"\s*\\(?:text|mathrm|mbox)\s*\{\s*([^{}]*?)\s*\}\s*(?:(\^)\s*(?:([23])|\{\s*([23])\s*\})\s*)?$"
)
_TOKEN = re.compile(
    r"\s*(\d+\.\d+|\.\d+|\d+|\\begin\{matrix\}|\\end\{matrix\}|\\\\|\\[{}]|\\[a-zA-Z]+|"
    r"[a-zA-Z]|[-+/^_()\[\]{}|,=<>&])"
)
_ARGUMENTS = {"\\frac": 2, "\\binom": 2, "\\sqrt": 1}
_INDEXED = {f"\\{name}" for name in f"log|{CONSTANTS}".split("|")}
_COMMANDS = {f"\\{name}" for name in f"{FUNCTIONS}|{CONSTANTS}".split("|")}
_COMMANDS |= {*RELATIONS, *_MATRIX, "\\\\"}
_COMMANDS |= {"\\frac", "\\binom", "\\sqrt", "\\cdot", "\\cup", "\\in", "\\pm", "\\{", "\\}"}


@dataclass(frozen=True)
class Expression:
    """Plain notation, or a structure of several parts. Example: Expression("[)", parts=(...))."""

    kind: str
    """`scalar`, `list`, `union`, `matrix`, `row`, the two brackets of a tuple, interval or set, or
    the signs of a relation, with `<` for `>`."""
    text: str = ""
    """LaTeX of a scalar."""
    parts: tuple["Expression", ...] = ()


class _UnreadableError(Exception):
    """A text is not in the language."""


def read_expression(text: str, unit: str = "") -> Expression | None:
    """The expression that a text is; None for anything else. `unit` may stand behind it."""
    try:
        return _structure(_braced(_tokens(_bare(text, unit))))
    except _UnreadableError:
        return None


def plain(text: str) -> str:
    """A text without what is around its mathematics, spaces that say nothing, and upright letters'
    marks."""
    bare = re.sub(r"\\(?:text|mathrm|mbox|textbf)\s*\{([^{}]*)\}", r"\1", unwrapped(text))
    bare = re.sub(r"\\(?:left|right)(?![a-zA-Z])|(?<!\\)\\[!,;: ]", " ", bare)
    bare = re.sub(r"\\(?:varnothing|emptyset)(?![a-zA-Z])|∅|\\\{\s*\\\}", r"\\emptyset ", bare)
    bare = re.sub(r"([_^])\{(\w)\}", r"\1\2", bare)
    return re.sub(r"(?<!\w)\s+|\s+(?!\w)", "", " ".join(bare.split()))


def choice(text: str) -> str | None:
    """The letter of a choice, such as (C); None for anything else."""
    found = re.fullmatch(r"([A-Z])|\(([A-Z])\)", plain(text))
    return found and (found[1] or found[2])


def unassigned(text: str) -> tuple[str, set[str]]:
    """Split an assignment into its value and the letters: `5` and x of `x = 5`."""
    bare = unwrapped(text)
    found = _ASSIGNED.match(bare)
    return (bare[found.end() :], set(re.findall("[a-zA-Z]", found[1]))) if found else (bare, set())


def is_words(text: str) -> bool:
    """Whether a text is words, and no mathematics."""
    return re.fullmatch(r"[^\W\d_]{2,}(?: [^\W\d_]+)*", plain(text)) is not None


def unit_of(text: str) -> str:
    """The unit that a text ends with, as LaTeX has it in an upright font, such as `cm^2`; "" for
    none."""
    found = _UNIT.search(unwrapped(text))
    return _joined(found) if found and found.start() > 0 else ""


def symbols_of(expression: Expression) -> set[str]:
    """The letters that stand for something."""
    own = set(re.findall(r"(?<![\\a-zA-Z])[a-zA-Z]", expression.text))
    return own.union(*(symbols_of(part) for part in expression.parts))


def unwrapped(text: str) -> str:
    """A text without what is around it: \\boxed{}, $…$, \\(…\\), **…**, ####, a full stop."""
    bare = text.strip().removesuffix(".").strip()
    for _ in range(MAX_WRAPPINGS):
        found = _WRAPPED.fullmatch(bare)
        inner = next((one for one in found.groups() if one is not None), "") if found else bare
        if found is None or not _is_balanced(inner):
            break
        bare = inner.strip().removesuffix(".").strip()
    return bare


def _is_balanced(text: str) -> bool:
    """Whether no brace is closed before it was opened: `9}\\boxed{1` is not one content."""
    depth = 0
    for sign in re.sub(r"\\[{}]", "", text):
        depth += (sign == "{") - (sign == "}")
        if depth < 0:
            return False
    return depth == 0


def _bare(text: str, unit: str) -> str:
    bare = unwrapped(text) if len(text) <= MAX_CHARACTERS else ""
    if unit:
        bare = _UNIT.sub(lambda found: f" {_joined(found)}", bare)
        bare = bare.removesuffix(unit).removesuffix("\\ ").strip()
    for pattern, shown in _REWRITTEN:
        bare = pattern.sub(shown, bare)
    return bare


def _joined(found: re.Match[str]) -> str:
    return "".join(one or "" for one in found.groups())


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    place, depth = 0, 0
    text = text.rstrip()
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None or (found[1][0] == "\\" and found[1] not in _COMMANDS):
            raise _UnreadableError
        token, place = found[1], found.end()
        depth += (token in (*_OPEN, _MATRIX[0])) - (token in (*_CLOSE, _MATRIX[1]))
        if depth > MAX_DEPTH or depth < 0 or len(token.replace(".", "")) > MAX_DIGITS:
            raise _UnreadableError
        if token == "_" and not (tokens and (tokens[-1].isalpha() or tokens[-1] in _INDEXED)):
            raise _UnreadableError  # 102_8 is a number in base 8, which sympy reads as 102
        if tokens and token[0].isdigit() and (tokens[-1][0].isdigit() or tokens[-1].isalpha()):
            raise _UnreadableError  # `1 2` and `x2` may mean anything
        tokens.append(token)
    if depth:
        raise _UnreadableError
    return tokens


def _braced(tokens: Sequence[str]) -> list[str]:
    """The tokens with the arguments of fractions, binomials and roots in braces."""
    left, found = [*reversed(tokens)], []
    while left:
        token = left.pop()
        found.append(token)
        if token == "\\sqrt" and left[-1:] == ["["]:
            while left and found[-1] != "]":
                found.append(left.pop())
        for number in range(_ARGUMENTS.get(token, 0), 0, -1):
            found += _argument(left, number == 1)
    return found


def _argument(left: list[str], last: bool) -> list[str]:
    """Take one argument off: what is in braces, else one sign, as in \\frac12."""
    token = left.pop() if left else ""
    if token == "{":
        inner: list[str] = []
        depth = 1
        while depth:
            inner.append(left.pop())
            depth += (inner[-1] == "{") - (inner[-1] == "}")
        if len(inner) > 1:
            return ["{", *_braced(inner[:-1]), "}"]
    elif token.isdigit() and len(token) == 1 + (not last):
        left += token[1:]
        return ["{", token[0], "}"]
    elif (token.isdigit() and len(token) == 1) or token.isalpha() or token == "\\pi":
        return ["{", token, "}"]
    raise _UnreadableError


def _split(tokens: Sequence[str], *separators: str) -> list[list[str]]:
    """The tokens between separators that are in no bracket."""
    parts: list[list[str]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token in (*_OPEN, _MATRIX[0])) - (token in (*_CLOSE, _MATRIX[1]))
        if depth == 0 and token in separators:
            parts.append([])
        else:
            parts[-1].append(token)
    if len(parts) > MAX_PARTS:
        raise _UnreadableError
    return parts


def _structure(tokens: list[str]) -> Expression:
    parts = _split(tokens, ",")
    if len(parts) > 1:
        return _made("list", [_structure(part) for part in parts])
    parts = _split(tokens, "\\cup")
    if len(parts) > 1:
        return _made("union", [_structure(part) for part in parts])
    parts = _split(tokens, *RELATIONS)
    if len(parts) > 1:
        return _relation(tokens, parts)
    if tokens[:1] == [_MATRIX[0]] and tokens[-1] == _MATRIX[1]:
        rows = [row for row in _split(tokens[1:-1], "\\\\") if row]
        return _made("matrix", [_made("row", map(_scalar, _split(row, "&"))) for row in rows])
    if _is_group(tokens):
        inner = _split(tokens[1:-1], ",")
        if len(inner) == 1 and inner[0][:1] == [_MATRIX[0]]:
            return _structure(inner[0])
        if tokens[0] == "{" and len(inner) > 1:
            return _made("\\{\\}", [_structure(part) for part in inner])
        if len(inner) > 1 or tokens[0] == "\\{":
            return _made(tokens[0] + tokens[-1], [_structure(part) for part in inner])
    if tokens.count("\\pm") == 1 and len(_split(tokens, "\\pm")) == 2:
        return _made("list", [_scalar(_replaced(tokens, "\\pm", sign)) for sign in "+-"])
    return _scalar(tokens)


def _relation(tokens: Sequence[str], parts: list[list[str]]) -> Expression:
    signs = [RELATIONS[token] for token in tokens if token in RELATIONS]
    if len(signs) != len(parts) - 1 or len(signs) > 2:
        raise _UnreadableError
    sides = [_scalar(part) for part in parts]
    if all(sign in _FLIPPED for sign in signs):
        signs, sides = [_FLIPPED[sign] for sign in reversed(signs)], sides[::-1]
    return _made(" ".join(signs), sides)


def _made(kind: str, parts: "Sequence[Expression] | map[Expression]") -> Expression:
    """A structure; a list in a list is one list."""
    found: list[Expression] = []
    for part in parts:
        found += part.parts if kind == part.kind == "list" else [part]
    return Expression(kind, parts=tuple(found))


def _is_group(tokens: Sequence[str]) -> bool:
    """Whether the first token opens a bracket that the last one closes."""
    return (
        len(tokens) > 2
        and tokens[0] in _OPEN
        and tokens[-1] in _CLOSE
        and len(_split([*tokens[:-1], "end"], "end")) == 1
    )


def _replaced(tokens: Sequence[str], old: str, new: str) -> list[str]:
    return [new if token == old else token for token in tokens]


def _scalar(tokens: Sequence[str]) -> Expression:
    """LaTeX that reads in one way: decimals are fractions, products have a sign."""
    refused = {",", "&", "\\\\", "\\cup", "\\in", "\\pm", "\\{", "\\}", *RELATIONS, *_MATRIX}
    if not tokens or refused & set(tokens):
        raise _UnreadableError
    written: list[str] = []
    for before, token in zip(["", *tokens], tokens, strict=False):
        if (token == "[" and before != "\\sqrt") or (token == "{" and not _takes(before)):
            raise _UnreadableError
        opened = token == "(" and (before[:1].isdigit() or before == ")" or _is_variable(before))
        if opened or (before == ")" and token[0].isalnum()):
            written.append("\\cdot")  # else (2)(3) is read as a mixed number, x(2) as a function
        whole, point, places = token.partition(".")
        written.append(f"{{\\frac{{{whole}{places}}}{{1{'0' * len(places)}}}}}" if point else token)
    text = " ".join(written)
    _check_powers(text)
    return Expression("scalar", text.removeprefix("+ "))


def _takes(token: str) -> bool:
    """Whether braces behind a token are its argument, or a factor: {2}{3} is read as 2 + 3."""
    return token in ("^", "_", "]", "}") or token.startswith("\\")


def _is_variable(token: str) -> bool:
    return token.isalpha() and token not in "fghFGHPQ"


def _check_powers(text: str) -> None:
    """Refuse powers whose value is too long to be written down: they cost a worker each."""
    if re.search(rf"\^ (?:{{ )?(?:- )?\d{{{MAX_EXPONENT_DIGITS + 1}}}", text):
        raise _UnreadableError
    for power in re.finditer(r"\^ \{", text):
        depth, end = 1, power.end()
        while end < len(text) and depth:
            depth += (text[end] == "{") - (text[end] == "}")
            end += 1
        if re.search(r"\d \^|\^.*\^", text[power.end() : end]):
            raise _UnreadableError
