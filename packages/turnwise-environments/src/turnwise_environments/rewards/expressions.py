r"""Mathematical answers as structures: what may be compared at all, before anything is worked out.

`read_expression` reads a small language of LaTeX and plain notation, whole or not at all: numbers,
single letters, `+ - * / ^ ( ) |`, fractions, roots, usual functions, pi, infinity; and around them
equations and inequalities, tuples, intervals, sets, unions, lists, matrices. Words but `and` and
`or`, percent signs, integrals, sums, limits, and two numbers side by side are not in it, so that
neither `not 5`, nor `I guess 1, 2, 3`, nor an integral that was not worked out is an answer.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from turnwise_environments.rewards.spellings import spelled_alike

MAX_CHARACTERS, MAX_DEPTH, MAX_DIGITS, MAX_PARTS = 300, 12, 20, 20
MAX_EXPONENT, MAX_POWER = 10**4, 10**6
"""The largest exponent, and the product of all where there is a power of a power."""

FUNCTIONS = "arcsin|arccos|arctan|sin|cos|tan|cot|sec|csc|log|ln|exp"
CONSTANTS = "alpha|beta|gamma|delta|theta|lambda|mu|phi|omega|pi|infty"
RELATIONS = {sign: sign for sign in "=<>"} | {"\\le": "<=", "\\ge": ">=", "\\ne": "!=", "\\in": "="}
_FLIPPED = {">": "<", ">=": "<="}
UNORDERED = ("list", "\\{\\}", "\\cup")
_OPEN, _CLOSE = ("(", "[", "{", "\\{"), (")", "]", "}", "\\}")
_MATRIX = ("\\begin{matrix}", "\\end{matrix}")
_SEPARATORS = {"\\lor": "or", ",": "list", "\\cup": "\\cup", "\\setminus": "\\setminus"}

_ROOT = r"(?:√|(?<![\\a-zA-Z])sqrt)\s*"
_REWRITTEN = tuple(
    (re.compile(pattern), shown)
    for pattern, shown in (
        (r"(?<!\\)\\[!,;: ]|~", " "),
        (r"\\text ?\{([a-zA-Z]|ln|log|cis|arc[a-z]{3})\}", r" \1 "),
        (r"[;,]?\s*(?:\\text ?\{\s*and\s*\}|(?<![\\a-z])and(?![a-z]))", " , "),
        (r"[;,]?\s*(?:\\text ?\{\s*or\s*\}|(?<![\\a-z])or(?![a-z]))", r" \\lor "),
        (r"\\mathbb ?(?:R|\{R\})|^(?i:all real numbers|all reals)$", r"(-\\infty,\\infty)"),
        (r"^\\\{ ?[a-z]\s*(?:\\in ?\(-\\infty,\\infty\))?\s*[|:](.*)\\\}$", r"\1"),
        (r"^ ?(?:[a-zA-Z]'+(?:\([a-z]\))?|\\frac ?\{d[a-z]?\}\{d[a-z]\}) ?=", ""),
        (r"(?:^|(?<=[-+=(,])|(?<=\\pm ))\{(\w+)\}(?![\w{])", r"(\1)"),
        (r"\*\*", "^"),
        (r"\*", r" \\cdot "),
        (r";", ","),
        (r"²", "^{2}"),
        (r"³", "^{3}"),
        (r"(?<!\\)\binf(?:inity)?\b", r"\\infty "),
        (r"(?<=[\])])\s*U\s*(?=[\[(])", r"\\cup "),
        (r"\{,\}(?=[0-9]{3})", ""),
        (r"\\?log\s*_\s*([0-9a-z])", r"\\log_{\1}"),
        (r"\\log_\{e\}", r"\\ln "),
        (r"\^\s*-\s*([0-9]+|[a-z])", r"^{-\1}"),
        (_ROOT + r"(?:\(([^()]*)\)|([0-9]+|[a-z]))", r"\\sqrt{\1\2}"),
        (
            r"(sin|cos|tan|cot|sec|csc|cis)(\s*[({]?\s*)([0-9.]+)\s*"
            r"(?:\^\s*(?:\\circ|\{\s*\\circ\s*\})|°)",
            r"\1\2(\\frac{\3\\pi}{180})",
        ),
        (r"cis\s*(\\frac ?\{[^{}]*\}\{[^{}]*\}|\((?:[^()]|\([^()]*\))*\))", r"e^{i\1}"),
        (rf"(?<![\\a-zA-Z])({FUNCTIONS}|{CONSTANTS})(?![a-zA-Z])", r"\\\1 "),
        (r"\{?([^{}]*)\\choose([^{}]*)\}?", r"\\binom{\1}{\2}"),
        (r"\\(begin|end)\{(?:[pb]|small)matrix\}", r"\\\1{matrix}"),
        (r"\\begin\{array\}\s*\{[lcr| ]*\}", r"\\begin{matrix}"),
        (r"\\end\{array\}", r"\\end{matrix}"),
        (r"\\\\\[[0-9a-z.]*\]", r"\\\\"),
    )
)
_WRAPPED = re.compile(
    r"\\(?:boxed|fbox)\s*\{(.*)\}|\\boxed\s+([0-9a-zA-Z])|\{([^,]+)\}|"
    r"\$\$((?:[^$\\]|\\.)+)\$\$|\$((?:[^$\\]|\\.)+)\$|"
    r"\\\(((?:(?!\\[()]).)*)\\\)|\\\[((?:(?!(?<!\\)\\[\[\]]).)*)\\\]|\*\*([^*]+)\*\*|####\s*(.*)|"
    r"\*([^*]+)\*|`([^`]+)`",
    re.DOTALL,
)
MAX_WRAPPINGS = 4
_THOUSANDS = re.compile(r"(?<=[0-9]),\\!\s*(?=[0-9]{3}(?![0-9]))")
_INLINE = re.compile(r"(?<!\\)\$((?:[^$\\]|\\.)+)\$|\\[()]")
_UNIT = re.compile(r"\s*\\text\s*\{\s*([^{}]*?)\s*\}\s*(?:(\^)\s*(?:([23])|\{\s*([23])\s*\})\s*)?$")
_TOKEN = re.compile(
    r"\s*(\d+\.\d+|\.\d+|\d+|\\begin\{matrix\}|\\end\{matrix\}|\\\\|\\[{}]|\\[a-zA-Z]+|"
    r"[a-zA-Z]|[-+/^_()\[\]{}|,=<>&!])"
)
_ARGUMENTS = {"\\frac": 2, "\\binom": 2, "\\sqrt": 1}
_INDEXED = {f"\\{name}" for name in f"log|{CONSTANTS}".split("|")}
_SIGNS = ("\\\\", "\\cdot", "\\pm", "\\{", "\\}", "\\lfloor", "\\rfloor", "\\lceil", "\\rceil")
_COMMANDS = {f"\\{name}" for name in f"{FUNCTIONS}|{CONSTANTS}".split("|")}
_COMMANDS |= {*RELATIONS, *_SEPARATORS, *_ARGUMENTS, *_MATRIX, *_SIGNS}


@dataclass(frozen=True)
class Expression:
    """Plain notation, or a structure of several parts. Example: Expression("[)", parts=(...))."""

    kind: str
    """`scalar`, `list`, `or`, `matrix`, `row`, the sign between sets, the two brackets of a tuple,
    interval or set, or the signs of a relation, with `<` for `>`."""
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
    bare = re.sub(r"\\text\s*\{([^{}]*)\}", r"\1", unwrapped(text))
    bare = re.sub(r"(?<!\\)\\[!,;: ]", " ", bare)
    bare = re.sub(
        r"\\\{\s*\\\}|(?i:^no (?:real )?solutions?$|^(?:the )?empty set$)", r"\\emptyset ", bare
    )
    bare = re.sub(
        r"(?i)(?<=[0-9])\s*([ap])\.?\s*m\b\.?", lambda found: f"{found[1].lower()}m", bare
    )
    bare = re.sub(r"(?<=[0-9]) ?to ?(?=[0-9])", ":", bare)
    bare = re.sub(r"(?i:^dne$)", "does not exist", bare)
    bare = re.sub(r"^\(([0-9]+)\) ?(?=_)", r"\1", bare)
    bare = re.sub(r"([_^]?)\{([\w:])\}", r"\1\2", bare)
    return re.sub(r"(?<!\w)\s+|\s+(?!\w)", "", " ".join(bare.split()))


def choice(text: str) -> str | None:
    """The letter of a choice, such as (C); None for anything else."""
    mark = r"(?i:option|choice|answer)?:? ?(?:([A-Z])\)?|\(([A-Za-z])\)|\[([A-Z])\])"
    found = re.fullmatch(mark, plain(text))
    return found and (found[1] or found[2] or found[3]).upper()


def is_words(text: str) -> bool:
    """Whether a text is words, and no mathematics."""
    return re.fullmatch(r"[^\W\d_]{2,}(?: [^\W\d_]+)*", plain(text)) is not None


def unit_of(text: str) -> str:
    """The unit that a text ends with, as LaTeX has it in an upright font, such as `cm^2`; "" for
    none."""
    found = _UNIT.search(unwrapped(text))
    return _joined(found) if found and found.start() > 0 else ""


def symbols_of(expression: Expression) -> set[str]:
    """The letters that stand for something; e and i are numbers."""
    own = set(re.findall(r"(?<![\\a-zA-Z])[a-df-hj-zA-Z]", expression.text))
    return own.union(*(symbols_of(part) for part in expression.parts))


def unwrapped(text: str) -> str:
    """A text without what is around it: \\boxed{}, $…$, \\(…\\), **…**, ####, a full stop."""
    bare = _trimmed(_THOUSANDS.sub("", spelled_alike(text)))
    for _ in range(MAX_WRAPPINGS):
        found = _WRAPPED.fullmatch(bare)
        inner = next((one for one in found.groups() if one is not None), "") if found else bare
        if found is None or not _is_balanced(inner):
            break
        bare = _trimmed(inner)
    return _INLINE.sub(lambda found: f" {found[1] or ''} ", bare).strip()


def _trimmed(text: str) -> str:
    return text.strip().removesuffix(".").strip().removesuffix("\\").strip()  # `\\ ` is a space


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
        beside = tokens and tokens[-2:-1] != ["\\frac"] and token[0].isdigit()
        if beside and (tokens[-1][0].isdigit() or tokens[-1].isalpha()):
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
            if not left:  # brackets are counted whatever their kind: \frac{1) gets here
                raise _UnreadableError
            inner.append(left.pop())
            depth += (inner[-1] == "{") - (inner[-1] == "}")
        if len(inner) > 1:
            return ["{", *_braced(inner[:-1]), "}"]
    elif token == "\\frac":
        return ["{", token, *_argument(left, False), *_argument(left, True), "}"]
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
    for sign, kind in _SEPARATORS.items():
        parts = _split(tokens, sign)
        if len(parts) > 1:
            return _made(kind, map(_structure, parts))
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
            return _made("\\{\\}", map(_structure, inner))
        if len(inner) > 1 or tokens[0] == "\\{":
            made = _made(tokens[0] + tokens[-1], map(_structure, inner))
            if made.kind == "[]" and _is_table(made.parts):
                return _made("matrix", [_made("row", part.parts) for part in made.parts])
            return made
    if tokens.count("\\pm") == 1:
        signed = ([sign if one == "\\pm" else one for one in tokens] for sign in "+-")
        return _made("list", map(_scalar, signed))
    return _scalar(tokens)


def _is_table(rows: Sequence[Expression]) -> bool:
    """Whether parts are brackets of as many parts each, as in [[1, 2], [3, 4]]."""
    widths = {len(row.parts) for row in rows}
    return all(row.kind == "[]" for row in rows) and len(widths) == 1 and 0 not in widths


def _relation(tokens: Sequence[str], parts: list[list[str]]) -> Expression:
    signs = [RELATIONS[token] for token in tokens if token in RELATIONS]
    if len(signs) != len(parts) - 1 or len(signs) > 2:
        raise _UnreadableError
    sides = [_structure(part) for part in parts]
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


def _scalar(tokens: Sequence[str]) -> Expression:
    """LaTeX that reads in one way: decimals are fractions, products have a sign."""
    refused = {*_SEPARATORS, "&", "\\\\", "\\pm", "\\{", "\\}", *RELATIONS, *_MATRIX}
    if not tokens or refused & set(tokens):
        raise _UnreadableError
    written: list[str] = []
    padded = ["", "", "", *tokens]
    for place, token in enumerate(tokens):
        function, power, before = padded[place : place + 3]
        if (token == "[" and before != "\\sqrt") or (token == "{" and not _takes(before)):
            raise _UnreadableError
        applied = power == "^" and function[1:] in FUNCTIONS.split("|")  # as in \\sin^2(x)
        factor = before[:1].isdigit() or before == ")" or _is_variable(before)
        opened = token == "(" and factor and not applied
        if opened or (before == ")" and token[0].isalnum()):
            written.append("\\cdot")  # else (2)(3) is read as a mixed number, x(2) as a function
        whole, point, places = token.partition(".")
        ratio = f"\\frac{{{whole}{places}}}{{1{'0' * len(places)}}}"
        written.append(token if not point else f"{{{ratio}}}" if before == "^" else ratio)
    text = " ".join(written)
    _check_powers(text)
    return Expression("scalar", text.removeprefix("+ "))


def _takes(token: str) -> bool:
    """Whether braces behind a token are its argument, or a factor: {2}{3} is read as 2 + 3."""
    return token in ("^", "_", "]", "}") or token.startswith("\\")


def _is_variable(token: str) -> bool:
    return token.isalpha() and token not in "fghFGHPQ"


def _check_powers(text: str) -> None:
    """Refuse what is too long to be written down: it costs a worker each."""
    if re.search(r"\d{4} !|\d [!)}]+ !|! !|\\binom \{ \d{5}|\\exp.*\\exp.*\\exp", text):
        raise _UnreadableError
    total, nested = 1, False
    for power in re.finditer(r"(\S) \^ (\{ )?", text):
        rest = text[power.end() :]
        inner = rest[: closing(rest)] if power[2] else rest.split(" ")[0]
        own = math.prod(int(one) for one in re.findall(r"\d+", inner) if int(one))
        total, nested = total * own, nested or power[1] in ")}!|"
        if own >= MAX_EXPONENT or re.search(r"\d [\^!]|\^.*\^|\\exp", inner):
            raise _UnreadableError
    factorials = math.prod(10 * int(one) for one in re.findall(r"(\d+) !", text) if int(one))
    if nested and total * factorials > MAX_POWER:
        raise _UnreadableError


def closing(text: str) -> int | None:
    """The place of the brace that closes what is open before a text; None without one."""
    depth = 1
    for place, sign in enumerate(text):
        depth += (sign == "{") - (sign == "}")
        if depth == 0:
            return place
    return None
