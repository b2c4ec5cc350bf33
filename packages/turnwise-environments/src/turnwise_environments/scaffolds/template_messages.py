"""Conversations as a chat template writes them.

A conversation is rendered twice, once with marks in place of the texts from outside: what stands
around the marks is the template's own, and between it stand the texts, trimmed or quoted as the
template has them. So the source of each piece is known.
"""

import json
import re
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jinja2 import UndefinedError

from turnwise.config import Recipe
from turnwise.errors import ConfigError
from turnwise.models.places import TINY, tiny_folder
from turnwise.scaffolds.templates import UNFIT, day_written, pieces
from turnwise.tokens import Source
from turnwise.types import Action, encodable
from turnwise_environments.scaffolds.tool_formats import Call

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MARK = "\ue000h\ue001"
"""A text that no template writes, to see where a text goes."""
_PLACED = re.compile("\ue000(\\d+)\ue001")


class Said(NamedTuple):
    """A message. `name`, `id` and `place` are those of the call whose result it is."""

    role: str
    text: str = ""
    source: Source = Source.TEMPLATE
    thought: str = ""
    calls: Sequence[Call] = ()
    name: str = ""
    id: str = ""
    place: int = 0

    def result_of(self, call: Call, place: int) -> "Said":
        """Make it the result of a turn's call."""
        return self._replace(role="tool", name=call.name, id=call.id, place=place)


HELLO = Said("user", "Hello.")
"""Stands for what a user has said."""


def said_of(action: Action) -> Said:
    """The message of an action."""
    calls = [Call(call.name, call.arguments) for call in action.calls]
    return Said("assistant", action.answer or "", thought=action.thought, calls=calls)


def said_before(messages: Sequence[Mapping[str, Any]]) -> list[Said]:
    """The messages of examples: results of tools belong to the calls before them, in their order.
    Raises ConfigError for one that is no message of a user, the assistant or a tool."""
    said: list[Said] = []
    calls: list[Call] = []
    for number, message in enumerate(messages, 1):
        role, text = message.get("role"), message.get("content", "")
        try:
            asked = [one["function"] for one in message.get("tool_calls", ())]
            made = [Call(one["name"], dict(one["arguments"])) for one in asked]
            if role not in ("user", "assistant", "tool") or not isinstance(text, str):
                raise ValueError
            one = Said(role, encodable(text), calls=made)
            if role == "tool":
                one = one.result_of(calls.pop(0), len(said))
        except (KeyError, TypeError, ValueError, IndexError):
            raise ConfigError(
                f"scaffold.options.examples, message {number}: give role user or tool with content,"
                " or role assistant with content or tool_calls = [{ function = { name = ..., "
                "arguments = { ... } } }]; a tool's follow the calls"
            ) from None
        said.append(one)
        calls = list(made) or calls
    return said


class Piece(NamedTuple):
    """A run of text: from outside with its source, or the template's own."""

    text: str
    source: Source = Source.TEMPLATE
    outside: bool = False


@dataclass
class Forms:
    """The forms that a template has for messages; what it lacks is written in those it has."""

    parts: bool = False
    """Whether contents are lists of parts."""
    system: bool = True
    """Whether there are system messages; else they stand before the first user's."""
    two_users: bool = True
    """Whether a user's message may follow another; else they are one."""
    user_after_tool: bool = True
    tools: bool = True
    """Whether the template is given the tools."""
    words: str = ""
    """The tools in words, where the template does not show them."""
    calls: bool = False
    """Whether it writes calls; else they are JSON in <tool_call> tags."""
    results: bool = False
    """Whether it writes results; else they are a user's messages in <tool_response> tags."""
    strings: bool = False
    """Whether it takes arguments as JSON text."""
    id: str = ""
    """The form of a call's id."""
    thought_key: str = ""
    """The field of thoughts, `content` for one in tags before the text; empty without a place."""
    tags: tuple[str, str] = "<think>\n", "\n</think>\n\n"
    """The texts before and after a thought."""


def check_template(recipe: Recipe) -> None:
    """Raise ConfigError where the model's folder, in the form of transformers, has no chat
    template. Imports no model library."""
    folder = Path(recipe.model.name)
    if recipe.model.name in TINY:
        folder = tiny_folder(recipe.model.name)
    settings = folder / "tokenizer_config.json"
    if not settings.is_file():
        return
    others = [file for file in folder.iterdir() if "chat_template" in file.name]
    if not others and "chat_template" not in settings.read_text(errors="replace"):
        raise _without_template(recipe.model.name)


def _without_template(model: str) -> ConfigError:
    return ConfigError(
        f"scaffold native: model {model!r} has no chat template: choose scaffold tags, or give its "
        "tokenizer one"
    )


class Renderer:
    """Renders conversations by a tokenizer's chat template, with its switches, in `forms`."""

    def __init__(
        self,
        tokenizer: "PreTrainedTokenizerBase",
        specs: Sequence[Mapping[str, Any]],
        switches: Mapping[str, Any],
        day: str,
    ) -> None:
        """`specs` are the tools' names, descriptions and parameters; `day` as 2026-11-26. Raises
        ConfigError for a tokenizer without a template."""
        if not tokenizer.chat_template:
            raise _without_template(tokenizer.name_or_path)
        self.forms = Forms(tools=bool(specs))
        self._tokenizer, self._switches = tokenizer, switches
        self._tools = [{"type": "function", "function": dict(spec)} for spec in specs]
        self.source = f"{day_written(day)}{tokenizer.get_chat_template(tools=self._tools or None)}"
        self._lines_before = day_written(day).count("\n")

    def whole(self, messages: Sequence[Said], begun: bool = True) -> str:
        """The conversation as the template alone writes it, with the beginning of the model's turn
        if `begun`. Raises ConfigError where it refuses the messages."""
        return self._rendered(messages, False, begun)

    def pieces(self, messages: Sequence[Said]) -> list[Piece]:
        """Render the conversation and the beginning of the model's turn, in pieces. Raises as
        `whole`."""
        return _pieces(self.whole(messages), self._rendered(messages, True, True), messages)

    def after(self, history: Said, end: str, messages: Sequence[Said]) -> list[Piece]:
        """The pieces behind a turn of the model that `end` ends, for which `history` stands:
        messages, and the beginning of the next turn. Raises as `whole`."""
        mark = MARK
        while any(mark in one.text for one in messages):
            mark = f"{mark[:-1]}h\ue001"
        calls = [call._replace(arguments={"text": mark}) for call in history.calls]
        turn = history._replace(text="" if calls else mark, calls=calls)
        said = [HELLO, turn, *messages]
        text, marked = (
            self._rendered(said, marked, True).rpartition(mark)[2].partition(end)[2]
            for marked in (False, True)
        )
        own = "".join(_PLACED.split(marked)[::2])
        # What is left of a mark is "ue000" where the template writes texts as JSON in ASCII.
        if not text or HELLO.text in own or MARK[:2] in own or "ue000" in own:
            raise self.refused("it does not show where a turn of the model ends")
        return _pieces(text, marked, said)

    def refused(self, why: str) -> ConfigError:
        """The error that says why the template cannot be used, and what can be."""
        try:
            pieces(self._tokenizer, [("user", "")])  # as scaffold tags does
            instead = "scaffold tags, or another model"
        except ConfigError:
            instead = "another model, or give its tokenizer another template"
        return ConfigError(
            f"scaffold native: the chat template of {self._tokenizer.name_or_path!r} cannot be "
            f"used ({why}): choose {instead}"
        )

    def _rendered(self, messages: Sequence[Said], marked: bool, begun: bool) -> str:
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    self._converted(messages, marked),
                    tools=self._tools if self.forms.tools else None,
                    chat_template=self.source,
                    tokenize=False,
                    add_generation_prompt=begun,
                    **self._switches,
                )
            )
        except UNFIT as error:
            frames = traceback.extract_tb(error.__traceback__)
            lines = [frame.lineno for frame in frames if frame.filename == "<template>"]
            lines.append(getattr(error, "lineno", None))
            line = next((f"line {one - self._lines_before}: " for one in lines if one), "")
            lacks = isinstance(error, UndefinedError)
            hint = "; scaffold.options.template may say what it is" if lacks else ""
            raise self.refused(f"{line}{error}{hint}") from None

    def _converted(self, messages: Sequence[Said], marked: bool) -> list[dict[str, Any]]:
        """The messages as the template takes them; with `marked` each text from outside is a mark
        with its message's place."""
        forms, waiting = self.forms, self.forms.words
        converted: list[dict[str, Any]] = []
        for place, one in enumerate(messages):
            outside = marked and one.role != "assistant"
            text = f"\ue000{place}\ue001" if outside else one.text
            if one.role == "system":
                waiting = "\n\n".join(filter(None, (text, waiting)))
                continue
            if waiting and forms.system:
                converted.append({"role": "system", "content": waiting})
            elif waiting:
                text = f"{waiting}\n\n{text}"
            waiting = ""
            if one.role == "assistant":
                converted.append(self._assistant(one))
            elif one.role == "tool" and forms.results:
                name = one.id or forms.id.format(name=one.name, place=one.place)
                call = {"name": one.name, "tool_call_id": name}
                converted.append({"role": "tool", **call, "content": text})
            else:
                if one.role == "tool":
                    text = f"<tool_response>\n{text}\n</tool_response>"
                apart = {"user": forms.two_users, "tool": forms.user_after_tool}
                if converted and not apart.get(converted[-1]["role"], True):
                    converted[-1]["content"] += f"\n\n{text}"
                else:
                    converted.append({"role": "user", "content": text})
        for message in converted if forms.parts else ():
            message["content"] = [{"type": "text", "text": message["content"]}]
        return converted

    def _assistant(self, message: Said) -> dict[str, Any]:
        text, forms = message.text, self.forms
        if message.calls and not forms.calls:
            text += "\n".join(map(_in_tags, message.calls))
        if message.thought and forms.thought_key == "content":
            text = f"{forms.tags[0]}{message.thought}{forms.tags[1]}{text}"
        converted: dict[str, Any] = {"role": "assistant", "content": text}
        if message.thought and forms.thought_key not in ("", "content"):
            converted[forms.thought_key] = message.thought
        if message.calls and forms.calls:
            converted["tool_calls"] = [
                self._call(call, place) for place, call in enumerate(message.calls)
            ]
        return converted

    def _call(self, call: Call, place: int) -> dict[str, Any]:
        arguments: Any = dict(call.arguments)
        if self.forms.strings:
            arguments = json.dumps(arguments, ensure_ascii=False)
        name = call.id or self.forms.id.format(name=call.name, place=place)
        function = {"name": call.name, "arguments": arguments}
        return {"type": "function", "id": name, "function": function}


def _pieces(text: str, marked: str, messages: Sequence[Said]) -> list[Piece]:
    """The rendered text in pieces: `marked` is the same with marks for the texts from outside."""
    own = _PLACED.split(marked)
    pieces, start = [Piece(own[0])], len(own[0])
    for place, after in zip(own[1::2], own[2::2], strict=True):
        said = messages[int(place)]
        quoted = json.dumps(said.text, ensure_ascii=False)[1:-1]
        forms = (said.text, said.text.strip(), said.text.rstrip(), said.text.lstrip(), quoted)
        shown = next((form for form in forms if text.startswith(form + after, start)), said.text)
        pieces += [Piece(shown, said.source, outside=True), Piece(after)]
        start += len(shown) + len(after)
    return [piece for piece in pieces if piece.text]


def _in_tags(call: Call) -> str:
    written = {"name": call.name, "arguments": dict(call.arguments)}
    return f"<tool_call>\n{json.dumps(written, ensure_ascii=False)}\n</tool_call>"
