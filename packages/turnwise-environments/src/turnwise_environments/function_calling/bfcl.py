"""Calls in the format of the Berkeley Function-Calling Leaderboard: questions of one turn, and a
file beside them with the values that each parameter may have.

Values are compared as the leaderboard does: texts without spaces, case and `,./-_*^`; numbers and
truth values by value and kind; a parameter that may be left out has "" among its values.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from turnwise.environments.records import read_each
from turnwise.environments.tasksets import TaskFile, TaskSet
from turnwise.errors import DataError
from turnwise.types import Task, ToolCall
from turnwise_environments.common import identity
from turnwise_environments.rewards.toolrl import same_value, write_calls

_PASSED_OVER = re.compile(r"[ ,./\-_*^]")


@dataclass(frozen=True)
class LeaderboardFile(TaskFile):
    """The questions of one of BFCL's files. A question of several turns is left out."""

    answers: str = field(kw_only=True)
    """The file of the same name in `possible_answer`."""

    def load(self) -> TaskSet:
        """Raises DataError, naming file and line, where nothing can be read."""

        def answer(record: Mapping[str, Any], where: str) -> tuple[str, Any]:
            if not isinstance(record.get("ground_truth"), list):
                raise DataError(f"{where}: 'ground_truth' must be there, a list")
            return str(record.get("id")), record["ground_truth"]

        accepted, broken = read_each(Path(self.answers).expanduser(), answer)
        known = dict(accepted)
        found = TaskSet.read(self, lambda record, where: _task(record, known, where))
        return replace(found, warnings=[*found.warnings, *broken])


def is_accepted(calls: Sequence[ToolCall], accepted: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the calls are the accepted ones, in any order."""
    owners: dict[int, int] = {}

    def has_place(number: int, tried: set[int]) -> bool:
        """Give a call an accepted one of its own, which others may have to make free."""
        for place in range(len(accepted)):
            if place not in tried and _fits(calls[number], accepted[place]):
                tried.add(place)
                if place not in owners or has_place(owners[place], tried):
                    owners[place] = number
                    return True
        return False

    return len(calls) == len(accepted) and all(has_place(one, set()) for one in range(len(calls)))


def _fits(call: ToolCall, accepted: Mapping[str, Any]) -> bool:
    return call.name in accepted and _is_same(dict(call.arguments), accepted[call.name])


def _is_same(given: Any, wanted: Any) -> bool:
    """Whether a value is a wanted one; an object's wanted fields are lists of values."""
    if isinstance(wanted, dict):
        return isinstance(given, dict) and all(
            any(_is_same(given[name], one) for one in _values(wanted, name))
            if name in given
            else "" in _values(wanted, name)
            for name in {**wanted, **given}
        )
    if isinstance(wanted, list):
        pairs = isinstance(given, list) and len(given) == len(wanted)
        return pairs and all(map(_is_same, given, wanted))
    if isinstance(wanted, str):
        return isinstance(given, str) and _plain(given) == _plain(wanted)
    return same_value(given, wanted)


def _values(wanted: Mapping[str, Any], name: str) -> list[Any]:
    found = wanted.get(name, [])
    return found if isinstance(found, list) else [found]


def _plain(text: str) -> str:
    return _PASSED_OVER.sub("", text).lower().replace("'", '"')


def _first(wanted: Any) -> Any:
    """A value as a call has it, of the first of each list of values."""
    if isinstance(wanted, list):
        return [_first(one) for one in wanted]
    if not isinstance(wanted, dict):
        return wanted
    firsts = {name: [one for one in _values(wanted, name) if one != ""][:1] for name in wanted}
    return {name: _first(found[0]) for name, found in firsts.items() if found}


def _task(record: Mapping[str, Any], answers: Mapping[str, Any], where: str) -> Task | str:
    turns, tools = record.get("question"), record.get("function")
    if isinstance(turns, list) and len(turns) > 1:
        return "it has several turns"
    if not isinstance(turns, list) or not isinstance(tools, list) or not turns:
        raise DataError(f"{where}: 'question' and 'function' must be there, lists")
    accepted = answers.get(str(record.get("id")))
    if accepted is None:
        raise DataError(f"{where}: the file of answers has none for {record.get('id')!r}")
    try:
        said = "\n".join(f"<{one['role']}> {one['content']} </{one['role']}>" for one in turns[0])
        calls = [
            ToolCall(name, dict(_first(one))) for call in accepted for name, one in call.items()
        ]
        offered = {tool["name"] for tool in tools}
    except (TypeError, ValueError, KeyError, AttributeError):
        problem = "a question is messages, a function has a name, an answer is {tool: values}"
        raise DataError(f"{where}: {problem}") from None
    for call in calls:
        if call.name not in offered:
            raise DataError(f"{where}: its answer calls {call.name!r}, which 'function' lacks")
    prompt = "Tools:\n" + "\n".join(map(json.dumps, tools)) + f"\n\n{said}"
    if not is_accepted(calls, accepted):
        return "no calls fit its answer"
    secret = {"calls": write_calls(calls), "response": "", "accepted": accepted}
    return Task(identity(prompt), prompt, secret, info={"calls": len(accepted)})
