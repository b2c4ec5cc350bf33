"""Tables on the terminal: verdicts that differ, and success in the environments of others.

Not here: the figures of one evaluation (`turnwise/commands/results.py`).
"""

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from turnwise.monitor.console import visible

DISAGREEMENTS = 20
"""Verdicts that differ and are shown, at most."""


def disagreement_table(summary: Mapping[str, Any]) -> Table:
    """The episodes on which an evaluation that was judged again differs from the first verdicts."""
    words = {True: "success", False: "failure", None: "ungraded"}
    found = summary["disagreements"]
    title = f"{len(found)} of {summary['n'] + summary['ungraded']} verdicts differ"
    table = Table("task", "before", "after", "answer", "detail", title=title)
    for one in found[:DISAGREEMENTS]:
        answer = "" if one["answer"] is None else one["answer"]
        verdicts = (words[one["before"]], words[one["after"]])
        name = f"{one['task']} #{one['episode']}"
        table.add_row(name, *verdicts, Text(visible(answer)), Text(visible(one["detail"])))
    if len(found) > DISAGREEMENTS:
        table.caption = f"and {len(found) - DISAGREEMENTS} more: --json"
    return table


def transfer_table(found: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Table:
    """Success of each run in each environment, with its 95% interval."""
    table = Table("run", title="success in the environments of")
    for name in next(iter(found.values())):
        table.add_column(name, justify="right")
    for run, row in found.items():
        cells = (
            f"{one['success']:.1%} ({one['low']:.1%} – {one['high']:.1%})" for one in row.values()
        )
        table.add_row(run, *cells)
    return table
