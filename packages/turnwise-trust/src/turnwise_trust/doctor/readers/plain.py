"""JSON lines of one's own, a line for each episode, with a mapping given on the command line.

`reward=score step=global_step group=prompt_id` says that the field `score` is the reward. A name
with dots is a field in a field: `reward=result.score`. What `FIELDS` does not name is a part of the
reward: `parts.format=format_score`.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from turnwise.errors import ConfigError
from turnwise_trust.doctor.log import Event, Remark, Rollout
from turnwise_trust.doctor.readers.lines import number, objects, said, whole


def _truth(value: Any) -> bool | None:
    return bool(value) if isinstance(value, bool | int | float) else None


def _name(value: Any) -> str | None:
    return None if value is None else said(value) or str(value)


def _reward(value: Any) -> float | None:
    return float(value) if isinstance(value, bool) else number(value)


FIELDS: Mapping[str, Callable[[Any], Any]] = {
    "step": whole,
    "group": _name,
    "reward": _reward,
    "text": said,
    "length": whole,
    "success": _truth,
    "truncated": _truth,
    "malformed": _truth,
    "tool_calls": whole,
    "tool_errors": whole,
}
PART = "parts."


def mapping_of(words: list[str]) -> dict[str, str]:
    """The mapping that words as `reward=score` give. Raises ConfigError for any other."""
    found = {}
    for word in words:
        name, given, field = word.partition("=")
        if not given or not field or not (name in FIELDS or name.startswith(PART)):
            raise ConfigError(
                f"{word} is no file, no folder and no field: use NAME=FIELD with NAME one of "
                f"{', '.join(FIELDS)}, or {PART}NAME=FIELD"
            )
        found[name] = field
    return found


def read_plain(file: Path, mapping: Mapping[str, str]) -> Iterator[Event]:
    """Episodes of a file, by the mapping."""
    missing = set(mapping.values())
    for row in objects(file):
        if isinstance(row, Remark):
            yield row
            continue
        missing -= {field for field in missing if _at(row, field) is not None}
        yield _rollout(row, mapping)
    for field in sorted(missing):
        yield Remark(f"no line of {file.name} has the field {field}")


def _rollout(row: Mapping[str, Any], mapping: Mapping[str, str]) -> Rollout:
    found = {name: FIELDS[name](_at(row, mapping[name])) for name in FIELDS if name in mapping}
    parts = {
        name.removeprefix(PART): value
        for name, field in mapping.items()
        if name.startswith(PART) and (value := _reward(_at(row, field))) is not None
    }
    return Rollout(**{**found, "text": found.get("text") or "", "parts": parts})


def _at(row: Any, field: str) -> Any:
    """The value of a field, or of one in others. Example: _at({"a": {"b": 1}}, "a.b") is 1."""
    if isinstance(row, Mapping) and field in row:
        return row[field]
    name, _, rest = field.partition(".")
    return _at(row[name], rest) if rest and isinstance(row, Mapping) and name in row else None
