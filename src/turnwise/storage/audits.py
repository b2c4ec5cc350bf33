"""Audits in a run's folder: what was checked of it, with figure, bound and result."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from turnwise.errors import DataError
from turnwise.storage.run_folder import RunFolder, writing

FOLDER = "audits"
BEFORE_RUN = "before_run"


@dataclass(frozen=True)
class Finding:
    """One check, or one measurement."""

    check: str
    """In words."""
    figure: float | None = None
    low: float | None = None
    high: float | None = None
    bound: float | None = None
    """The most that it may be, where there is such a number."""
    passed: bool | None = None
    """None for a measurement that nothing depends on."""
    note: str = ""
    """Evidence, in sentences."""
    replay: str = ""
    """How to see it again: a task and a script, or a command."""
    remedy: str = ""
    """A sentence that says what to do about it."""


def write_audit(folder: RunFolder, name: str, title: str, findings: Iterable[Finding]) -> None:
    rows = [  # NaN, which equals nothing, is no JSON
        {key: None if value != value else value for key, value in asdict(finding).items()}
        for finding in findings
    ]
    text = json.dumps({"title": title, "findings": rows}, indent=2) + "\n"
    file = folder.path / FOLDER / f"{name}.json"
    with writing(file):
        file.parent.mkdir(exist_ok=True)  # folders of earlier versions lack it
    folder.write_text(f"{FOLDER}/{name}.json", text)


def audits(path: Path) -> dict[str, str]:
    """The names and the titles of a run's audits. Raises DataError for a damaged one."""
    files = sorted((path / FOLDER).glob("*.json"))
    return {file.stem: str(read_audit(path, file.stem)["title"]) for file in files}


def read_audit(path: Path, name: str) -> Mapping[str, Any]:
    """An audit's title and its findings. Raises DataError for a damaged one."""
    file = path / FOLDER / f"{name}.json"
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        return {"title": found["title"], "findings": [Finding(**one) for one in found["findings"]]}
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise DataError(f"{file} cannot be read: {error!r}") from None
