"""Measurements of environments as audits in a run's folder.

Not here: measuring them (`measurement.py`).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from turnwise.evaluation.intervals import wilson
from turnwise.storage.audits import Finding, write_audit
from turnwise.storage.run_folder import RunFolder

SCORES = {
    "oracle": "Success of the oracle",
    "noop": "Success of an idle agent",
    "random": "Success of a random agent",
}
CHECKS = {
    "deterministic": "Another process sees the same",
    "snapshot": "A restored episode goes on as it did",
    "concurrent": "Episodes at once see what they see alone",
}


def write_measurements(folder: RunFolder, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write an audit for each measurement (`Measurement`, as a mapping)."""
    for number, row in enumerate(rows, 1):
        name = row["name"]
        title = f"The environment {name}, measured without a model"
        write_audit(folder, f"environment-{number}", title, _findings(row))


def _findings(row: Mapping[str, Any]) -> Iterator[Finding]:
    if row["note"]:
        yield Finding("It could not be measured", note=row["note"])
        return
    played = row["played"]
    yield Finding("Tasks", row["tasks"], note=f"{played} of them were played")
    for name, words in SCORES.items():
        if row[name] is not None:
            yield Finding(words, row[name], *wilson(round(row[name] * played), played))
    for name, score in row["reference_scores"].items():
        yield Finding(f"Success of {name}, as the environment states it", score)
    for name, words in CHECKS.items():
        if row[name] is not None:
            yield Finding(words, passed=row[name])
    yield Finding("Steps a second", row["steps_per_second"])
    for weakness in row["weaknesses"]:
        yield Finding("A known way to deceive its verifier", passed=False, note=weakness)
