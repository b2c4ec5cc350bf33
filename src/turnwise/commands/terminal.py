"""The output of the command line: trajectories with their masks, tables of results and names.

Reads run folders only. The policy's tokens stand between « and », so that the mask can be seen
without colour; with colour they are also bold green, and everything else is dim.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Column, Table
from rich.text import Text
from tokenizers import Tokenizer

from turnwise.algorithms.algorithm import COEFFICIENTS
from turnwise.algorithms.parts import PARTS, Requirement
from turnwise.algorithms.registry import make_algorithm
from turnwise.commands.words import words_text
from turnwise.config import Recipe
from turnwise.errors import DataError, first_line
from turnwise.monitor.display import Console, visible
from turnwise.storage.run_folder import KEPT, RunFolder
from turnwise.storage.trajectory_rows import read_rows
from turnwise.tokens import Source

STYLES = {
    Source.TEMPLATE: "dim",
    Source.USER: "cyan dim",
    Source.MODEL: "bold green",
    Source.TOOL: "yellow dim",
    Source.ENVIRONMENT: "magenta dim",
    Source.INHERITED: "green dim",
}


def choose_rows(
    run: Path, name: str | None, outcome: str | None, count: int
) -> tuple[list[dict[str, Any]], str]:
    """Trajectories of a run and the name of their file: `default_file` unless `name` says which.

    Raises DataError when the run has none that fit.
    """
    folder = RunFolder.open(run)
    names = [file.stem for file in folder.trajectory_files()]
    if not names:
        raise DataError(f"{run} has no trajectories yet")
    file = folder.trajectory_file(default_file(names) if name is None else name)
    rows = read_rows(file, outcome, count)
    if not rows:
        raise DataError(f"{file} has no trajectory with outcome {outcome!r}")
    return rows, file.stem


def default_file(names: Sequence[str]) -> str:
    """The most telling of a run's trajectory files, given oldest first: the trained agent's
    evaluation, else its newest step of RL, else what there was before. Ablations and sabotaged
    variants never stand for the agent unless there is nothing else."""
    steps = [name for name in names if name.startswith("step-")]
    before = ("evaluation-cold_start", "preferences", "demonstrations")
    kept = [f"evaluation-{name}" for name in KEPT]
    preferred = ["evaluation-trained", *kept, *steps[-1:], *before]
    return next((name for name in preferred if name in names), names[-1])


def others_line(run: Path, chosen: str) -> str:
    """A line on the other files that `--step` may name: the first and the last step, and names."""
    names = [file.stem for file in RunFolder.open(run).trajectory_files() if file.stem != chosen]
    steps = sorted(int(name[5:]) for name in names if name.startswith("step-"))
    found = [name for name in names if not name.startswith("step-")]
    if steps:
        found.append(f"{steps[0]} to {steps[-1]}" if len(steps) > 1 else str(steps[0]))
    return f"others to be shown with --step: {', '.join(found)}" if found else ""


def show_rows(console: Console, run: Path, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print trajectories with a legend, and what else there is to be shown."""
    sampled = any(row["ids"] for row in rows)
    if sampled:
        tokenizer = _tokenizer(run / "tokenizer" / "tokenizer.json")
        console.print(_legend(name, RunFolder.open(run).recipe()))
    for row in rows:
        console.rule(style="dim")
        console.print(_headline(row))
        console.print(trajectory_text(row, tokenizer) if sampled else words_text(row, STYLES))
    if others := others_line(run, name):
        console.rule(style="dim")
        console.print(others, markup=False, highlight=False, soft_wrap=True, style="dim")


def episode_text(run: Path, row: Mapping[str, Any]) -> Text:
    """An episode of a run, as tokens where it has them, else as words."""
    if not row["ids"]:
        return words_text(row, STYLES)
    return trajectory_text(row, _tokenizer(run / "tokenizer" / "tokenizer.json"))


def token_tables(run: Path, rows: Sequence[Mapping[str, Any]]) -> Iterator[Table]:
    """Tables of a row for each token: its source and, of sampled ones, the policy's version, its
    log-probability when it was sampled, the ratio of its probability when it was trained to that,
    its advantage, the entropy of its distribution, its weight in the loss, and the critic's value;
    what was not recorded is left out."""
    if not any(row["ids"] for row in rows):
        raise DataError(f"{run} has words and no tokens: leave out --tokens")
    tokenizer = _tokenizer(run / "tokenizer" / "tokenizer.json")
    for row in rows:
        numbers = {"logprob": row["logprob"]}
        if row["trained_logprob"]:
            numbers["ratio"] = np.exp(np.subtract(row["trained_logprob"], row["logprob"]))
        numbers["advantage"] = row["advantage"]
        numbers |= {name: row[name] for name in ("entropy", "loss_weight", "value") if row[name]}
        table = Table(
            "place",
            "token",
            Column("text", no_wrap=True),
            "source",
            "turn",
            "version",
            *(Column(name.replace("_", " "), justify="right") for name in numbers),
            title=f"{row['group']} #{row['episode']}: outcome {row['outcome']}",
        )
        columns = zip(*(row[name] for name in ("ids", "source", "turn", "version")), strict=True)
        for place, (token, source, turn, version) in enumerate(columns):
            sampled = source == Source.MODEL
            found = [_measured(column[place]) if sampled else "" for column in numbers.values()]
            text = repr(tokenizer.decode([token], skip_special_tokens=False))
            table.add_row(
                str(place),
                str(token),
                Text(text),
                Source(source).name.lower(),
                str(turn),
                str(version) if sampled else "",
                *found,
                style=STYLES[Source(source)],
            )
        yield table


def _measured(value: float) -> str:
    """A number of a token; nothing where it was not measured."""
    if math.isnan(value):
        return ""
    return f"{value:+.4f}" if value == 0 or abs(value) >= 0.001 else f"{value:+.1e}"


def _tokenizer(file: Path) -> Tokenizer:
    if not file.is_file():
        raise DataError(f"{file} is missing: the run cannot be decoded")
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:
        advice = "going on with the run writes it again"
        raise DataError(f"{file} is damaged ({first_line(error)}): {advice}") from error


def _legend(name: str, recipe: Recipe) -> Text:
    algorithm = make_algorithm(recipe.algorithm.name, recipe.algorithm.overrides)
    coefficient = algorithm.observation_coefficient
    if name.startswith("evaluation"):
        consequence = "; nothing of an evaluation is trained."
    elif not recipe.learning.mask_observations and name != "demonstrations":
        consequence = ": trained, and so are observations (learning.mask_observations=false)."
    elif name.startswith("step-") and (coefficient or Requirement.WORLD_MODEL in algorithm.needs):
        by = f"observation_coefficient = {coefficient:g}" if coefficient else algorithm.extension
        consequence = (
            ": trained. All other tokens are masked in the policy loss; observations are predicted "
            f"in a loss of their own ({by})."
        )
    else:
        consequence = ": trained. All other tokens are masked."
    return Text.assemble(
        f"{name}: ",
        ("«the policy's own tokens»", STYLES[Source.MODEL]),
        consequence,
        " Others are of the ",
        ("task", STYLES[Source.USER]),
        ", ",
        ("tool output", STYLES[Source.TOOL]),
        ", ",
        ("corrections", STYLES[Source.ENVIRONMENT]),
        " or the ",
        ("template", STYLES[Source.TEMPLATE]),
        ".",
    )


def trajectory_text(row: Mapping[str, Any], tokenizer: Tokenizer) -> Text:
    """The trajectory as read by the model, spans of one source and turn at a time, each context
    after the first under a line of its own, an image by the name of its file."""
    text = Text()
    images = {shown["start"]: shown for shown in row.get("images") or []}
    starts = [start for start, _ in row["contexts"]]
    for number, (start, fresh) in enumerate(row["contexts"]):
        if number:
            text.append(f"\n[context {number + 1}, begins with {fresh - start} tokens copied]\n")
        end = starts[number + 1] if number + 1 < len(starts) else None
        place = start
        for source, _, ids in _spans(row, slice(start, end)):
            for piece in _pieces(ids, place, images, tokenizer):
                piece = visible(piece)
                text.append(f"«{piece}»" if source == Source.MODEL else piece, STYLES[source])
            place += len(ids)
    return text


def _pieces(
    ids: Sequence[int], place: int, images: Mapping[int, Any], tokenizer: Tokenizer
) -> Iterator[str]:
    """The text of ids from a place of the record on, around images."""
    begun = 0
    for start in (start for start in sorted(images) if place <= start < place + len(ids)):
        shown = images[start]
        if words := ids[begun : start - place]:
            yield tokenizer.decode(words, skip_special_tokens=False)
        yield f"[image images/{shown['file']}, {shown['length']} tokens]"
        begun = start - place + shown["length"]
    if rest := ids[begun:]:
        yield tokenizer.decode(rest, skip_special_tokens=False)


def algorithms_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The parts of every algorithm: the first row whole, the others where they differ from it."""
    first = Column("name", no_wrap=True)
    table = Table(first, f"made of (else as {rows[0]['name']})", "source", title="algorithms")
    for row in rows:
        made = [f"{c} {row[c]}" for c in PARTS if row is rows[0] or row[c] != rows[0][c]]
        made += ["whitening"] * row["whitening"]
        made += [f"{key} {value:g}" for key, value in row["numbers"].items()]
        made += [f"{key} {row[key]:g}" for key in COEFFICIENTS if row[key] != rows[0][key]]
        made += [f"needs {need}" for need in row["needs"]]
        if row["note"]:
            made.append(f"note: {row['note']}")
        table.add_row(row["name"], ", ".join(made), row["source"])
    return table


def algorithm_table(description: Mapping[str, Any]) -> Table:
    title = f"{description['name']} ({description['source']})"
    choices, numbers = Column("choice", no_wrap=True), Column("numbers", overflow="fold")
    table = Table(choices, "part", "what it does", numbers, title=title)
    for choice, part in description["parts"].items():
        taken = ", ".join(f"{key}={_number(value)}" for key, value in part["numbers"].items())
        table.add_row(choice, part["part"], part["description"], taken)
    for key in ("whitening", *COEFFICIENTS):
        table.add_row(key, "", "", str(description[key]))
    table.add_row("needs", ", ".join(description["needs"]) or "rewards alone")
    if description["note"]:
        table.add_row("note", "", description["note"])
    return table


def parts_table(parts: Sequence[Mapping[str, Any]]) -> Table:
    """The parts of one name, each for another choice."""
    choices, numbers = Column("choice", no_wrap=True), Column("numbers", overflow="fold")
    table = Table(choices, "part", "what it does", numbers, "needs")
    for part in parts:
        taken = ", ".join(f"{key}={_number(value)}" for key, value in part["numbers"].items())
        needs = ", ".join(part["needs"]) or "rewards alone"
        table.add_row(part["choice"], part["part"], part["description"], taken, needs)
    return table


def _number(value: float | Mapping[str, float] | None) -> str:
    if isinstance(value, Mapping):
        return "to be given"
    return "none" if value is None else format(value, "g")


def names_table(catalogue: Mapping[str, Mapping[str, str]]) -> Table:
    """Everything a recipe can name."""
    table = Table("kind", "name", "what it is")
    for kind, names in catalogue.items():
        for index, (name, description) in enumerate(names.items()):
            table.add_row(kind if index == 0 else "", name, description)
        table.add_section()
    return table


def _headline(row: Mapping[str, Any]) -> Text:
    advantage = max(row["advantage"], key=abs, default=0.0)
    reward = "none" if row["reward"] is None else f"{row['reward']:.2f}"
    sampled = sum(source == Source.MODEL for source in row["source"])
    parts = [
        f"{row['group']} #{row['episode']}",
        f"outcome {row['outcome']}",
        f"reward {reward}",
        f"advantage {advantage:+.2f}",
        f"{row['turns']} turns",
        f"{row['tool_calls']} tool calls",
        *(f"{name} {value:g}" for name, value in json.loads(row["parts"]).items()),
        *(f"{name} {_numbers(values)}" for name, values in json.loads(row["turn_parts"]).items()),
        *([f"turn rewards {_numbers(row['turn_rewards'])}"] if row["turn_rewards"] else []),
        *([f"{sampled} of {len(row['ids'])} tokens the policy's"] if row["ids"] else []),
    ]
    if row["problem"] or row["detail"]:
        parts.append(row["problem"] or row["detail"])
    return Text(visible(" · ".join(parts)), style="bold")


def _numbers(values: Sequence[float]) -> str:
    return " ".join(f"{value:g}" for value in values)


def _spans(row: Mapping[str, Any], place: slice) -> Iterator[tuple[Source, int, list[int]]]:
    columns = (row[name][place] for name in ("ids", "source", "turn"))
    tokens = zip(*columns, strict=True)
    for (source, turn), members in groupby(tokens, key=lambda token: (token[1], token[2])):
        yield Source(source), turn, [token[0] for token in members]
