"""Paths in the values of a file, made absolute from the file's folder.

Studies are read so, and recipes that come with turnwise; a path in a recipe of one's own is
relative to where one is.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def anchored(value: Any, folder: Path) -> Any:
    """The value with paths from a folder made absolute, in texts and in names of tables: those that
    begin with ./ or ../, and those with a slash or an ending that lead to what is there,
    `file.py:Name` among them."""
    if isinstance(value, Mapping):
        return {anchored(key, folder): anchored(entry, folder) for key, entry in value.items()}
    if isinstance(value, list):
        return [anchored(entry, folder) for entry in value]
    if not isinstance(value, str):
        return value
    place, separator, name = value.rpartition(":")
    path, rest = (place, f":{name}") if separator and place.endswith(".py") else (value, "")
    is_path = "/" in path or re.search(r"\.\w+$", path)
    there = is_path and not path.startswith("/") and os.path.exists(folder / path)  # false of prose
    there = there or path.startswith(("./", "../"))
    return f"{(folder / path).resolve()}{rest}" if there else value
