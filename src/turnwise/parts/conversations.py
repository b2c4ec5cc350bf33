"""Chat messages with tool calls, as JSON lines: demonstrations of others, read for a cold start.

A line is `{"messages": [...]}` in OpenAI's format for chat completions: `system` or `developer`,
`user`, `assistant` with `tool_calls`, `tool` with results. The scaffold renders it as it renders an
episode, so that a model learns from it what it will be asked to write; assistant turns alone are
trained, and of them none of `weight` 0. A turn that the scaffold could not read back is refused.
A file in another format is read by a part of the kind `file_format`.
"""

import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from turnwise.environments.records import lines_of, parsed, read_text
from turnwise.errors import DataError
from turnwise.registry import Registry
from turnwise.scaffolds.base import Scaffold
from turnwise.tokens import Segment, Source, Tokens
from turnwise.types import Action, Observation, ToolCall, ToolResult

Message = Mapping[str, Any]
ROLES = ("system", "developer", "user", "assistant", "tool")
FILE_FORMATS: Registry[
    Callable[[Mapping[str, Any], str, Path, Collection[Path]], Iterator[tuple[str, list[Message]]]]
] = Registry("file_format", callable, "give a function of a file's value that yields conversations")
"""Functions that read a whole file of JSON: from its value, its place, its folder, and all files
that are read, to conversations, each with its place."""


def read_conversations(file: Path) -> list[tuple[str, list[Message]]]:
    """Read the conversations of a file of JSON lines, of a trajectory in ATIF, or of all those in a
    folder, each with the place where it stands, for errors. Raises DataError, with file and line,
    for a line that is not a conversation."""
    files = sorted(file.rglob("*.json")) if file.is_dir() else [file]
    known = {each.resolve() for each in files}
    found = [one for each in files for one in _read(each, known)]
    if not found:
        raise DataError(f"sft.demonstrations.file {file} holds no conversation")
    return found


def _read(file: Path, files: Collection[Path]) -> Iterator[tuple[str, list[Message]]]:
    """The conversations of one of several files; in a folder, other JSON than ATIF is left out."""
    text = read_text(file)
    whole = None
    with suppress(ValueError, RecursionError):
        whole = json.loads(text)
    if isinstance(whole, dict) and str(whole.get("schema_version")).startswith("ATIF-"):
        for place, messages in FILE_FORMATS.get("atif")(whole, str(file), file.parent, files):
            yield place, checked_messages(messages, place)
    elif len(files) == 1:
        for place, line in lines_of(text, file):
            yield place, _messages(line, place)


def _messages(line: str, place: str) -> list[Message]:
    value = parsed(line, place)
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
    weights = [one.get("weight", 1) for one in messages if one["role"] == "assistant"]
    if any(weight not in (0, 1) for weight in weights):
        raise DataError(f"{place}: a message's weight is 0 (shown, not trained) or 1")
    if not any(weights):
        raise DataError(f"{place} has no message of the assistant to learn from")
    return messages


def conversation_tokens(messages: Sequence[Message], scaffold: Scaffold, place: str) -> Tokens:
    """Render a conversation; its assistant turns are MODEL tokens, without log-probabilities, and
    INHERITED ones where their weight is 0.

    System and user messages before the first assistant turn are the prompt, with blank lines
    between them; what the scaffold puts around a prompt stands around this one. What follows the
    last assistant turn is left out. `place` names the conversation in errors. Raises DataError for
    a turn that the scaffold cannot write and read back.
    """
    tokens = Tokens.empty()
    shown: list[tuple[str, Message]] = []
    calls: Sequence[ToolCall] = ()
    written: list[int] = []
    turn = 0
    for number, message in enumerate(messages, 1):
        step = message.get("step_id")
        at = f"{place}, message {number}" if step is None else f"{place}, step {step}"
        if message["role"] != "assistant":
            shown.append((at, message))
            continue
        if not shown:
            raise DataError(f"{at}: nothing stands before this turn of the assistant")
        if turn == 0:
            prompt = "\n\n".join(_text(one, where) for where, one in shown)
            tokens = tokens.with_segments(scaffold.begin(Observation(prompt, Source.USER)), 0)
        else:
            observation, results = _observation(shown, calls)
            tokens = tokens.with_segments(scaffold.extend(observation, written, results), turn - 1)
        action = _action(message, turn, at)
        # A turn that is malformed on purpose cannot be read back.
        written = scaffold.render(action) if action.error else _rendered(action, scaffold, at)
        if message.get("weight", 1):
            tokens = tokens.with_sampled(written, [math.nan] * len(written), 0, turn)
        else:
            tokens = tokens.with_segments([Segment(written, Source.INHERITED)], turn)
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
    """The thought of a turn with calls is its content; of an answer its `reasoning_content`. The
    content of one that is neither is written as it stands, as that of a malformed one."""
    content = _text(message, place)
    if message.get("verbatim"):
        return Action(content, error="neither calls nor an answer")
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
    shown: Sequence[tuple[str, Message]], calls: Sequence[ToolCall]
) -> tuple[Observation, tuple[ToolResult, ...]]:
    """The observation of the assistant between two turns: results of its calls, in their order, or
    what a user says. A user's words after results stand with the last: a scaffold shows one."""
    said = [_text(message, place) for place, message in shown if message["role"] != "tool"]
    returned = [(place, message) for place, message in shown if message["role"] == "tool"]
    if not returned:
        return Observation("\n".join(said), Source.USER), ()
    if not calls:
        raise DataError(f"{returned[0][0]}: results of tools stand where none was called")
    texts = [_text(message, place) for place, message in returned]
    names = [str(message.get("tool_call_id")) for _, message in returned]
    # Else, as where all ids are null, they are taken to be in the order of the calls.
    if len({*names}) == len(names) and sorted(names) == sorted(call.id for call in calls):
        texts = [texts[names.index(call.id)] for call in calls]
    texts[-1] = "\n".join([texts[-1], *said])
    return Observation("\n".join(texts)), tuple(map(ToolResult, calls, texts))


def _text(message: Message, place: str) -> str:
    content = message.get("content")
    if content is None or isinstance(content, str):
        return content or ""
    for part in content if isinstance(content, list) else [content]:
        if not isinstance(part, dict) or not isinstance(part.get("text"), str):
            kind = part.get("type") if isinstance(part, dict) else part
            raise DataError(
                f"{place}: content is text, or a list of parts with text each, and not {kind!r}: "
                "demonstrations of a file have words alone"
            )
    return "".join(part["text"] for part in content)
