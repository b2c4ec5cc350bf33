"""The made tasks: a package with one bug in it, an issue, and hidden calls that judge the repair.

A bug becomes a task only if some calls notice it and others do not. The issue shows one call that
goes wrong; it is not among the hidden ones.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from turnwise.environments.tasksets import SOLVED, Draft, TaskSet, drafted
from turnwise.options import Options
from turnwise.ranges import Count
from turnwise.seeds import derive
from turnwise.types import Task
from turnwise_environments.common import identity
from turnwise_environments.repair.mutations import mutants
from turnwise_environments.repair.packages import (
    MODULES,
    Package,
    agrees,
    called,
    draw_calls,
    draw_package,
    namespace,
)
from turnwise_sandbox.calls import encode

LEAST_FAILING = 3
"""Different calls that a bug has to change: one is shown, the others are hidden."""
VISIBLE = 2
"""Calls of each function that the repository's own tests make, of those that pass."""
UNTOUCHED = 2
"""Functions that are called though the bug is not in their reach."""
BUGS_TRIED = 4
DRAFTS_PER_TASK = 10
RANDOM_SCORE = 0.018
"""Measured on the standard tasks: success of an agent that makes a random small change."""
KIND = "calls"

_Call = tuple[str, tuple[Any, ...], Any]
"""Function, arguments, what it should return."""


@dataclass(frozen=True)
class _Broken:
    """A package with a bug, and the calls that pass and fail with it."""

    package: Package
    function: str
    source: str
    failing: list[_Call]
    passing: list[_Call]
    found: list[str]
    """Wrong results of the failing calls, in their order."""


@dataclass(frozen=True)
class MadeRepositories(Options):
    """`count` repositories in each split. No function that is broken in one split, in this wording,
    is broken in the other, and no bug comes twice in packages about the same things."""

    count: Count = 1000

    def load(self) -> TaskSet:
        """Raises ConfigError where there are not so many bugs."""
        scores = SOLVED | ({"random": RANDOM_SCORE} if self == STANDARD else {})
        seen: set[tuple[str, str]] = set()
        drafts = drafted(partial(_draft, seen), 2 * self.count * DRAFTS_PER_TASK)
        return TaskSet.made("repair", drafts, self.count, scores)


STANDARD = MadeRepositories()


def _draft(seen: set[tuple[str, str]], number: int) -> Draft:
    stream = random.Random(derive("repair", number))
    package = draw_package(stream)
    name = stream.choice(list(package.functions))

    def make() -> Task | None:
        broken = _broken(package, name, seen, stream)
        if broken is None:
            return None
        seen.add((package.name, broken.source))
        return _task(broken, stream)

    return Draft(str(number), make, split_key=package.functions[name].source)


@lru_cache(maxsize=4096)
def _mutants(source: str) -> list[str]:
    return list(mutants(source))


def _broken(
    package: Package, name: str, seen: set[tuple[str, str]], stream: random.Random
) -> _Broken | None:
    known = _mutants(package.functions[name].source)
    found = [one for one in known if (package.name, one) not in seen]
    if not found:
        return None
    touched = package.users(name)
    others = [function for function in package.functions if function not in touched]
    beside = stream.sample(others, min(UNTOUCHED, len(others)))
    calls, right = draw_calls(package, [*touched, *beside], stream), namespace(package)
    for mutant in stream.sample(found, min(BUGS_TRIED, len(found))):
        broken = _tried(package, name, mutant, calls, right)
        different = {repr(call[:2]) for call in broken.failing}
        if len(different) >= LEAST_FAILING and broken.passing:
            return broken
    return None


def _tried(
    package: Package,
    name: str,
    mutant: str,
    calls: Mapping[str, Sequence[tuple[Any, ...]]],
    right: Mapping[str, Any],
) -> _Broken:
    wrong = namespace(package, {name: mutant})
    touched = package.users(name)
    broken = _Broken(package, name, mutant, [], [], [])
    for function, entries in calls.items():
        for arguments in entries:
            expected, _ = called(right[function], arguments)
            found = called(wrong[function], arguments) if function in touched else (expected, "")
            if agrees(expected, found):
                broken.passing.append((function, arguments, expected))
            else:
                broken.failing.append((function, arguments, expected))
                broken.found.append(found[1] or repr(found[0]))
    return broken


def _task(broken: _Broken, stream: random.Random) -> Task:
    package = broken.package
    names = sorted({function for function, _, _ in broken.failing})
    shown_function = stream.choice(names)
    places = [place for place, call in enumerate(broken.failing) if call[0] == shown_function]
    place = min(places, key=lambda one: (len(repr(broken.failing[one][1])), one))
    shown = broken.failing[place]
    hidden = [call for call in broken.failing if call[1] != shown[1] or call[0] != shown[0]]
    module = package.functions[broken.function].module
    path = f"{package.name}/{module}.py"
    secret = {
        "kind": KIND,
        "fail_to_pass": [_plain(package, call) for call in hidden],
        "pass_to_pass": [_plain(package, call) for call in broken.passing],
        "solution": {path: package.module(module)},
    }
    prompt = _prompt(package, shown, broken.found[place])
    files = repository(package, broken)
    info = {"module": module, "shown": "caller" if shown_function != broken.function else "itself"}
    data = {"files": files, "sources": [f"{package.name}/**"]}
    return Task(identity([prompt, files]), prompt, secret, data, info)


def _plain(package: Package, call: _Call) -> list[Any]:
    function, arguments, expected = call
    return [package.target(function), encode(list(arguments)), encode(expected)]


def _prompt(package: Package, shown: _Call, found: str) -> str:
    function, arguments, expected = shown
    module = package.functions[function].module
    given = ", ".join(map(repr, arguments))
    return (
        f"The package {package.name} in the current folder has a bug.\n\n"
        f">>> from {package.name}.{module} import {function}\n>>> {function}({given})\n{found}\n\n"
        f"It should be {expected!r}. The documentation of all functions is right. Repair the "
        "package, and answer when that is done."
    )


def repository(package: Package, broken: _Broken) -> dict[str, str]:
    """The files of a package with its bug, and its own tests, which pass."""
    changed = {broken.function: broken.source}
    modules = sorted({function.module for function in package.functions.values()})
    files = {
        "README.md": f"# {package.name}\n\n"
        + "".join(f"- `{name}`: {MODULES[name]}\n" for name in modules).replace(
            "$rows", package.theme.rows
        )
        + "\nTests: `python -m unittest`\n",
        f"{package.name}/__init__.py": f'"""{package.theme.rows.capitalize()}."""\n',
        "tests/__init__.py": "",
    }
    for module in modules:
        files[f"{package.name}/{module}.py"] = package.module(module, changed)
        if any(package.functions[name].module == module for name, _, _ in broken.passing):
            files[f"tests/test_{module}.py"] = _tests(package, module, broken.passing)
    return files


def _tests(package: Package, module: str, passing: Sequence[_Call]) -> str:
    called_here = {name for name, _, _ in passing}
    functions = [
        one.name
        for one in package.functions.values()
        if one.module == module and one.name in called_here
    ]
    lines = ["import unittest", "", f"from {package.name}.{module} import {', '.join(functions)}"]
    lines += ["", "", f"class {module.capitalize()}(unittest.TestCase):"]
    for name in functions:
        calls = [call for call in passing if call[0] == name][:VISIBLE]
        lines += [f"    def test_{name}(self):"]
        lines += [
            f"        self.assertEqual({name}({', '.join(map(repr, arguments))}), {expected!r})"
            for _, arguments, expected in calls
        ]
        lines += [""]
    return "\n".join(lines)
