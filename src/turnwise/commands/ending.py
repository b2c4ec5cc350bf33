"""The end of `turnwise train`: the reward curve, the tables, one task before and after, and which
commands come next."""

import shutil
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from turnwise.commands.printing import console, print_line, print_table
from turnwise.commands.results import report_tables
from turnwise.commands.terminal import episode_text
from turnwise.monitor.display import curve
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.trajectory_rows import read_rows

BEFORE = ("cold_start", "base")
WIDTH, HEIGHT = 60, 5
"""Columns and lines of the reward curve, at most."""
EXAMPLE = "examples/thermostat.toml"


def tell(folder: RunFolder, report: Mapping[str, Any], recipe: str) -> None:
    """Print what a run has found; `recipe` is what its environment can be played by."""
    for line in _drawn(folder):
        print_line(line)
    for table in report_tables(report):
        print_table(table)
    before = next((name for name in BEFORE if name in report), None)
    if before is not None and "trained" in report:
        _before_and_after(folder, report, before)
    program = "turnwise" if shutil.which("turnwise") else sys.argv[0]
    nexts = {
        f"view {folder.path}": "look at it: every episode and token, in the browser",
        f"play {recipe}": "play it: be the policy yourself",
        f"train {EXAMPLE}": "bring your own: an environment is one class in one file",
    }
    wide = max(map(len, nexts))
    print_line(f"\n{folder.path}/report.md says more. What comes next:")
    for command, words in nexts.items():
        print_line(f"  {program} {command:<{wide}}  # {words}")


def _drawn(folder: RunFolder) -> Iterator[str]:
    """The mean reward of the steps of RL, as a curve."""
    steps = [step for step in folder.lines("metrics.jsonl") if "reward/mean" in step]
    rewards = [step["reward/mean"] for step in steps]
    if len(rewards) > 1:
        yield f"reward in training: {rewards[0]:.2f} in step {steps[0]['step']}"
        yield from (f"  │{line}" for line in curve(rewards, WIDTH, HEIGHT))
        yield f"  └ {rewards[-1]:.2f} in step {steps[-1]['step']}\n"


def _before_and_after(folder: RunFolder, report: Mapping[str, Any], before: str) -> None:
    """Print success before and after RL in a line, then one task as both policies played it: one
    that only the second solved, where there is any."""
    first, last = report[before], report["trained"]
    interval = f"95% interval {last['low']:.1%} – {last['high']:.1%}"
    print_line(f"\nbefore RL {first['success']:.1%}, after it {last['success']:.1%} ({interval})")
    names = {"before RL": before, "after RL": "trained"}
    files = [folder.trajectory_file(f"evaluation-{name}") for name in names.values()]
    played = [{row["task"]: row for row in read_rows(file)} for file in files]
    tasks = [task for task in played[0] if task in played[1]]
    # False comes first: tasks that failed before and succeeded after.
    tasks.sort(key=lambda task: [rows[task]["outcome"] == "success" for rows in played] != [0, 1])
    for when, rows in zip(names, played, strict=True):
        for task in tasks[:1]:
            print_line(f"\nOne task {when}, {rows[task]['outcome']}:")
            console.print(episode_text(folder.path, rows[task]))
