"""Saved episodes as chat messages with tool calls, in OpenAI's format for chat completions."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, takewhile
from pathlib import Path
from typing import Any

from turnwise.errors import DataError
from turnwise.storage.run_folder import RunFolder, new_file
from turnwise.tokens import Source

Decode = Callable[[Sequence[int]], str]
"""Text of token ids."""
SAMPLED = (Source.MODEL, Source.INHERITED)
OBSERVED = (Source.TOOL, Source.ENVIRONMENT, Source.USER)


def messages_of(row: Mapping[str, Any], decode: Decode) -> list[dict[str, Any]] | None:
    """A trajectory's row (`storage/trajectory_rows.py`) as messages that `conversation_tokens`
    reads back; None where that cannot be: with malformed turns, images, several contexts, or a
    beginning of another trajectory."""
    actions = json.loads(row["actions"])
    if row["images"] or len(row["contexts"]) > 1 or row["first_turn"]:
        return None
    if not actions or any(action["error"] is not None for action in actions):
        return None
    whole = slice(0, len(row["ids"]))
    messages = [{"role": "user", "content": prompt_text(row, whole, decode)}]
    turns = sampled_turns(row, whole, decode)
    observed = {one.turn: [text for _, text in one.shown] for one in turns}
    for turn, action in enumerate(actions):
        calls = written_calls(action, turn)
        messages.append(_assistant(action, calls))
        messages += shown_messages(observed.get(turn, []), calls)
    return messages


def written_calls(action: Mapping[str, Any], turn: int) -> list[dict[str, Any]]:
    """The calls of a turn of a trajectory's row, as a message of the assistant has them."""
    return [
        {
            "id": call["id"] or f"{turn}.{number}",
            "type": "function",
            "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])},
        }
        for number, call in enumerate(action["calls"])
    ]


def _assistant(action: Mapping[str, Any], calls: list[dict[str, Any]]) -> dict[str, Any]:
    if calls:
        return {"role": "assistant", "content": action["thought"], "tool_calls": calls}
    message = {"role": "assistant", "content": action["answer"] or ""}
    return message | ({"reasoning_content": action["thought"]} if action["thought"] else {})


def shown_messages(
    texts: Sequence[str], calls: Sequence[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Messages of what was observed; where several results stand in one text, it is the first's."""
    if not calls:
        yield from ({"role": "user", "content": text} for text in texts)
        return
    for number, text in enumerate(texts):
        call = calls[min(number, len(calls) - 1)]
        yield {"role": "tool", "tool_call_id": call["id"], "content": text}


@dataclass(frozen=True)
class SampledTurn:
    """A turn's tokens in a context, and what the policy was shown after them."""

    turn: int
    place: slice
    """The sampled tokens, in the whole record."""
    shown: list[tuple[Source, str]] = field(default_factory=list)


def prompt_text(row: Mapping[str, Any], span: slice, decode: Decode) -> str:
    """The text before a context's first turn, as the policy was shown it, without what the scaffold
    puts around it."""
    columns = (row[name][span] for name in ("source", "ids"))
    before = takewhile(lambda one: one[0] not in SAMPLED, zip(*columns, strict=True))
    texts = (
        decode([token for _, token in group])
        for source, group in groupby(before, key=lambda one: one[0])
        if source in OBSERVED
    )
    text = "\n\n".join(texts).strip()
    # The row's own prompt, where it was shown whole, still has the blanks at its ends.
    return row["prompt"] if text in ("", row["prompt"].strip()) else text


def sampled_turns(row: Mapping[str, Any], span: slice, decode: Decode) -> list[SampledTurn]:
    """The turns of a context of a trajectory's row, in the order in which the policy read them."""
    turns: list[SampledTurn] = []
    steps = json.loads(row["steps"])
    end = span.start
    columns = (row[name][span] for name in ("turn", "source"))
    for (turn, source), group in groupby(zip(*columns, strict=True)):
        start, end = end, end + len(list(group))
        if source in SAMPLED:
            turns.append(SampledTurn(turn, slice(start, end)))
        elif source in OBSERVED and turns:
            text = _as_given(decode(row["ids"][start:end]), steps[turn])
            turns[-1].shown.append((Source(source), text))
    return turns


def _as_given(text: str, step: Mapping[str, Any] | None) -> str:
    """A text without the spaces that a scaffold puts around it: as the environment gave it, where
    it was shown whole."""
    step = step or {"results": [], "observation": None}
    given = [content for _, content, _ in step["results"]]
    given += [step["observation"][0]] if step["observation"] else []
    return next((one for one in given if one.strip() == text.strip()), text.strip())


def write_preferences(
    folder: RunFolder, rows: Sequence[Mapping[str, Any]], file: Path
) -> tuple[int, int]:
    """Write of each group of some rows whose rewards differ its best and its worst episode, as
    `{"prompt": [...], "chosen": [...], "rejected": [...]}`; returns how many were written and how
    many left out because no messages can be made of them."""
    lines: list[str] = []
    ends: list[Mapping[str, Any]] = []
    graded = [row for row in rows if row["reward"] is not None]
    # Rows of a group stand together, as they were written: groupby asks for that.
    for _, members in groupby(graded, key=lambda row: row["group"]):
        ordered = sorted(members, key=lambda row: -float(row["reward"]))
        if ordered[0]["reward"] != ordered[-1]["reward"]:
            ends += [ordered[0], ordered[-1]]
    found = conversations(folder, ends)
    for best, worst in zip(found, found, strict=True):  # two at a time
        if best is not None and worst is not None:
            pair = {"prompt": best[:1], "chosen": best[1:], "rejected": worst[1:]}
            lines.append(json.dumps(pair))
    write_lines(file, lines, f"{folder.path} has no pair that can be written as messages")
    return len(lines), len(ends) // 2 - len(lines)


def conversations(
    folder: RunFolder, rows: Sequence[Mapping[str, Any]]
) -> Iterator[list[dict[str, Any]] | None]:
    """Rows of a run, each as `messages_of` makes it."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(folder.tokenizer))
    for row in rows:
        yield messages_of(row, tokenizer.decode)


def write_lines(file: Path, lines: Sequence[str], nothing: str) -> None:
    """Write a new file of lines. Raises DataError, with the sentence `nothing`, for none."""
    if not lines:
        raise DataError(nothing)
    if file.exists():
        raise DataError(f"{file} exists already: choose another file")
    with new_file(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
