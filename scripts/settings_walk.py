#!/usr/bin/env python3
"""Follows the settings of a run through the core: `python -m scripts.settings_walk`.

From `turnwise.api.train` on, each call that passes on the recipe, a section or a value of it is
followed, in the order of the code, depth first; a function is gone through once. A room is a file;
a climb is a move to a room on a higher floor of the import contract. The walk ends where settings
are kept in an object, where a part is made of them, and at an error. Nothing is run: functions are
found by their names, a method by the only class of the core that has one of that name.
"""

import ast
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from turnwise import config
from turnwise.config import Section

ROOT = Path(__file__).resolve().parents[1]
Function = ast.FunctionDef | ast.AsyncFunctionDef
Place = tuple[str, str]
"""A module, and a function in it: ("turnwise.api", "train")."""


def walk() -> list[Place]:
    """The functions that the settings come to, in their order."""
    return list(_from(("turnwise.api", "train"), frozenset({"recipe"}), set()))


def rooms(places: Iterable[Place]) -> list[str]:
    """The modules in the order of the way, each as often as it is entered anew."""
    entered: list[str] = []
    for room, _ in places:
        if entered[-1:] != [room]:
            entered.append(room)
    return entered


def climbs(entered: Sequence[str]) -> int:
    """The number of moves to a higher floor."""
    floors = [_floor(room) for room in entered]
    return sum(after > before for before, after in pairwise(floors))


@dataclass(frozen=True)
class _Module:
    functions: dict[str, Function]
    """Functions, and methods as `Class.method`."""
    imported: dict[str, Place]


@cache
def _modules() -> dict[str, _Module]:
    found = {}
    for path in sorted((ROOT / "src").rglob("*.py")):
        name = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
        found[name.removesuffix(".__init__")] = _read(ast.parse(path.read_text()))
    return found


def _read(tree: ast.Module) -> _Module:
    functions, imported = {}, {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            imported |= {
                each.asname or each.name: (node.module or "", each.name) for each in node.names
            }
    for node in tree.body:
        if isinstance(node, Function):
            functions[node.name] = node
        if isinstance(node, ast.ClassDef):
            methods = [each for each in node.body if isinstance(each, Function)]
            functions |= {f"{node.name}.{each.name}": each for each in methods}
    return _Module(functions, imported)


@cache
def _methods() -> dict[str, list[Place]]:
    """The methods of a name, in all classes."""
    found: dict[str, list[Place]] = {}
    for room, module in _modules().items():
        for name in module.functions:
            if "." in name:
                found.setdefault(name.partition(".")[2], []).append((room, name))
    return found


@cache
def _floor(room: str) -> int:
    """The floor of a module in the first import contract; the ground is 0."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    floors = reversed(contracts["contracts"][0]["layers"])
    return next(
        number
        for number, floor in enumerate(floors)
        if any(f"{room}.".startswith(f"{each}.") for each in floor.split(" | "))
    )


@cache
def _section_classes() -> frozenset[str]:
    known = [one for one in vars(config).values() if isinstance(one, type)]
    return frozenset(one.__name__ for one in known if issubclass(one, Section))


def _from(place: Place, settings: frozenset[str], seen: set[Place]) -> Iterator[Place]:
    """Enter a function in which these names are settings."""
    yield place
    if place in seen or place[0] == "turnwise.config.section":
        return
    seen.add(place)
    function, known = _modules()[place[0]].functions[place[1]], set(settings)
    for node in _in_order(function.body):
        if isinstance(node, ast.Call):
            target = _target(place, node)
            passed = _passed(node, known)
            if target is not None and passed:
                yield from _from(target, _parameters(target, passed), seen)
        else:
            known |= _named(place, node, known)


def _in_order(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Calls, and statements that give names, as they are run: arguments before their call, values
    before their names."""
    for node in nodes:
        if isinstance(node, ast.Raise):
            continue
        targets = [*getattr(node, "targets", ()), getattr(node, "target", None)]
        yield from _in_order(each for each in ast.iter_child_nodes(node) if each not in targets)
        if isinstance(node, ast.Call | ast.Assign | ast.AnnAssign | ast.NamedExpr):
            yield node


def _is_setting(node: ast.AST | None, known: set[str]) -> bool:
    """Whether an expression is the recipe, or read from it."""
    match node:
        case ast.Name(name):
            return name in known
        case ast.Attribute(value) | ast.Subscript(value) | ast.Starred(value):
            return _is_setting(value, known)
        case ast.Call(ast.Attribute(value, "model_copy")):
            return _is_setting(value, known)
    return False


def _named(place: Place, node: ast.AST, known: set[str]) -> set[str]:
    """The names that a statement gives to settings."""
    targets = getattr(node, "targets", None) or [getattr(node, "target", None)]
    value = getattr(node, "value", None)
    if isinstance(targets[0], ast.Tuple) and isinstance(value, ast.Tuple):
        pairs = list(zip(targets[0].elts, value.elts, strict=False))
    else:
        pairs = [(targets[0], value)]
    return {
        name.id
        for name, given in pairs
        if isinstance(name, ast.Name)
        and (_is_setting(given, known) or _gives_settings(place, given))
    }


def _gives_settings(place: Place, node: ast.AST | None) -> bool:
    """Whether an expression is a call of a function that returns a section."""
    target = _target(place, node) if isinstance(node, ast.Call) else None
    if target is None:
        return False
    returned = _modules()[target[0]].functions[target[1]].returns
    return returned is not None and ast.unparse(returned).strip("\"'") in _section_classes()


def _passed(call: ast.Call, known: set[str]) -> set[int | str]:
    """The arguments of a call that are settings: places, and names of keywords."""
    places = {at for at, one in enumerate(call.args) if _is_setting(one, known)}
    return places | {one.arg or "" for one in call.keywords if _is_setting(one.value, known)}


def _parameters(place: Place, passed: set[int | str]) -> frozenset[str]:
    """The parameters that these arguments are."""
    function = _modules()[place[0]].functions[place[1]]
    names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    names = names[1:] if names[:1] in (["self"], ["cls"]) else names
    rest = function.args.vararg.arg if function.args.vararg else ""
    return frozenset(
        at if isinstance(at, str) else names[at] if at < len(names) else rest for at in passed
    )


def _target(place: Place, call: ast.Call) -> Place | None:
    """The function that a call enters, if it is one of the core's that are known by name."""
    room = place[0]
    match call.func:
        case ast.Name(name):
            return _function(room, name)
        case ast.Attribute(ast.Name("self" | "cls"), name) if "." in place[1]:
            own = (room, f"{place[1].partition('.')[0]}.{name}")
            return own if own[1] in _modules()[room].functions else None
        case ast.Attribute(ast.Name(holder), name):
            if found := _function(room, f"{holder}.{name}"):
                return found
            module, inner = _modules()[room].imported.get(holder, ("", ""))
            if f"{module}.{inner}" in _modules():
                return _function(f"{module}.{inner}", name)
    if isinstance(call.func, ast.Attribute):
        found = _methods().get(call.func.attr, [])
        return found[0] if len(found) == 1 else None
    return None


def _function(room: str, name: str) -> Place | None:
    """The function, method, or class's `__init__`, of a name as it is used in a module."""
    head, _, rest = name.partition(".")
    module = _modules().get(room)
    while module is not None:
        for each in (name, f"{head}.__init__"):
            if each in module.functions and (not rest or each == name):
                return room, each
        if head not in module.imported:
            return None
        room, head = module.imported[head]
        name = f"{head}.{rest}" if rest else head
        module = _modules().get(room)
    return None


def main() -> None:
    """Print the way, and its figures."""
    places = walk()
    entered = rooms(places)
    for before, place in zip(["", *(room for room, _ in places)], places, strict=False):
        print(f"{'' if place[0] == before else place[0]:42}{place[1]}")
    print(f"{len(set(entered))} rooms, {len(entered)} stays, {climbs(entered)} climbs")


if __name__ == "__main__":
    main()
