"""Tasks in the format of tau-bench (arXiv 2406.12045), and in tau2-bench's where it says the same.

A record of the former has `instruction`, `actions` (`name`, `kwargs`) and `outputs`; of the latter
`user_scenario` and `evaluation_criteria` (`actions`, `communicate_info`). What a task expects is
found by doing the actions: the difference that they make in the database. `script`, which neither
has, is what the scripted user says.
"""

import pickle
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.environments.records import read_each
from turnwise.errors import DataError, ToolError
from turnwise.types import Task
from turnwise_environments.common import identity
from turnwise_environments.desk.own_tools import Data, Holder, OwnTools, differences

GO_ON = "Yes, please go on. Tell me what you found and what you did."
COUNTED = frozenset({"DB", "COMMUNICATE"})
"""Entries of tau2-bench's `reward_basis` that can be judged here."""
ASSERTED = {"NL_ASSERTION": "nl_assertions", "ENV_ASSERTION": "env_assertions"}
"""Entries of it that ask for nothing where a record has none of these."""
LEFT_OUT = {
    "idle": "solved by doing nothing (the actions change nothing, and nothing has to be told)",
    "basis": "judged by more than the database and what is told",
    "user": "in which the user has tools",
    "state": "that begin with a state or a conversation of their own",
}


@dataclass(frozen=True)
class Expected:
    instruction: str
    actions: tuple[tuple[str, Mapping[str, Any]], ...]
    outputs: tuple[str, ...]
    script: tuple[tuple[str, str], ...]


def read_tasks(
    path: Path, data: Data, tools: OwnTools, policy: str, scripted: bool
) -> tuple[list[Task], tuple[str, ...]]:
    """The tasks of a file, each once, and a sentence on each kind of record that is left out or
    odd. Raises DataError, naming file and line or entry, where no task is left."""
    dump, found, counts = pickle.dumps(data), dict[str, Task](), Counter[str]()

    def read(record: Mapping[str, Any], where: str) -> None:
        why = _unfit(record)
        if why:
            counts[why] += 1
            return
        expected = _expected(record, where)
        after = Holder(pickle.loads(dump))
        counts["failing"] += not _done(after, tools, expected, where)
        changes = differences(data, after.data)
        if not changes and not expected.outputs:
            counts["idle"] += 1
            return
        task = _task(expected, changes, policy, scripted)
        found[task.id] = task

    _, broken = read_each(path, read)
    told = [
        f"{counts[why]} tasks {words}: left out" for why, words in LEFT_OUT.items() if counts[why]
    ]
    told += broken
    if not found:
        raise DataError(
            f"{path}: there are no tasks to play in it; {'; '.join(told) or 'it is empty'}"
        )
    if counts["failing"]:
        told.append(f"{counts['failing']} tasks have an action of their own that fails: kept")
    return list(found.values()), tuple(told)


def _unfit(record: Mapping[str, Any]) -> str:
    """Why a record of tau2-bench's cannot be played here; "" where it can."""
    criteria = record.get("evaluation_criteria")
    if not isinstance(criteria, Mapping):
        return ""
    basis = {str(entry) for entry in criteria.get("reward_basis") or COUNTED}
    if any(criteria.get(ASSERTED[one]) if one in ASSERTED else True for one in basis - COUNTED):
        return "basis"
    actions, state = criteria.get("actions") or (), record.get("initial_state") or {}
    if any(isinstance(one, Mapping) and one.get("requestor") == "user" for one in actions):
        return "user"
    return "state" if not isinstance(state, Mapping) or any(state.values()) else ""


def _expected(record: Mapping[str, Any], where: str) -> Expected:
    if "evaluation_criteria" in record or "user_scenario" in record:
        criteria, arguments = record.get("evaluation_criteria") or {}, "arguments"
        if not isinstance(criteria, Mapping):
            raise DataError(f"{where}: 'evaluation_criteria' has to be an object")
        instruction: Any = "\n".join(_sentences(record.get("user_scenario") or {}))
        actions, outputs = criteria.get("actions") or [], criteria.get("communicate_info") or []
    else:
        arguments, instruction = "kwargs", record.get("instruction")
        actions, outputs = record.get("actions"), record.get("outputs", [])
    script = record.get("script", [["", GO_ON]])
    if not isinstance(instruction, str) or not instruction.strip():
        raise DataError(f"{where}: there is no 'instruction' (or 'user_scenario') for the user")
    if not isinstance(actions, list) or not isinstance(outputs, list):
        raise DataError(f"{where}: 'actions' and 'outputs' have to be lists")
    try:
        return Expected(
            instruction.strip(),
            tuple((str(one["name"]), dict(one.get(arguments) or {})) for one in actions),
            tuple(str(one) for one in outputs if str(one).strip()),
            tuple((str(word), str(said)) for word, said in script),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise DataError(
            f"{where}: an action is {{name, {arguments}}}, the script a list of [word, sentence]"
        ) from None


def _sentences(scenario: Any) -> Iterator[str]:
    if isinstance(scenario, Mapping):
        for name, value in scenario.items():
            lines = list(_sentences(value))
            plain = isinstance(value, str) and name != "instructions"
            yield from (f"{name.replace('_', ' ')}: {line}" if plain else line for line in lines)
    elif isinstance(scenario, str) and scenario.strip():
        yield scenario.strip()


def _done(holder: Holder, tools: OwnTools, expected: Expected, where: str) -> bool:
    """Do the actions. Whether none of them failed, as some of tau-bench's do."""
    sound = True
    for name, arguments in expected.actions:
        if name not in tools.functions:
            raise DataError(f"{where}: there is no tool {name!r} for one of its actions")
        try:
            holder.call(tools, name, arguments)
        except ToolError:
            sound = False
    return sound


def _task(expected: Expected, changes: Mapping[str, Any], policy: str, scripted: bool) -> Task:
    prompt = f"{policy}\nCustomer: {expected.instruction}" if scripted else policy
    data = {"instruction": expected.instruction, "script": [list(one) for one in expected.script]}
    secret = {
        "actions": [[name, dict(arguments)] for name, arguments in expected.actions],
        "changes": dict(changes),
        "outputs": list(expected.outputs),
    }
    info = {"actions": len(expected.actions), "outputs": len(expected.outputs)}
    return Task(identity([policy, data, secret]), prompt, secret, data, info)
