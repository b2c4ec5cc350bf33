"""How often the audit alarms in environments without a fault: several seeds of each.

    .venv/bin/python -m benchmarks.audit_seeds rows.jsonl

Audits what `rows.jsonl` does not have yet, so it goes on after a stop, then prints the table.
`--environments` are names as `turnwise audit` takes them, or classes of the exam's sound ones;
`--quick` audits as a run does before it trains.
"""

import argparse
import json
import time
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.audit_exam import SOUND
from benchmarks.tables import table
from turnwise.errors import UserError
from turnwise.monitor.display import SilentDisplay
from turnwise_trust.audit.process import audited_apart
from turnwise_trust.audit.quick import QUICK, tried
from turnwise_trust.audit.stage import TASKS
from turnwise_trust.audit.subject import subject_of
from turnwise_trust.page import Page
from turnwise_trust.settings import AuditConfig

EXAM = {case.name: case.environment for case in SOUND}
BUILT_IN = ("multi_tool", "shop", "web_forms", "mathematics", "search", "frozen_lake", "bandit")
MOST_TASKS, SECONDS = 64, 170.0
"""Those of `turnwise audit`."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("rows", type=Path)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--environments", nargs="*", default=[*EXAM, *BUILT_IN])
    given = parser.parse_args()
    given.rows.touch()
    rows = [json.loads(line) for line in given.rows.read_text().splitlines()]
    done = {(row["environment"], row["quick"], row["seed"]) for row in rows}
    for name in given.environments:
        for seed in range(given.seeds):
            if (name, given.quick, seed) not in done:
                rows.append(audit(name, given.quick, seed))
                with given.rows.open("a") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
    rows.sort(key=_kind)
    print(table([told(*kind, [*group]) for kind, group in groupby(rows, _kind)]))


def _kind(row: dict[str, Any]) -> tuple[str, bool]:
    return row["environment"], row["quick"]


def audit(name: str, quick: bool, seed: int) -> dict[str, Any]:
    """The seconds of one audit, and what failed in it, each with its evidence."""
    start, place = time.monotonic(), EXAM.get(name, name)
    try:
        page = _quick(place, seed) if quick else _whole(place, seed)
    except UserError as error:  # it needs options or data
        page = Page(name, f"not audited: {error}", [])
    failed = {one.check: f"{one.note} [{one.replay}]" for one in page.failed}
    row = {"environment": name, "quick": quick, "seed": seed, "verdict": page.verdict}
    return {**row, "seconds": time.monotonic() - start, "failed": failed}


def _quick(place: str, seed: int) -> Page:
    return tried(subject_of(place, {}, TASKS, seed, AuditConfig().seconds), QUICK)


def _whole(place: str, seed: int) -> Page:
    return audited_apart(place, {}, MOST_TASKS, seed, SECONDS, SilentDisplay())


def told(name: str, quick: bool, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """A row of the table: one environment, and whether its quick part alone was tried."""
    return {
        "environment": name,
        "part": "quick" if quick else "whole",
        "audits": len(rows),
        "seconds": f"{median(row['seconds'] for row in rows):.0f}",
        "cut": sum("want of time" in row["verdict"] for row in rows),
        "alarms": "; ".join(
            f"{row['seed']}: {', '.join(row['failed'])}" for row in rows if row["failed"]
        ),
    }


if __name__ == "__main__":
    main()
