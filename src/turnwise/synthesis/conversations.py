"""Chat messages with tool calls, as JSON lines: demonstrations of others, and one's own episodes.

A line is `{"messages": [...]}` in OpenAI's format for chat completions: `system`, `user`,
`assistant` with `tool_calls`, `tool` with results. The scaffold renders it as it renders an
episode, so that a model learns from it what it will be asked to write; assistant turns alone are
trained. A turn that the scaffold could not read back is refused. Not here: demonstrations that are
played (`demonstrations.py`), and what is learned from either (`learning/sft.py`).
"""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from turnwise.errors import DataError
from turnwise.scaffolds.base import Scaffold
from turnwise.tokens import Source, Tokens
from turnwise.types import Action, Observation, ToolCall, ToolResult

Message = Mapping[str, Any]
Decode = Callable[[Sequence[int]], str]
"""Text of token ids."""
ROLES = ("system", "user", "assistant", "tool")


def read_conversations(file: Path) -> list[list[Message]]:
    """Read the messages of each line. Raises DataError, with the line's number, for a line that is
    not a conversation."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"sft.demonstrations.file {file} cannot be read: {error}") from None
    found = [
        _messages(line, f"{file}, line {n}") for n, line in enumerate(lines, 1) if line.strip()
    ]
    if not found:
        raise DataError(f"sft.demonstrations.file {file} holds no conversation")
    return found


def _messages(line: str, place: str) -> list[Message]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise DataError(f"{place} is not JSON") from None
    return checked_messages(value.get("messages") if isinstance(value, dict) else value, place)


def checked_messages(messages: Any, place: str, name: str = "messages") -> list[Message]:
    """The messages of a conversation, as a file has them under a name. Raises DataError for
    anything else, with the place."""
    if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
        raise DataError(f'{place} has no "{name}": give {{"{name}": [{{"role": ...}}, ...]}}')
    roles = [message.get("role") for message in messages]
    for role in roles:
        if role not in ROLES:
            raise DataError(f"{place} has a message of role {role!r}: use {', '.join(ROLES)}")
    if "assistant" not in roles:
        raise DataError(f"{place} has no message of the assistant to learn from")
    return messages


def conversation_tokens(messages: Sequence[Message], scaffold: Scaffold, place: str) -> Tokens:
    """Render a conversation; its assistant turns are MODEL tokens, without log-probabilities.

    System and user messages before the first assistant turn are the prompt, with blank lines
    between them; what the scaffold puts around a prompt stands around this one. What follows the
    last assistant turn is left out. `place` names the conversation in errors. Raises DataError for
    a turn that the scaffold cannot write and read back.
    """
    tokens = Tokens.empty()
    shown: list[Message] = []
    calls: Sequence[ToolCall] = ()
    written: list[int] = []
    turn = 0
    for number, message in enumerate(messages, 1):
        if message["role"] != "assistant":
            shown.append(message)
            continue
        at = f"{place}, message {number}"
        if not shown:
            raise DataError(f"{at}: nothing stands before this turn of the assistant")
        if turn == 0:
            prompt = "\n\n".join(_text(one, at) for one in shown)
            tokens = tokens.with_segments(scaffold.begin(Observation(prompt, Source.USER)), 0)
        else:
            observation, results = _observation(shown, calls, at)
            tokens = tokens.with_segments(scaffold.extend(observation, written, results), turn - 1)
        action = _action(message, turn, at)
        written = _rendered(action, scaffold, at)
        tokens = tokens.with_sampled(written, [math.nan] * len(written), 0, turn)
        shown, calls, turn = [], action.calls, turn + 1
    return tokens


def _rendered(action: Action, scaffold: Scaffold, place: str) -> list[int]:
    """The tokens of a turn, which the scaffold reads as what was meant."""
    try:
        written = scaffold.render(action)
    except (KeyError, ValueError, TypeError) as error:
        names = ", ".join(call.name for call in action.calls)
        raise DataError(f"{place}: the scaffold cannot write a call of {names}: {error}") from None
    read = scaffold.parse(written)
    if read.error is not None:
        raise DataError(f"{place}: the scaffold cannot read this turn: {read.error}")
    if _meaning(read) != _meaning(action):
        raise DataError(f"{place}: the scaffold reads this turn as {_meaning(read)}")
    return written


def _meaning(action: Action) -> tuple[list[tuple[str, dict[str, Any]]], str | None]:
    calls = [(call.name, dict(call.arguments)) for call in action.calls]
    return calls, None if action.answer is None else action.answer.strip()


def _action(message: Message, turn: int, place: str) -> Action:
    """The thought of a turn with calls is its content; of an answer its `reasoning_content`."""
    content = _text(message, place)
    thought = str(message.get("reasoning_content") or "")
    given = message.get("tool_calls") or []
    if not given:
        if not content.strip():
            raise DataError(f"{place} says nothing and calls nothing")
        return Action("", thought, answer=content)
    calls = tuple(_call(one, f"{turn}.{n}", place) for n, one in enumerate(given))
    return Action("", thought or content, calls=calls)


def _call(given: Any, name: str, place: str) -> ToolCall:
    try:
        function = given["function"]
        arguments = function.get("arguments") or {}
        if isinstance(arguments, str):
            arguments = json.loads(arguments)
        if not isinstance(arguments, dict):
            raise ValueError
        return ToolCall(str(function["name"]), arguments, id=str(given.get("id", name)))
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError):
        raise DataError(
            f'{place}: a tool call is {{"id": ..., "function": {{"name": ..., "arguments": '
            "an object, as JSON text}}}"
        ) from None


def _observation(
    shown: Sequence[Message], calls: Sequence[ToolCall], place: str
) -> tuple[Observation, tuple[ToolResult, ...]]:
    """The observation of the assistant between two turns: results of its calls, in their order, or
    what a user says."""
    texts = [_text(message, place) for message in shown]
    if all(message["role"] == "tool" for message in shown) and calls:
        by_id = {
            str(message.get("tool_call_id")): text
            for message, text in zip(shown, texts, strict=True)
        }
        if len(by_id) == len(calls) and all(call.id in by_id for call in calls):
            texts = [by_id[call.id] for call in calls]
        results = tuple(map(ToolResult, calls, texts))
        return Observation("\n".join(texts)), results
    if any(message["role"] == "tool" for message in shown):
        raise DataError(f"{place}: results of tools stand where none was called, or beside others")
    return Observation("\n".join(texts), Source.USER), ()


def _text(message: Message, place: str) -> str:
    content = message.get("content")
    if isinstance(content, list) and all(
        isinstance(part, dict) and isinstance(part.get("text"), str) for part in content
    ):
        return "".join(part["text"] for part in content)
    if content is None or isinstance(content, str):
        return content or ""
    raise DataError(f"{place}: content is text, or a list of parts with text each")


def messages_of(row: Mapping[str, Any], decode: Decode) -> list[dict[str, Any]] | None:
    """A trajectory's row (`storage.trajectory_rows.SCHEMA`) as messages that `conversation_tokens`
    reads back; None where that cannot be: with malformed turns, images, or several contexts."""
    actions = json.loads(row["actions"])
    if row["images"] or len(row["contexts"]) > 1 or row["first_turn"]:
        return None
    if not actions or any(action["error"] is not None for action in actions):
        return None
    messages = [{"role": "user", "content": row["prompt"]}]
    observed = observed_texts(row, decode)
    for turn, action in enumerate(actions):
        calls = [
            {
                "id": call["id"] or f"{turn}.{number}",
                "type": "function",
                "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])},
            }
            for number, call in enumerate(action["calls"])
        ]
        messages.append(_assistant(action, calls))
        messages += _shown(observed[turn], calls)
    return messages


def _assistant(action: Mapping[str, Any], calls: list[dict[str, Any]]) -> dict[str, Any]:
    if calls:
        return {"role": "assistant", "content": action["thought"], "tool_calls": calls}
    message = {"role": "assistant", "content": action["answer"] or ""}
    return message | ({"reasoning_content": action["thought"]} if action["thought"] else {})


def _shown(texts: list[str], calls: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Messages of what was observed; where several results stand in one text, it is the first's."""
    if not calls:
        yield from ({"role": "user", "content": text} for text in texts)
        return
    for number, text in enumerate(texts):
        call = calls[min(number, len(calls) - 1)]
        yield {"role": "tool", "tool_call_id": call["id"], "content": text}


def observed_texts(row: Mapping[str, Any], decode: Decode) -> Mapping[int, list[str]]:
    """The texts that came back after each turn, as the policy was shown them."""
    texts = defaultdict(list)
    written = (Source.MODEL, Source.INHERITED)
    begun = next((n for n, one in enumerate(row["source"]) if one in written), len(row["source"]))
    columns = (row[name][begun:] for name in ("turn", "source", "ids"))
    places = zip(*columns, strict=True)
    for (turn, source), group in groupby(places, key=lambda place: place[:2]):
        if source in (Source.TOOL, Source.ENVIRONMENT, Source.USER):
            texts[turn].append(decode([token for *_, token in group]).strip())
    return texts
