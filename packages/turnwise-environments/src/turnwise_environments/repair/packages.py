"""Small Python packages put together from the functions of `blocks.toml`, and calls of these."""

import random
import textwrap
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from string import Template
from types import CodeType
from typing import Any

from turnwise.seeds import derive
from turnwise_sandbox.grading import same

POOL = 128
"""Values for each kind of parameter."""
CALLS = 6
"""Calls of each function that is called."""
NUMBERS = (0, 5, 10, 10, 15, 20, 20, 25, 30, 30, 40, 60, 80, 90, 7, 42)
"""Numbers for arguments, mostly round, so that limits are met exactly."""
REPORTS, OTHERS = 2, 3
"""Blocks that a package has, beside those that they use."""


@dataclass(frozen=True)
class Block:
    """A function as a template: what it says and what it does."""

    module: str
    name: str
    arguments: str
    """Names of the parameters; each name has a way to draw values."""
    words: str
    """The docstring: enough to write the function from."""
    code: str
    variants: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Words of each variant, by name."""
    uses: Sequence[str] = ()
    """Blocks that this one calls."""

    @property
    def count(self) -> int:
        """The number of variants."""
        return len(next(iter(self.variants.values()), "1"))


_READ: dict[str, Any] = tomllib.loads(
    files("turnwise_environments.repair").joinpath("blocks.toml").read_text(encoding="utf-8")
)
MODULES: Mapping[str, str] = _READ.pop("modules")
BLOCKS = {
    name: Block(module, name, **block)
    for module, blocks in _READ.items()
    for name, block in blocks.items()
}


@dataclass(frozen=True)
class Theme:
    """The subject of a package's records."""

    rows: str
    who: str
    what: str
    amount: str
    size: str
    names: tuple[str, ...]
    things: tuple[str, ...]


_NAMES = ("Ann Lee", "Bo", "Cleo", "Dan Oz", "Eva", "Finn", "Gus", "Hana", "Ida", "Jon Park")
_THEMES = (
    ("orders customer product price pieces", "tea soap lamp rope"),
    ("loans reader book days pages", "atlas novel poems maps"),
    ("runs runner course minutes laps", "park coast hill track"),
    ("shifts worker team wage hours", "bakery dock office farm"),
    ("trips driver town fuel distance", "Rome Oslo Bath Lyon"),
    ("catches fisher lake weight count", "east west north deep"),
    ("lessons pupil subject marks weeks", "maths music art latin"),
)


def _theme(words: str, things: str, names: tuple[str, ...]) -> Theme:
    rows, who, what, amount, size = words.split()
    return Theme(rows, who, what, amount, size, names, tuple(things.split()))


THEMES = tuple(
    _theme(words, things, _NAMES[place : place + 4])
    for place, (words, things) in enumerate(_THEMES)
)


@dataclass(frozen=True)
class Function:
    """A block with its words filled in."""

    module: str
    name: str
    parameters: tuple[str, ...]
    source: str
    uses: tuple[str, ...]


@dataclass(frozen=True)
class Package:
    """Functions by name; those that a function uses come before it."""

    theme: Theme
    functions: Mapping[str, Function]
    marks: Mapping[str, str]
    """The characters that separate the parts of a line, and that begin a comment."""

    @property
    def name(self) -> str:
        return self.theme.rows

    def target(self, function: str) -> str:
        return f"{self.name}.{self.functions[function].module}:{function}"

    def module(self, module: str, changed: Mapping[str, str] = {}) -> str:
        """The text of a module; `changed` has other sources for functions."""
        functions = [one for one in self.functions.values() if one.module == module]
        own = {one.name for one in functions}
        needed: dict[str, list[str]] = {}
        for name in sorted({name for one in functions for name in one.uses} - own):
            needed.setdefault(self.functions[name].module, []).append(name)
        imports = [
            f"from {self.name}.{other} import {', '.join(names)}"
            for other, names in sorted(needed.items())
        ]
        head = f'"""{Template(MODULES[module]).substitute(rows=self.theme.rows)}"""'
        parts = [changed.get(one.name, one.source) for one in functions]
        top = "\n".join([head, *([""] if imports else []), *imports])
        return "\n\n\n".join([top, *parts]) + "\n"

    def users(self, name: str) -> list[str]:
        """The function and all that use it, directly or not."""
        found = [name]
        for function in self.functions.values():
            if any(used in found for used in function.uses):
                found.append(function.name)
        return found


def draw_package(stream: random.Random) -> Package:
    theme = stream.choice(THEMES)
    others = [name for name, block in BLOCKS.items() if block.module not in ("lines", "report")]
    reports = [name for name, block in BLOCKS.items() if block.module == "report"]
    wanted = stream.sample(reports, REPORTS)
    wanted += stream.sample(others, OTHERS)
    needed = _closure(wanted)
    functions: dict[str, Function] = {}
    marks: dict[str, str] = {}
    for name, block in BLOCKS.items():
        if name in needed:
            place = stream.randrange(block.count)
            function = _filled(name, place, theme)
            functions[function.name] = function
            if block.module == "lines":
                marks |= {word: values[place] for word, values in block.variants.items()}
    return Package(theme, functions, marks)


def _closure(names: Sequence[str]) -> set[str]:
    found, left = set[str](), ["parse", *names]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += BLOCKS[name].uses
    return found


@lru_cache(maxsize=4096)
def _filled(block_name: str, variant: int, theme: Theme) -> Function:
    block = BLOCKS[block_name]
    own = {name: getattr(theme, name) for name in ("rows", "who", "what", "amount", "size")}
    words = {name: values[variant] for name, values in block.variants.items()} | own

    def fill(text: str) -> str:
        # Twice: a variant's own text has words of the theme in it.
        return Template(Template(text).safe_substitute(words)).safe_substitute(words)

    name, parameters = fill(block.name), tuple(block.arguments.split())
    body = textwrap.indent(fill(block.code), "    ")
    head = f"def {name}({', '.join(parameters)}):"
    source = f'{head}\n    """{fill(block.words)}"""\n{body}'
    return Function(block.module, name, parameters, source, tuple(map(fill, block.uses)))


@lru_cache(maxsize=4096)
def _compiled(source: str) -> CodeType:
    return compile(source, "<package>", "exec")


def namespace(package: Package, changed: Mapping[str, str] = {}) -> dict[str, Any]:
    """The functions, ready to be called; `changed` has other sources for some."""
    space: dict[str, Any] = {}
    for name, function in package.functions.items():
        exec(_compiled(changed.get(name, function.source)), space)
    return space


def draw_calls(
    package: Package, names: Sequence[str], stream: random.Random
) -> dict[str, list[tuple[Any, ...]]]:
    return {
        name: [
            tuple(
                _pool(kind, package.theme, package.marks["sep"], package.marks["mark"])[
                    stream.randrange(POOL)
                ]
                for kind in package.functions[name].parameters
            )
            for _ in range(CALLS)
        ]
        for name in names
    }


def called(function: Any, arguments: Sequence[Any]) -> tuple[Any, str]:
    """A call's result, and the text of the error that it raises instead."""
    try:
        return function(*arguments), ""
    except Exception as error:  # noqa: BLE001 - what a bug leads to
        return None, f"{type(error).__name__}: {error}"


def agrees(expected: Any, found: tuple[Any, str]) -> bool:
    if found[1]:
        return False
    return repr(expected) == repr(found[0]) or same(expected, found[0])


@lru_cache(maxsize=4096)
def _pool(kind: str, theme: Theme, sep: str, mark: str) -> tuple[Any, ...]:
    """Drawn once: most of the time of making tasks would go there."""
    stream = random.Random(derive("repair", "values", kind, theme.rows, sep, mark))
    return tuple(_drawn(kind, theme, (sep, mark), stream) for _ in range(POOL))


def _drawn(kind: str, theme: Theme, marks: tuple[str, str], stream: random.Random) -> Any:
    if kind == "rows":
        return _rows(theme, stream)
    if kind == "text":
        lines = [_line(row, marks[0], stream) for row in _rows(theme, stream)]
        if stream.random() < 0.5:
            odd = ["", "   ", f"{marks[1]} no row"]
            lines.insert(stream.randrange(len(lines) + 1), stream.choice(odd))
        return "\n".join(lines)
    if kind == "line":
        return _line(_row(theme, stream), marks[0], stream)
    numbers = {"number": (0, 3), "count": (1, 3), "width": (2, 8)}
    if kind in numbers:
        return stream.randint(*numbers[kind])
    if kind == "cells":
        return [stream.choice(theme.things), stream.choice(theme.names), _number(stream)]
    if kind == "word":
        return stream.choice(theme.things)
    if kind == "title":
        title = " ".join([stream.choice(theme.names), stream.choice(theme.things)])
        return stream.choice([title, title, f" {title}", f"{title} "])
    if kind == "name":
        name = stream.choice(theme.names)
        return stream.choice([name, name, name.upper()])
    return _number(stream)  # a limit, low, high or value


def _rows(theme: Theme, stream: random.Random) -> list[dict[str, Any]]:
    return [_row(theme, stream) for _ in range((0, 3, 4, 5)[stream.getrandbits(2)])]


def _row(theme: Theme, stream: random.Random) -> dict[str, Any]:
    who, what = theme.names[stream.getrandbits(2)], theme.things[stream.getrandbits(2)]
    numbers = {theme.amount: _number(stream), theme.size: _number(stream)}
    return {theme.who: who, theme.what: what, **numbers}


def _number(stream: random.Random) -> int:
    return NUMBERS[stream.getrandbits(4)]


def _line(row: Mapping[str, Any], sep: str, stream: random.Random) -> str:
    blank = stream.choice(["", " "])
    return f"{blank}{sep}{blank}".join(str(value) for value in row.values())
