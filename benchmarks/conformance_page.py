"""Pose the vectors of `conformance/` to turnwise and to others, and write what each does to a page.

    python -m benchmarks.conformance_page --date DATE --page docs/log/conformance.md [--json FILE]

Each framework runs in an environment of its own (`peers.py`), by `conformance/run.py`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.peers import interpreter

RUNNER = Path(__file__).parents[1] / "conformance" / "run.py"
VECTORS = RUNNER.with_name("vectors.json")
FRAMEWORKS = ("turnwise", "trl", "verl", "skyrl", "openrlhf", "tinker_cookbook")
VERDICTS = {"pass": "✓", "choice": "choice", "differs": "**differs**", "not posed": "–"}
NOTES = {
    "trl": "One optimizer step of `GRPOTrainer` for each vector, with a table for the model. Its "
    "KL term is multiplied by the ratio unless `use_bias_correction_kl` is off, as it is here; "
    "groups of one it refuses. Its source says that the entropy bonus is a mean for each "
    "micro-batch.",
    "verl": "`verl.trainer.ppo.core_algos`, put together as `ppo_loss` does it, with the totals "
    "that its engine hands over. Rewards are given at the token at which they arrived: where its "
    "own loop puts an outcome is not part of it. `grade` is its reward of Search-R1's form, on the "
    "whole response.",
    "skyrl": "The functions of `ppo_utils`, put together as trainer and worker do it: the policy "
    "loss is scaled over the batch, terms beside it are averaged over micro-batches, and its "
    "source says so.",
    "openrlhf": "`PolicyLoss`, `compute_approx_kl` and the maker of experiences, without models. "
    "It refuses groups of one. It puts an outcome at the last sampled token itself; the vectors "
    "put rewards elsewhere.",
    "tinker_cookbook": "Advantages, and which tokens of a trajectory are trained; the loss is a "
    "service's.",
    "turnwise": "The learner, credits and records of a run, with a table for the model; who "
    "wrote a token is told to the record, as the loop of episodes does it. Conversations and "
    "verdicts go through that loop; what a resumed learner has lay in a checkpoint's files; new "
    "weights reach the embedded engine.",
}


def results(name: str) -> dict[str, Any]:
    """What a framework makes of the vectors. Ends the program if its interpreter fails."""
    python = sys.executable if name == "turnwise" else str(interpreter(name))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "results.json"
        command = [python, str(RUNNER), name, "--json", str(file)]
        # turnwise's own sources are no business of others.
        hidden = {} if name == "turnwise" else {"PYTHONPATH": ""}
        ended = subprocess.run(command, capture_output=True, text=True, env=os.environ | hidden)
        if not file.exists():
            raise SystemExit(f"{name}: {ended.stderr[-2000:]}")
        found: dict[str, Any] = json.loads(file.read_text())[0]
        return found


def page(reports: list[dict[str, Any]], date: str) -> str:
    """The page, in Markdown."""
    held = json.loads(VECTORS.read_text())
    return "\n\n".join(
        [
            "# Conformance",
            f"*{date}. Command: `python -m benchmarks.conformance_page --date DATE --page "
            "docs/log/conformance.md`. One framework alone: `python conformance/run.py NAME`, in "
            "an environment that has it.*",
            "Known mistakes of frameworks for reinforcement learning as batches with what must "
            "come of them: `conformance/vectors.json`, computed in float64. ✓ is what the vector "
            "expects; *choice* another convention than that of the source which the vector names; "
            "**differs** anything else, with the mistake that gives the same numbers where one of "
            "the known ones does; – that the part which is run here has nothing to put the vector "
            "to. A difference is one of these functions as they are called here; a framework may "
            "guard against it elsewhere. One that is not posed is neither passed nor failed. The "
            "optimizer step is turnwise's and TRL's own; for the others gradients of micro-batches "
            "are added up by the runner, so that none of theirs could be dropped.",
            totals(reports),
            table(reports, held["vectors"]),
            differences(reports, held["vectors"]),
            "## How each is run",
            "\n".join(
                f"- **{r['framework']}** {r['version']}: {NOTES[r['framework']]}" for r in reports
            ),
            "## Defects",
            defects(held["defects"]),
        ]
    )


def totals(reports: list[dict[str, Any]]) -> str:
    rows = ["| framework | version | Python | pass | choice | differs | not posed |"]
    rows.append("|---|---|---|---|---|---|---|")
    for one in reports:
        count = Counter(result["verdict"] for result in one["results"])
        numbers = " | ".join(str(count[verdict]) for verdict in VERDICTS)
        rows.append(f"| {one['framework']} | {one['version']} | {one['python']} | {numbers} |")
    return "\n".join(rows)


def table(reports: list[dict[str, Any]], vectors: list[dict[str, Any]]) -> str:
    names = [one["framework"] for one in reports]
    by_id = [{r["id"]: r["verdict"] for r in one["results"]} for one in reports]
    rows = [f"| vector | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for vector in vectors:
        marks = " | ".join(VERDICTS[found[vector["id"]]] for found in by_id)
        rows.append(f"| {vector['id']} | {marks} |")
    return "\n".join(rows)


def differences(reports: list[dict[str, Any]], vectors: list[dict[str, Any]]) -> str:
    """What must hold, and who does otherwise in which way."""
    lines = ["## What differs"]
    for vector in vectors:
        name = vector["id"]
        found = [
            (one, own) for one in reports for own in one["results"] if own["id"] == vector["id"]
        ]
        told = [
            f"{one['framework']}: {own.get('note') or 'no known mistake gives these numbers'}"
            f"{' (choice)' if own['verdict'] == 'choice' else ''}"
            for one, own in found
            if own["verdict"] in ("choice", "differs")
        ]
        if told:
            source = vector["source"]
            lines.append(f"- `{name}`: {vector['must']} ({source}) {'; '.join(told)}.")
    return "\n".join([lines[0], "", *lines[1:]])


def defects(known: dict[str, Any]) -> str:
    rows = ["| | defect | vectors |", "|---|---|---|"]
    for number, one in known.items():
        where = ", ".join(f"`{name}`" for name in one.get("vectors", []))
        rows.append(f"| {number} | {one['what']} | {where} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path, required=True)
    parser.add_argument("--json", type=Path, help="write the results")
    parser.add_argument("--date", required=True, help="and commit, for the page")
    options = parser.parse_args()
    reports = [results(name) for name in FRAMEWORKS]
    if options.json:
        options.json.write_text(json.dumps(reports, indent=1) + "\n")
    options.page.write_text(page(reports, options.date) + "\n")


if __name__ == "__main__":
    main()
