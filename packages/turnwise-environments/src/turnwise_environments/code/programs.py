"""Programs to repair, in QuixBugs' format: `name`, `buggy`, `correct`, and `tests`.

A test is [arguments, expected], in JSON, so results are compared as JSON has them: tuples and
generators are lists, and 2.0 is 2. A function with a parameter `epsilon` may be off by it. Not
here: programs whose tests are more than calls.
"""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from turnwise.environments.tasksets import TaskFile, TaskSet
from turnwise.errors import DataError
from turnwise.types import Task
from turnwise_environments.code.tasks import task_id, tasks_content

SLOW = {("knapsack", 6404180), ("levenshtein", "amanaplanacanalpanama")}
"""Program and first argument of the tests that even the correct program has no time or memory for:
They are left out."""
TOLERANT = "epsilon"

_AS_JSON = """
from collections.abc import Iterator
from itertools import islice

from {module} import {name} as function


def plain(value):
    if isinstance(value, Iterator):
        value = list(islice(value, 100_000))
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return int(value) if type(value) is float and value.is_integer() else value


def call(*arguments):
    return plain(function(*arguments))
"""


def as_json(module: str, name: str) -> str:
    """A module whose `call` is the function, with its results as JSON has them."""
    return _AS_JSON.format(module=module, name=name)


@dataclass(frozen=True)
class ProgramFile(TaskFile):
    """The programs of a .jsonl or .json file in QuixBugs' format."""

    def load(self) -> TaskSet:
        """Read them. Raises DataError, naming file and line or entry, for a missing field or a text
        that is not a program."""
        return TaskSet.read(self, read_program, "programs", content=tasks_content)


def read_program(record: Mapping[str, Any], where: str) -> Task:
    """The task of a record. Raises DataError as `ProgramFile.load` does."""
    for name in ("name", "buggy", "correct"):
        if not isinstance(record.get(name), str) or not record[name].strip():
            raise DataError(f"{where}: {name!r} must be there, a string that is not empty")
    tests = record.get("tests")
    if not isinstance(tests, list) or not tests or not all(map(_is_test, tests)):
        raise DataError(f"{where}: 'tests' must be a list of [[arguments], expected]")
    name = record["name"]
    parameters = _parameters(record["correct"], name, where)
    place = parameters.index(TOLERANT) if TOLERANT in parameters else None
    cases = [
        [arguments, _plain(expected), None if place is None else float(arguments[place])]
        for arguments, expected in tests
        if not (arguments and isinstance(arguments[0], str | int) and (name, arguments[0]) in SLOW)
    ]
    prompt = (
        f"The Python function {name} does not do what it should. Repair it, and give the whole "
        f"program.\n\n{record['buggy'].strip()}"
    )
    secret = {"name": name, "solution": record["correct"], "cases": cases, "as_json": True}
    data = {"buggy": record["buggy"]}
    return Task(task_id(prompt), prompt, secret, data, info={"program": name})


def _is_test(test: Any) -> bool:
    return isinstance(test, list) and len(test) == 2 and isinstance(test[0], list)


def _parameters(source: str, name: str, where: str) -> list[str]:
    try:
        nodes = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise DataError(f"{where}: 'correct' is no Python: {error}") from None
    for node in nodes:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return [argument.arg for argument in node.args.args]
    raise DataError(f"{where}: 'correct' has no function {name!r}")


def _plain(value: Any) -> Any:
    """A result as `as_json` gives it."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
