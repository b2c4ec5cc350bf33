"""Exports of a run for use elsewhere: the policy, and conversations as training data."""

import json
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from turnwise.environments.registry import environment_of
from turnwise.errors import ConfigError, DataError
from turnwise.evaluation.report import report_markdown
from turnwise.models.load import load_model
from turnwise.scaffolds.registry import make_scaffold
from turnwise.storage import checkpoint
from turnwise.storage.messages import conversations, write_lines, write_preferences
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.trajectory_rows import read_columns, rows_of_tasks
from turnwise_studies.formats.toolformer import gains

COLUMNS = (
    *("task", "prompt", "group", "first_turn", "reward", "success", "tool_calls", "actions"),
    *("steps", "ids", "source", "turn", "contexts", "images"),
)
"""Columns that conversations are made of; the numbers of tokens are many times as large."""
CALLS_HELP = 0.5
"""Nats by which calls lower the loss, at least: Toolformer's for calculations."""


def export_policy(folder: RunFolder, target: Path, merge: bool) -> None:
    """Write the newest whole checkpoint as a model folder of transformers, with a model card.

    Adapters are merged, or stand alone for peft. Raises DataError where there is no checkpoint, or
    the target is not an empty folder; ConfigError where there are no adapters to be kept apart.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise DataError(f"{target} is not an empty folder: choose another one with --to")
    recipe = folder.recipe()
    if not merge and not recipe.model.lora_rank:
        raise ConfigError("the run has no adapters (model.lora_rank): leave --adapters out")
    found = _newest(folder)
    model: Any
    model, tokenizer = load_model(recipe.model, found.folder, recipe.seed)
    if merge and recipe.model.lora_rank:
        model = model.merge_and_unload()
    model.save_pretrained(str(target))
    tokenizer.save_pretrained(str(target))
    (target / "README.md").write_text(_card(folder, found), encoding="utf-8")


def _newest(folder: RunFolder) -> checkpoint.Checkpoint:
    found, _ = checkpoint.newest(folder.checkpoints)
    if found is None:
        raise DataError(f"{folder.path} has no checkpoint yet")
    return found


def _card(folder: RunFolder, found: checkpoint.Checkpoint) -> str:
    """The report where the run is finished, after a few words."""
    recipe = folder.recipe()
    lines = [
        "---\nlibrary_name: transformers\ntags: [reinforcement-learning, agent, turnwise]\n---\n",
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
    """Write the successful episodes of all RL steps as conversations, and as the texts that policy
    and environment wrote, one a line, each once. Returns how many, and how many were left out, for
    malformed turns, images or several contexts."""
    won = [row for row in _rows(folder) if row["success"]]
    found = list(conversations(folder, won))
    lines = dict.fromkeys(
        json.dumps({"messages": one, "text": _text(one[0]["content"], row)})
        for one, row in zip(found, won, strict=True)
        if one is not None
    )
    nothing = f"{folder.path} has no success that can be written as messages"
    write_lines(file, list(lines), nothing)
    return len(lines), found.count(None)


def _text(first: str, row: Mapping[str, Any]) -> str:
    """An episode's first message, then what each turn wrote and what came back of it."""
    texts = [first]
    for action, step in zip(json.loads(row["actions"]), json.loads(row["steps"]), strict=True):
        texts += [action["text"], *((step or {}).get("observation") or [])[:1]]
    return "\n".join(text.strip() for text in texts)


def export_helpful_calls(
    folder: RunFolder, file: Path, threshold: float = CALLS_HELP
) -> tuple[int, int]:
    """Write the tool calls of all RL steps whose results help the policy to the right answer.

    Toolformer's filter (`toolformer.py`), by the newest checkpoint: each line is an episode's calls
    with their results and the oracle's answer. Returns how many, and how many episodes with calls
    were left out, because the loss fell by less than `threshold` nats, or as in `export_successes`.
    Raises DataError where there is no checkpoint.
    """
    recipe = folder.recipe()
    model, tokenizer = load_model(recipe.model, _newest(folder).folder, recipe.seed)
    environment = environment_of(recipe)
    scaffold = make_scaffold(recipe.scaffold, tokenizer, environment.tools())
    answers = {task.id: environment.oracle(task)[-1].answer for task in environment.tasks("train")}
    rows = [row for row in _rows(folder) if row["tool_calls"]]
    called = []
    for row, messages in zip(rows, conversations(folder, rows), strict=True):
        last = {} if messages is None else messages[-1]
        if messages and last["role"] == "assistant" and not last.get("tool_calls"):
            called.append([*messages[:-1], {**last, "content": answers[row["task"]]}])
    helped = gains(model, scaffold, called, recipe.learning)
    kept = [messages for messages, gain in zip(called, helped, strict=True) if gain >= threshold]
    lines = dict.fromkeys(json.dumps({"messages": messages}) for messages in kept)
    write_lines(file, list(lines), f"{folder.path} has no call that helps by {threshold:g} nats")
    return len(lines), len(rows) - len(kept)


def export_guided(folder: RunFolder, file: Path) -> tuple[int, int]:
    """Write the guided successes of all RL steps (environment `attempts`, memory `guidance`), each
    with the episode's first attempt, and neither with a hint: as `prompt`, `chosen` and `rejected`,
    and the success alone as `messages`. Returns how many, and how many were left out, as in
    `export_successes`."""
    won = [row for row in _rows(folder) if row["success"] and len(row["contexts"]) > 1]
    attempts = [_attempts(row) for row in won]
    failed = conversations(folder, [one[0] for one in attempts])
    guided = conversations(folder, [one[-1] for one in attempts])
    pairs = [
        {"prompt": worse[:1], "rejected": worse[1:], "chosen": better[1:]}
        for worse, better in zip(failed, guided, strict=True)
        if worse is not None and better is not None
    ]
    lines = [json.dumps({"messages": one["prompt"] + one["chosen"], **one}) for one in pairs]
    write_lines(file, lines, f"{folder.path} has no guided success that can be written as messages")
    return len(lines), len(won) - len(lines)


def _attempts(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each attempt of an episode as the row of an episode; where contexts end within attempts, the
    row alone, of which no messages are made."""
    told = {name: json.loads(row[name]) for name in ("actions", "steps")}
    ends = [turn for turn, step in enumerate(told["steps"], 1) if step and step["forgets"]]
    if len(ends) + 1 != len(row["contexts"]):
        return [dict(row)]
    places = pairwise([*(start for start, _ in row["contexts"]), len(row["ids"])])
    return [
        {
            **row,
            **{name: row[name][start:end] for name in ("ids", "source")},
            **{name: json.dumps(every[first:last]) for name, every in told.items()},
            "turn": [turn - first for turn in row["turn"][start:end]],
            "contexts": row["contexts"][:1],
        }
        for (start, end), (first, last) in zip(
            places, pairwise([0, *ends, len(told["steps"])]), strict=True
        )
    ]


def export_preferences(folder: RunFolder, file: Path) -> tuple[int, int]:
    """Write of each group of all RL steps whose rewards differ its best and its worst episode, as
    `{"prompt": [...], "chosen": [...], "rejected": [...]}`. Returns how many, and how many were
    left out."""
    return write_preferences(folder, list(_rows(folder)), file)


def _rows(folder: RunFolder) -> Iterator[Mapping[str, Any]]:
    """Episodes of all RL steps."""
    files = [file for file in folder.trajectory_files() if file.stem.startswith("step-")]
    for file in sorted(files):
        yield from rows_of_tasks(read_columns(file, COLUMNS))
