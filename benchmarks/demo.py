"""The demo over several seeds, and the same recipe with observation tokens trained.

    .venv/bin/python benchmarks/demo.py --seeds 0 1 2 --out runs/study

A masked run is `turnwise train demo` with a seed. The unmasked run of a seed begins with the
weights after the masked one's cold start, so the two differ in RL alone. Runs that are finished are
not repeated, and one that was stopped goes on. Writes table.md and summary.json into the folder.
"""

import argparse
import json
from pathlib import Path
from statistics import fmean
from typing import Any

from turnwise.commands.comparison import finished_run
from turnwise.storage.checkpoint import latest

VARIANTS = ("masked", "unmasked")
POLICIES = ("base", "cold_start", "sft", "trained", "no_search", "random_document")
KINDS = ("one", "two", "three", "intersection")


def main() -> None:
    """Run what is missing, then print the table of everything."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--out", type=Path, default=Path("runs/study"))
    parser.add_argument("overrides", nargs="*", help="key=value, for every run")
    arguments = parser.parse_args()
    rows = [
        row(variant, seed, run(variant, seed, arguments.out, arguments.overrides))
        for variant in arguments.variants
        for seed in arguments.seeds
    ]
    (arguments.out / "summary.json").write_text(json.dumps(rows, indent=2) + "\n")
    table = markdown(rows)
    (arguments.out / "table.md").write_text(table)
    print(table)


def run(variant: str, seed: int, out: Path, overrides: list[str]) -> Path:
    """The run's folder, trained if it is not there."""
    chosen = [*overrides, f"seed={seed}"]
    if variant == "unmasked":
        cold = latest(run("masked", seed, out, overrides) / "checkpoints/cold_start")
        chosen += [f"model.name={cold}", "sft.steps=0", "learning.mask_observations=false"]
        chosen += ["evaluation.base=false", "evaluation.sft=false"]
    return finished_run(out / f"{variant}-{seed}", "demo", chosen)


def row(variant: str, seed: int, folder: Path) -> dict[str, Any]:
    """The figures of one run."""
    report = json.loads((folder / "report.json").read_text())
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {
        "variant": variant,
        "seed": seed,
        **{name: report[name] for name in POLICIES if name in report},
        "training_reward_last_5": fmean([line["reward/mean"] for line in lines[-5:]]),
        "seconds": report["seconds"],
        "commit": report["commit"],
    }


def markdown(rows: list[dict[str, Any]]) -> str:
    """One line a run and policy: success, in all and by hops, and searches after RL."""
    head = "| recipe | seed | policy | success (95% interval) | " + " | ".join(KINDS)
    head += " | searches | seconds |\n" + "|---" * (6 + len(KINDS)) + "|\n"
    return head + "".join(
        f"| {one['variant']} | {one['seed']} | {policy} | {_cells(one[policy])} | "
        f"{one['seconds']:.0f} |\n"
        for one in rows
        for policy in POLICIES
        if policy in one
    )


def _cells(part: dict[str, Any]) -> str:
    hops = part["breakdown"]["hops"]
    kinds = " | ".join(f"{hops[kind]['success']:.1%}" if kind in hops else "–" for kind in KINDS)
    whole = f"{part['success']:.1%} ({part['low']:.1%} – {part['high']:.1%})"
    return f"{whole} | {kinds} | {part['tool_calls']:.2f}"


if __name__ == "__main__":
    main()
