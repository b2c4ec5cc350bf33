"""Exports of a run for use elsewhere: the policy, and conversations as training data.

Not here: the formats of the run folder itself (`storage`), and how conversations are read back
(`synthesis/conversations.py`).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from turnwise.errors import ConfigError, DataError, InfrastructureError
from turnwise.evaluation.report import report_markdown
from turnwise.models.load import load_model
from turnwise.storage import checkpoint
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.trajectory_rows import read_rows, rows_of_tasks
from turnwise.synthesis.conversations import messages_of


def export_policy(folder: RunFolder, target: Path, merge: bool) -> None:
    """Write the newest whole checkpoint as a model folder of transformers, with a model card.

    Adapters are merged into the weights, or stand alone for peft where `merge` is False. The
    tokenizer brings its chat template where it has one. Raises DataError where there is no
    checkpoint, or the target is not an empty folder; ConfigError where there are no adapters to
    be kept apart.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise DataError(f"{target} is not an empty folder: choose another one with --to")
    recipe = folder.recipe()
    if not merge and not recipe.model.lora_rank:
        raise ConfigError("the run has no adapters (model.lora_rank): leave --adapters out")
    found, _ = checkpoint.newest(folder.checkpoints)
    if found is None:
        raise DataError(f"{folder.path} has no checkpoint yet")
    model: Any
    model, tokenizer = load_model(recipe.model, found.folder, recipe.seed)
    if merge and recipe.model.lora_rank:
        model = model.merge_and_unload()
    try:
        model.save_pretrained(str(target))
        tokenizer.save_pretrained(str(target))
        (target / "README.md").write_text(_card(folder, found), encoding="utf-8")
    except OSError as error:
        raise InfrastructureError(f"{target} cannot be written: {error.strerror}") from error


def _card(folder: RunFolder, found: checkpoint.Checkpoint) -> str:
    """The report where the run is finished, after a few words on what the model is."""
    recipe = folder.recipe()
    lines = [
        "---",
        "library_name: transformers",
        "tags: [reinforcement-learning, agent, turnwise]",
        "---",
        "",
        f"The policy of the turnwise run `{recipe.name}` after step {found.step} of "
        f"{str(found.stage).replace('_', ' ')}. It was trained from `{recipe.model.name}` by the "
        f"algorithm `{recipe.algorithm.name}` in the environment `{recipe.environment.name}`, and "
        f"writes its turns in the format `{recipe.scaffold.name}`.",
        "",
    ]
    if (folder.path / "report.json").is_file():
        lines.append(report_markdown(folder.report()))
    return "\n".join(lines)


def export_successes(folder: RunFolder, file: Path) -> tuple[int, int]:
    """Write the successful episodes of all RL steps as conversations, one a line.

    They are for `sft.demonstrations.file`. The same conversation is written once. Returns how many
    were written, and how many successes were left out, for malformed turns, images or several
    contexts.
    """
    written: dict[str, None] = {}
    left_out = 0
    for messages in _conversations(folder, [row for row in _rows(folder) if row["success"]]):
        if messages is None:
            left_out += 1
        else:
            written[json.dumps({"messages": messages})] = None
    _write(file, list(written), f"{folder.path} has no success that can be written as messages")
    return len(written), left_out


def export_preferences(folder: RunFolder, file: Path) -> tuple[int, int]:
    """Write of each group of all RL steps whose rewards differ its best and its worst episode, as
    `{"prompt": [...], "chosen": [...], "rejected": [...]}`.

    Returns how many pairs were written, and how many were left out as in `export_successes`.
    """
    return write_preferences(folder, list(_rows(folder)), file)


def write_preferences(
    folder: RunFolder, rows: Sequence[Mapping[str, Any]], file: Path
) -> tuple[int, int]:
    """Write the pairs of given rows, by their rewards, as `export_preferences` does."""
    lines: list[str] = []
    left_out = 0
    graded = [row for row in rows if row["reward"] is not None]
    for _, members in groupby(graded, key=lambda row: row["group"]):
        ordered = sorted(members, key=lambda row: -float(row["reward"]))
        if ordered[0]["reward"] == ordered[-1]["reward"]:
            continue
        best, worst = _conversations(folder, [ordered[0], ordered[-1]])
        if best is None or worst is None:
            left_out += 1
        else:
            pair = {"prompt": best[:1], "chosen": best[1:], "rejected": worst[1:]}
            lines.append(json.dumps(pair))
    _write(file, lines, f"{folder.path} has no pair that can be written as messages")
    return len(lines), left_out


def _rows(folder: RunFolder) -> Iterator[Mapping[str, Any]]:
    """The episodes of all RL steps, in order."""
    files = [file for file in folder.trajectory_files() if file.stem.startswith("step-")]
    for file in sorted(files):
        yield from rows_of_tasks(read_rows(file))


def _conversations(
    folder: RunFolder, rows: Sequence[Mapping[str, Any]]
) -> Iterator[list[dict[str, Any]] | None]:
    tokenizer = AutoTokenizer.from_pretrained(str(folder.tokenizer))
    for row in rows:
        yield messages_of(row, tokenizer.decode)


def _write(file: Path, lines: Sequence[str], nothing: str) -> None:
    if not lines:
        raise DataError(nothing)
    if file.exists():
        raise DataError(f"{file} exists already: choose another file")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
