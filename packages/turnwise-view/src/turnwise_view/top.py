"""The command `top`: a run in the terminal while it goes on.

It reads the run's folder each second.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from turnwise.commands.printing import console, figure

NUMBERS = {
    "reward/mean": "reward",
    "rollout/success": "success",
    "groups/all_equal": "groups all equal",
    "rollout/ungraded": "episodes without a grade",
    "rollout/length_mean": "sampled tokens of an episode",
    "rollout/tool_calls": "tool calls of an episode",
    "policy/entropy": "entropy",
    "policy/gradient_norm": "gradient norm",
    "seconds/step": "seconds a step",
    "rollout/sampled_tokens_per_second": "tokens sampled a second",
    "update/tokens_per_second": "tokens trained a second",
}
"""The metrics that are shown, and their names in words."""
RECENT = 10
"""Steps of the mean beside the newest step's number."""
SENTENCES = 3
LOOK_SECONDS = 1.0


def top(
    run: Annotated[Path, typer.Argument(help="A run folder, such as runs/demo.")],
    once: Annotated[
        bool, typer.Option("--once", help="Print it once, as where there is no terminal.")
    ] = False,
) -> None:
    """Watch a run: its rates, reward, groups, time left and last warnings. It ends with the run."""
    from turnwise_view.dashboard.runs import find_runs

    find_runs([run])  # says what is wrong with a folder that is none
    if once or not console.is_terminal:
        console.print(screen(run))
        return
    with Live(screen(run), console=console, auto_refresh=False) as live:
        while state(run) == "running":
            time.sleep(LOOK_SECONDS)
            live.update(screen(run), refresh=True)


def state(run: Path) -> str:
    from turnwise_view.dashboard.runs import overview

    return str(overview("", run)["state"])


def screen(run: Path) -> RenderableType:
    """All that is shown of a run at present. Raises DataError for a damaged log."""
    from turnwise.storage.run_folder import RunFolder
    from turnwise_view.dashboard.runs import overview
    from turnwise_view.viewing import warnings_of

    found, folder = overview("", run), RunFolder.open(run)
    metrics, timing = folder.lines("metrics.jsonl"), folder.lines("timing.jsonl")
    done, planned = found["steps_done"], found["steps_planned"]
    heading = f"{found['name']}: {found['state']}, step {done}"
    heading += f" of {planned}" if planned is not None else ""
    if found["state"] == "running" and planned is not None and timing:
        heading += f", {time_left(timing, planned - done)} left"
    said = [(step, f"step {step}: {sentence}") for step, sentence in warnings_of(metrics)]
    said += [
        (line["step"], f"step {line['step']} taught nothing: {line.get('reason', '')}")
        for line in folder.lines("no_signal.jsonl")
    ]
    newest = sorted(said, key=lambda one: one[0])[-SENTENCES:]
    trouble = [] if found["trouble"] is None else [found["trouble"]]
    return Group(
        Text(heading, style="bold"),
        _numbers([metrics, timing]),
        *(Text(one, style="yellow") for one in (*(sentence for _, sentence in newest), *trouble)),
    )


def time_left(timing: Sequence[Mapping[str, Any]], steps: int) -> str:
    """The time that some steps take at the pace of the last ones. Example: "12 min"."""
    seconds = fmean(line["seconds/step"] for line in timing[-RECENT:]) * max(0, steps)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _numbers(logs: Sequence[Sequence[Mapping[str, Any]]]) -> Table:
    table = Table("", box=None)
    for column in ("now", f"mean of {RECENT}", "before"):
        table.add_column(column, justify="right")
    for lines in logs:
        for name, label in NUMBERS.items():
            values = [line[name] for line in lines if line.get(name) is not None]
            if values:
                recent, before = values[-RECENT:], values[-2 * RECENT : -RECENT]
                means = [figure(fmean(part)) if part else "" for part in (recent, before)]
                table.add_row(label, figure(values[-1]), *means)
    return table
