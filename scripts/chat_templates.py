#!/usr/bin/env python3
"""Holds published chat templates against the scaffold: `python -m scripts.chat_templates FOLDER`.

Each FOLDER/*.jinja is given to a small tokenizer that has the template's markers as tokens, with
the response template that stands in a .json of the same name, if any.
Conversations are rendered as a whole by transformers, and turn by turn by the scaffold: the ids
have to be the same, and each turn has to be read as it was written. `--write` makes the table of
docs/log/chat_templates.md of it. Not here: the templates, which are others'.
"""

import argparse
import collections
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from transformers import PreTrainedTokenizerFast

from scripts.template_conversations import (
    BAD,
    CONVERSATIONS,
    HIDDEN,
    SHOWN,
    TOOLS,
    Conversation,
    forms,
    tokenizer_for,
    wholes,
)
from turnwise.errors import ConfigError
from turnwise.scaffolds.base import Scaffold
from turnwise.tokens import Segment, Source
from turnwise.types import Action, Observation, ToolResult
from turnwise_environments.scaffolds.chat_template import ChatTemplateScaffold

PAGE = Path(__file__).resolve().parents[1] / "docs/log/chat_templates.md"
BEGIN, END = (
    "<!-- chat templates: scripts/chat_templates.py -->\n",
    "<!-- end of chat templates -->\n",
)
FORMATS = {
    "JSON in `<tool_call>`": r"<tool_call>\s*\{",
    "JSON list in `[TOOL_CALLS]`": r"\[TOOL_CALLS\]\s*\[\{",
    "name and JSON after `[TOOL_CALLS]`": r"\[TOOL_CALLS\]search",
    "DSML": "DSML",
    "harmony": r"to=functions\.",
    "parameters in tags": r"<(parameter|arg_key|arg_key:\w+|query)\b|argument key=|\[<query>",
    "Gemma's `call:`": r"call:search\{",
    "Python": r"search\(query=",
    "name and JSON": r"search\W{1,25}(json|\w+_begin\|>)?\W{0,12}\{\W*\"query\"",
    "JSON": r"\"(name|tool_name)\": ?\"search\"|\"search\": ?\{",
}

THOUGHT = re.compile(r"<((?:\w+:)?think)\b[^>]*>.*?</\1\b[^>]*>\s*", re.S)
KEPT = "thoughts stay where the template drops them"
BUT_FOR_THOUGHTS = "thoughts before a user's words, which are kept"


class Row(NamedTuple):
    """What the table says of a template."""

    form: str
    """The format of its calls; empty where it has no place for tools."""
    calls: str
    """Calls a turn: "several", "one", or empty."""
    history: str
    """Whether a longer conversation begins as a shorter one was: "stays", or when it "changes"."""
    found: str
    """Where ids are not the same: kept thoughts, conversations that differ, or a refusal."""


def _ids(segments: Sequence[Segment]) -> list[int]:
    return [token for segment in segments for token in segment.tokens]


def _calls(action: Action) -> list[tuple[str, dict[str, object]]]:
    return [(one.name, dict(one.arguments)) for one in action.calls]


def turn_by_turn(scaffold: Scaffold, chat: Conversation) -> Iterator[list[int]]:
    """The ids before each turn and at the end. Raises ValueError for a turn that is read otherwise
    than it was written."""
    ids = _ids(scaffold.begin(Observation(chat.task, Source.USER), chat.system))
    yield list(ids)
    for place, (action, results, words) in enumerate(chat.turns, 1):
        written = scaffold.render(action)
        read = scaffold.parse(written)
        same = _calls(read) == _calls(action) and (read.answer or "") == (action.answer or "")
        if action.error is None and not (same and read.thought in (action.thought, "…", "")):
            raise ValueError(f"READ as {read!r}")
        ids += written
        if place < len(chat.turns):
            shown = [ToolResult(*pair) for pair in zip(action.calls, results, strict=True)]
            source = Source.USER if action.error is None else Source.ENVIRONMENT
            told = Observation("\n".join(results)) if results else Observation(words[0], source)
            ids += _ids(scaffold.extend(told, written, shown, words if results else words[1:]))
        yield list(ids)


def compare(tokenizer: PreTrainedTokenizerFast, scaffold: Scaffold, name: str) -> str:
    """Hold a conversation against it: empty where all is the same, else the difference."""
    chat = CONVERSATIONS[name]
    given = forms(tokenizer, _told(tokenizer, scaffold))
    for turns, ids in enumerate(turn_by_turn(scaffold, chat)):
        text, near = tokenizer.decode(ids), ""
        shown = [wholes(tokenizer, chat, turns, given)]
        if turns == len(chat.turns):  # or as it stands before a user's words
            last = chat.turns[-1]._replace(words=["And?"])
            longer = chat._replace(turns=[*chat.turns[:-1], last])
            shown.append(wholes(tokenizer, longer, turns, given))
        for whole, form in itertools.chain(*shown):
            parts = [_compared(each, chat, turns, name) for each in (whole, text)]
            if re.fullmatch("(.+?)".join(map(re.escape, parts[0].split(HIDDEN))), parts[1], re.S):
                given = [form, *given]  # the next is likely to be the same
                break
            bare = [THOUGHT.sub("", each) for each in parts]
            if chat.turns[0].words and bare[0] == bare[1]:
                return KEPT
            near = max(near, whole, key=lambda each: _agreed(each, text))
        else:
            start = max(_agreed(near, text) - 30, 0)
            here, there = text[start:][:120], near[start:][:120]
            return f"DIFFERENT before turn {turns}: {here!r}, whole {there!r}"
        if name not in ("markers", "malformed"):
            encoded = tokenizer.encode(text, add_special_tokens=False)
            if encoded != ids:
                return f"OTHER IDS before turn {turns}: {len(ids)}, whole {len(encoded)}"
    return ""


def _agreed(one: str, other: str) -> int:
    """The number of characters that both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


def _compared(text: str, chat: Conversation, turns: int, name: str) -> str:
    """The part of a text that has to be the same: after a malformed turn, which no template would
    write, but for blanks, and before the last answer's end, which some leave out."""
    if name == "malformed" and turns:
        text = text.partition(BAD)[2].lstrip()
    if turns == len(chat.turns):
        text = text.rpartition(chat.turns[-1].action.answer or "")[0]
    return text


def shows_tools(tokenizer: PreTrainedTokenizerFast) -> bool:
    """Whether a template has a place for tools, calls and results."""
    shown = wholes(tokenizer, CONVERSATIONS["call"], 1, forms(tokenizer, told=False))
    whole = next(shown, ("", None))[0]
    return all(part in whole for part in (SHOWN, "colour blue", "In the second drawer."))


def check(template: str, response: str = "null") -> tuple[Row, dict[str, str]]:
    """Find what the table says of a template, and what is not the same, by conversation."""
    tokenizer, differs = tokenizer_for(template), {}
    tokenizer.response_template = json.loads(response)
    history, (form, calls) = _history(tokenizer), _calls_of(tokenizer)
    made = {tools: _made(tokenizer, tools) for tools in (True, False)}
    for name, chat in CONVERSATIONS.items():
        scaffold = made[chat.tools]
        if name == "two calls" and calls == "one":
            continue
        try:
            if isinstance(scaffold, ConfigError):
                raise scaffold
            differs[name] = compare(tokenizer, scaffold, name)
        except (ConfigError, ValueError) as error:
            differs[name] = str(error)
    told = not isinstance(made[True], ConfigError) and _told(tokenizer, made[True])
    if told:
        form, calls = "in words", "several"
    refused = re.search(r"cannot be used \((.*)\)", differs["call"])
    wrong = [name for name, difference in differs.items() if difference not in ("", KEPT)]
    same = BUT_FOR_THOUGHTS if KEPT in differs.values() else ""
    found = f"refused: {refused[1]}" if refused else ", ".join(wrong) or same
    return Row(form, calls, "" if refused else history, found), differs


def _made(tokenizer: PreTrainedTokenizerFast, tools: bool) -> ChatTemplateScaffold | ConfigError:
    try:
        return ChatTemplateScaffold(tokenizer, TOOLS if tools else [], keep_history=True)
    except ConfigError as error:
        return error


def _told(tokenizer: PreTrainedTokenizerFast, scaffold: Scaffold) -> bool:
    """Whether the scaffold describes the tools in words of its own."""
    return "You may call tools" in tokenizer.decode(_ids(scaffold.begin(Observation("?"))))


def _history(tokenizer: PreTrainedTokenizerFast) -> str:
    try:
        ChatTemplateScaffold(tokenizer, TOOLS)
    except ConfigError as error:
        changed = re.search(r"changes the history (.*?):", str(error))
        return f"changes {changed[1]}" if changed else ""
    return "stays"


def _calls_of(tokenizer: PreTrainedTokenizerFast) -> tuple[str, str]:
    """The format of calls in which the template writes them, and how many a turn may have."""
    if not shows_tools(tokenizer):
        return "", ""
    texts = wholes(tokenizer, CONVERSATIONS["two calls"], 1, forms(tokenizer, told=False))
    several = any("red key" in text and "Kept." in text for text, _ in texts)
    text = next(wholes(tokenizer, CONVERSATIONS["call"], 1, forms(tokenizer, told=False)))[0]
    own = text.partition(CONVERSATIONS["call"].task)[2] or text
    kind = next((kind for kind, pattern in FORMATS.items() if re.search(pattern, own)), "other")
    return kind, "several" if several else "one"


def table(rows: dict[str, Row]) -> str:
    """The table, templates of which the same is said in one row."""
    groups = collections.defaultdict(list)
    for name, row in rows.items():
        groups[row].append(f"{name}")
    lines = [
        f"| {', '.join(names)} | {' | '.join(row)} |\n"
        for row, names in sorted(groups.items(), key=lambda each: (-len(each[1]), each[1]))
    ]
    head = "| templates | tool calls | a turn | history | not the same |\n|---|---|---|---|---|\n"
    return head + "".join(lines)


def count(rows: dict[str, Row]) -> str:
    """How many templates give the same ids, but for thoughts that are kept."""
    same = sum(row.found in ("", BUT_FOR_THOUGHTS) for row in rows.values())
    return f"{len(rows)} templates, {same} with the same ids"


def main() -> None:
    """Check all templates of a folder."""
    parser = argparse.ArgumentParser(description="Checks chat templates against the scaffold.")
    parser.add_argument("folder", type=Path, help="where *.jinja are")
    parser.add_argument("--write", action="store_true", help=f"write the table of {PAGE.name}")
    options = parser.parse_args()
    rows = {}
    for file in sorted(options.folder.glob("*.jinja"), key=lambda each: each.name.lower()):
        response = file.with_suffix(".json")
        given = [response.read_text()] if response.is_file() else []
        rows[file.stem], differs = check(file.read_text(), *given)
        print(f"== {file.stem}: {' | '.join(rows[file.stem])}", flush=True)
        for name, difference in differs.items():
            print(f"   {name}: {difference}" if difference else "", end="\n" if difference else "")
    print(count(rows))
    if options.write:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(before + BEGIN + table(rows) + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
