"""Tables on the terminal: verdicts that differ, success elsewhere and under worse conditions."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from turnwise.commands.results import paired_table, rates_table, size_text
from turnwise.evaluation.paired import Comparison
from turnwise.monitor.display import visible

DISAGREEMENTS = 20
"""At most."""


def disagreement_table(summary: Mapping[str, Any]) -> Table:
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
    table = Table("run", title="success in the environments of")
    for name in next(iter(found.values())):
        table.add_column(name, justify="right")
    for run, row in found.items():
        cells = (
            f"{one['success']:.1%} ({one['low']:.1%} – {one['high']:.1%})" for one in row.values()
        )
        table.add_row(run, *cells)
    return table


def robustness_tables(name: str, found: Mapping[str, Any]) -> list[Table]:
    parts = {key: part for key, part in found.items() if key != "comparisons"}
    table = rates_table(f"{name}: {size_text(next(iter(parts.values())))}", parts)
    if "recovery" in parts.get("tool_failures", {}):
        table.caption = "\n".join(recovery_sentences(parts["tool_failures"]["recovery"]))
        table.caption_justify = "left"
    return [table, paired_table([Comparison(**one) for one in found["comparisons"]])]


def recovery_sentences(found: Mapping[str, Any]) -> list[str]:
    """Sentences on injected tool failures, and on what the agent made of them."""
    counts = ", ".join(f"{count} {kind}" for kind, count in found["failures"].items())
    if not sum(found["failures"].values()):
        return ["no tool call was made to fail"]
    shares = ", ".join(
        f"{share:.1%} {name.replace('_', ' ')}" for name, share in found["reactions"].items()
    )
    sentences = [
        f"calls that were made to fail: {counts}; the agent tried {found['tried_again']:.1%} again",
        f"its next turn: {shares}",
    ]
    if found["success"] is not None:
        struck = f"{found['success']:.1%} of {found['episodes']}"
        sentences.append(f"success of episodes with a failure: {struck}")
    return sentences
