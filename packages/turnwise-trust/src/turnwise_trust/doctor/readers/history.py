"""Numbers of steps that a tracker kept: rows of JSON or CSV, and lines of a console.

Formats: `wandb.Api().run(...).scan_history()` written as JSON lines, and the CSV that its pages
export (columns `Step`, `RUN - NAME`, and `…__MIN`, `…__MAX`, which are left out); `metrics.jsonl`
of prime-rl 0.8 (`monitors/file.py`); verl 0.8's file logger (`{"step", "data"}`) and its console
(`step:1 - actor/entropy:0.4 - …`); the console of transformers 5 and so of TRL, whose lines
(`{'loss': '0.1', …}`) name no step and are counted.
"""

import csv
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from turnwise.errors import DataError
from turnwise_trust.doctor.log import Event, Measured, Remark
from turnwise_trust.doctor.names import STEP_NAMES
from turnwise_trust.doctor.readers.lines import LONGEST, number, objects, whole

CONSOLE = re.compile(r"step:(\d+) - (.+)")
SPELLED = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
DICTIONARY = re.compile(r"\{'(?:loss|reward|num_tokens|train_runtime)': .+\}")
ENTRY = re.compile(r"'([\w./@-]+)': '?([-+.\w]+)'?")
PAIR = re.compile(r"([\w./@-]+):(?:np\.float\d+\()?([-+.\w]+)\)?")


def read_history(file: Path) -> Iterator[Event]:
    """Rows of JSON, one for a step, or several for different numbers of it."""
    last, again = 0, False
    for row in objects(file):
        if isinstance(row, Remark):
            yield row
            continue
        inner = row.get("data")
        values = {**inner, "step": row.get("step")} if isinstance(inner, dict) else row
        for found in measured(values):
            if found.step < last / 2 and not again:
                again = True
                yield Remark(
                    f"{file.name} begins again at step {found.step} after step {last}: steps that "
                    "are there twice are averaged, so give each run a file of its own"
                )
            last = found.step
            yield found


def read_csv(file: Path) -> Iterator[Event]:
    """A table with a column for each number, one of them the step."""
    try:
        with file.open(encoding="utf-8-sig", errors="replace", newline="") as opened:
            table = csv.DictReader(line.replace("\0", "") for line in opened)
            names = {
                column: column.rpartition(" - ")[2]
                for column in table.fieldnames or ()
                if not column.endswith(("__MIN", "__MAX"))
            }
            if again := [name for name, count in Counter(names.values()).items() if count > 1]:
                yield Remark(
                    f"{file.name} has {again[0]} of several runs, and the last column counts: give "
                    "each run a file of its own"
                )
            for row in table:
                pairs = ((name, row[column] or "") for column, name in names.items())
                yield from measured(dict(_floats(pairs)))
    except (OSError, csv.Error) as error:
        raise DataError(f"{file} cannot be read: {error}") from None


def read_console(file: Path) -> Iterator[Event]:
    """Lines of a console that have a step; others are left out."""
    try:
        with file.open(encoding="utf-8", errors="replace") as opened:
            rows = 0
            while line := opened.readline(LONGEST):
                if found := CONSOLE.search(line):
                    yield Measured(int(found[1]), dict(_floats(PAIR.findall(found[2]))))
                elif found := DICTIONARY.search(line):
                    rows += 1
                    yield Measured(rows, dict(_floats(ENTRY.findall(found[0]))))
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}") from None


def measured(values: Mapping[str, Any]) -> Iterator[Measured]:
    """A row as numbers of its step, W&B's texts for NaN and infinity among them; nothing of a row
    without a step."""
    found = (whole(values.get(name)) for name in STEP_NAMES)
    step = next((one for one in found if one is not None), None)
    if step is not None:
        known = {name: SPELLED.get(str(value), value) for name, value in values.items()}
        yield Measured(step, {k: v for k, v in known.items() if number(v) is not None})


def _floats(pairs: Any) -> Iterator[tuple[str, float]]:
    for name, text in pairs:
        try:
            yield name, float(text)
        except ValueError:
            continue
