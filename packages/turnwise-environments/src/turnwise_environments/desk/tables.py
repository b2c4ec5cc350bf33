"""A database as JSON tables, and the difference between two states of it.

A difference is small where the database is large: it is what tasks expect and what snapshots hold.
Not here: the tools that change the tables (`own_tools.py`).
"""

import copy
import json
from pathlib import Path
from typing import Any

from turnwise.environments.records import read_text
from turnwise.errors import DataError

Data = dict[str, Any]
Changes = dict[str, Any]
"""Table -> {"rows": {key: [row], or [] where it is gone}}, or {"whole": [table], or []}."""


def read_tables(path: Path) -> Data:
    """The tables of a .json file (an object, a table by each key), or of a folder of .json files,
    a table each, by the file's name. Raises DataError for what is missing or broken."""
    if path.is_dir():
        files = sorted(path.glob("*.json"))
        if not files:
            raise DataError(f"{path}: there are no .json files in it")
        return {file.stem: _parsed(file) for file in files}
    if not path.is_file():
        raise DataError(f"{path}: there is no such file or folder")
    data = _parsed(path)
    if not isinstance(data, dict):
        raise DataError(f"{path}: expected one JSON object, a table by each key")
    return data


def differences(before: Data, after: Data) -> Changes:
    """The changes that turn `before` into `after`, as JSON has them."""
    found: Changes = {}
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if name in before and name in after and old == new:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            found[name] = {"rows": _changed_rows(old, new)}
        else:
            found[name] = {"whole": [new] if name in after else []}
    plain: Changes = json.loads(json.dumps(found, default=str))
    return plain


def write(changes: Changes, data: Data) -> None:
    """Make the changes in `data`, which shares nothing with them afterwards."""
    for name, change in copy.deepcopy(changes).items():
        if "whole" in change:
            _put(data, name, change["whole"])
        for key, row in change.get("rows", {}).items():
            _put(data[name], key, row)


def _changed_rows(old: Data, new: Data) -> dict[str, list[Any]]:
    return {
        str(key): [new[key]] if key in new else []
        for key in sorted({**old, **new}, key=str)
        if key not in old or key not in new or old[key] != new[key]
    }


def _put(table: Data, key: str, row: list[Any]) -> None:
    if row:
        table[key] = row[0]
    else:
        table.pop(key, None)


def _parsed(path: Path) -> Any:
    try:
        return json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise DataError(f"{path}, line {error.lineno}: broken JSON: {error.msg}") from None
    except RecursionError:
        raise DataError(f"{path}: this JSON is nested too deeply: is it broken?") from None
