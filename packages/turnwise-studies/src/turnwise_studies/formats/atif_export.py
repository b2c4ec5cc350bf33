"""Episodes of a run in ATIF, the interchange format of the Harbor framework, with their tokens.

Format: https://github.com/harbor-framework/harbor/blob/main/rfcs/0001-trajectory-format.md. Each
turn has the token ids that the policy read and sampled, so that others train on them without
encoding anything again. A later context begins with a step that replaces the context, and with
copied steps.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from turnwise.config import Recipe
from turnwise.errors import DataError
from turnwise.storage.messages import (
    Decode,
    SampledTurn,
    prompt_text,
    sampled_turns,
    shown_messages,
    written_calls,
)
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.trajectory_rows import read_rows, rows_of_tasks
from turnwise.tokens import Source
from turnwise_studies.formats.atif import OTHER_KINDS, OWN

VERSION = "ATIF-v1.7"
FACTS = ("task", "group", "episode", "seed", "parent", "first_turn", "outcome", "answer", "problem")
"""Columns of a row that stand in `extra`."""
VERDICT = ("reward", "success", "detail", "turn_rewards", "penalty")
"""Columns that stand in the `extra` of the final metrics."""
COPIED = {"is_copied_context": True}
Row = Mapping[str, Any]
Step = dict[str, Any]


def export_atif(folder: RunFolder, target: Path, names: Sequence[str] = ()) -> tuple[int, int]:
    """Write each episode of some trajectory files, or of all RL steps, as a file in ATIF 1.7.

    Returns how many were written, and how many were left out: those with images, and those that
    failed before they began. Raises DataError where nothing can be written, or the target is not an
    empty folder.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise DataError(f"{target} is not an empty folder: choose another one with --atif")
    files = [folder.trajectory_file(name) for name in names]
    files = files or sorted(f for f in folder.trajectory_files() if f.stem.startswith("step-"))
    recipe = folder.recipe()
    decode = AutoTokenizer.from_pretrained(str(folder.tokenizer)).decode
    written = left_out = 0
    for file in files:
        for number, row in enumerate(rows_of_tasks(read_rows(file))):
            if row["images"] or not row["ids"]:
                left_out += 1
                continue
            name = f"{file.stem}-{number:05d}"
            text = json.dumps(trajectory_of(row, name, recipe, decode), allow_nan=False)
            target.mkdir(parents=True, exist_ok=True)
            (target / f"{name}.json").write_text(text + "\n", encoding="utf-8")
            written += 1
    if not written:
        raise DataError(f"{folder.path} has no episode that can be written in ATIF")
    return written, left_out


def trajectory_of(row: Row, name: str, recipe: Recipe, decode: Decode) -> dict[str, Any]:
    """A row without images as an object in ATIF that has this name."""
    steps = [{"step_id": number, **step} for number, step in enumerate(_steps(row, decode), 1)]
    metrics = [step["metrics"] for step in steps if "metrics" in step]
    made_by = {
        kind: getattr(recipe, kind).name for kind in ("environment", "scaffold", "algorithm")
    }
    return {
        "schema_version": VERSION,
        "session_id": f"{recipe.name}/{row['group']}/{row['episode']}",
        "trajectory_id": name,
        "agent": {
            "name": "turnwise",
            "version": version("turnwise"),
            "model_name": recipe.model.name,
            "extra": made_by,
        },
        "steps": steps,
        "final_metrics": {
            "total_prompt_tokens": sum(one["prompt_tokens"] for one in metrics),
            "total_completion_tokens": sum(one["completion_tokens"] for one in metrics),
            "total_steps": len(steps),
            "extra": {fact: row[fact] for fact in VERDICT} | {"parts": json.loads(row["parts"])},
        },
        "extra": {fact: row[fact] for fact in FACTS},
    }


def _steps(row: Row, decode: Decode) -> Iterator[Step]:
    """Steps of all contexts; the last turn's results, which no model was shown, are with it."""
    actions, outcomes = json.loads(row["actions"]), json.loads(row["steps"])
    ends = [*(start for start, _ in row["contexts"][1:]), len(row["ids"])]
    last = None
    for (start, fresh), end in zip(row["contexts"], ends, strict=True):
        turns = sampled_turns(row, slice(start, end), decode)
        if last is not None:
            yield _boundary(actions[last])
        yield {
            "source": "user",
            "message": prompt_text(row, slice(start, end), decode),
            **(COPIED if fresh > start or row["first_turn"] > 0 else {}),
        }
        for one in turns:
            unseen = outcomes[one.turn] if end == len(row["ids"]) and one is turns[-1] else None
            yield from _turn_steps(row, start, one, actions[one.turn], unseen)
            last = one.turn


def _boundary(action: Mapping[str, Any]) -> Step:
    kind = "compaction" if action["summary"] else "pruning"
    return {
        "source": "system",
        "message": "Another context follows: it begins with the steps that are copied, if any.",
        "extra": {"context_management": {"type": kind, "boundary": "replace"}},
    }


def _turn_steps(
    row: Row, start: int, one: SampledTurn, action: Row, unseen: Row | None
) -> Iterator[Step]:
    inherited = row["source"][one.place.start] == Source.INHERITED
    copied = COPIED if inherited else {}
    own = {"turn": one.turn, **{kind: action[kind] for kind in OTHER_KINDS if action[kind]}}
    step = {"source": "agent", **_said(action), **copied, "extra": {OWN: own}}
    calls = written_calls(action, one.turn)
    if calls:
        step["tool_calls"] = [
            {
                "tool_call_id": call["id"],
                "function_name": call["function"]["name"],
                "arguments": json.loads(call["function"]["arguments"]),
            }
            for call in calls
        ]
    texts = [text for source, text in one.shown if source != Source.USER]
    if not one.shown and unseen is not None:
        texts = [content for _, content, _ in unseen["results"]]
    if texts:
        shown = shown_messages(texts, calls)
        step["observation"] = {"results": [_result(message) for message in shown]}
    if not inherited:
        step |= {"metrics": _metrics(row, start, one.place), "llm_call_count": 1}
    yield step
    for source, text in one.shown:
        if source == Source.USER:
            yield {"source": "user", "message": text, **copied}


def _said(action: Mapping[str, Any]) -> Step:
    """An answer or calls with the thought before them, or all that the model wrote."""
    if any(action[kind] for kind in OTHER_KINDS):
        return {"message": action["text"]}
    thought = {"reasoning_content": action["thought"]} if action["thought"] else {}
    return {"message": action["answer"] or "", **thought}


def _result(message: Mapping[str, Any]) -> Step:
    call = {"source_call_id": message["tool_call_id"]} if message["role"] == "tool" else {}
    return {**call, "content": message["content"]}


def _metrics(row: Row, start: int, place: slice) -> Step:
    """Tokens read and sampled, with log-probabilities where the engine gave them."""
    prompt, ids = row["ids"][start : place.start], row["ids"][place]
    logprobs = row["logprob"][place]
    found = {"logprobs": logprobs} if all(map(math.isfinite, logprobs)) else {}
    return {
        "prompt_tokens": len(prompt),
        "completion_tokens": len(ids),
        "prompt_token_ids": prompt,
        "completion_token_ids": ids,
        **found,
        "extra": {"policy_versions": row["version"][place]},
    }
