"""How often the audit alarms in environments without a fault: several seeds of each.

    .venv/bin/python -m benchmarks.audit_seeds rows.jsonl

Audits what `rows.jsonl` does not have yet, so it goes on after a stop, then prints the table.
`--environments` are names as `turnwise audit` takes them, or classes of the exam's sound ones.
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
from turnwise_trust.audit.probes import audited
from turnwise_trust.audit.subject import subject_of

EXAM = {case.name: case.environment for case in SOUND}
BUILT_IN = ("multi_tool", "shop", "web_forms", "mathematics", "search", "frozen_lake", "bandit")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("rows", type=Path)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--environments", nargs="*", default=[*EXAM, *BUILT_IN])
    given = parser.parse_args()
    given.rows.touch()
    rows = [json.loads(line) for line in given.rows.read_text().splitlines()]
    done = {(row["environment"], row["seed"]) for row in rows}
    for name in given.environments:
        for seed in range(given.seeds):
            if (name, seed) not in done:
                rows.append(audit(name, seed))
                with given.rows.open("a") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
    rows.sort(key=lambda row: row["environment"])
    found = groupby(rows, lambda row: row["environment"])
    print(table([told(name, [*group]) for name, group in found]))


def audit(name: str, seed: int) -> dict[str, Any]:
    """The seconds of one audit, and what failed in it, each with its evidence."""
    start = time.monotonic()
    page = audited(subject_of(EXAM.get(name, name), {}, 64, seed))
    failed = {one.check: f"{one.note} [{one.replay}]" for one in page.failed}
    seconds = time.monotonic() - start
    return {"environment": name, "seed": seed, "seconds": seconds, "failed": failed}


def told(name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    seconds = f"{median(row['seconds'] for row in rows):.0f}"
    alarms = [f"{row['seed']}: {', '.join(row['failed'])}" for row in rows if row["failed"]]
    said = "; ".join(alarms) or "none"
    return {"environment": name, "audits": len(rows), "seconds": seconds, "alarms": said}


if __name__ == "__main__":
    main()
