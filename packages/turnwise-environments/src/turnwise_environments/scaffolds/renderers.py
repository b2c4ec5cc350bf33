"""A model family's own format for messages, thoughts and tool calls, by the package `renderers`.

The family's renderer says which tokens a message is. It is asked for the first messages and then,
turn by turn, for what comes after the tokens that the model wrote: these are kept as they were
sampled, and no chat template is ever applied to them. A turn may have several calls; each result is
a message of its own. A turn without a call is an answer.

Source: the package renderers, whose renderers mirror the chat templates of Qwen3, Llama 3, GLM,
Kimi K2, DeepSeek, MiniMax and others. Not here: images, and families that it only knows through
their chat template, which could not be continued without rendering sampled text again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from transformers import PreTrainedTokenizerBase

from turnwise.errors import ConfigError, first_line
from turnwise.scaffolds.templates import writes_today
from turnwise.scaffolds.text import check_characters, contents
from turnwise.tokens import Segment, Source
from turnwise.tools.tool import Tool
from turnwise.types import Action, Observation, ToolCall, ToolResult
from turnwise_environments.scaffolds.chat import ChatScaffold, acted, malformed

DATE = "conversation_start_date"
"""The switch of the families whose prompts hold today's date."""
SAMPLE = {"role": "user", "content": "Hello."}
"""Stands for the history where the renderer only needs to know where the model begins."""
ANSWER = Action("", answer="Hello.")


class RenderersScaffold(ChatScaffold):
    """See the module. Example: RenderersScaffold(tokenizer, tools, family="qwen3")."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        tools: Sequence[Tool],
        family: str = "auto",
        instructions: str = "",
        template: Mapping[str, Any] | None = None,
        date: str = "",
    ) -> None:
        """`family` is a renderer's name, such as "qwen3" or "llama-3"; "auto" finds it by the
        model's name on the hub. `instructions` are the system message, if any. `template` are
        switches of the family's chat template, such as {enable_thinking = false}.

        Raises ConfigError for a family or switch that there is not, a tokenizer without the
        family's tokens, or a family that does not read what it writes.
        """
        super().__init__(tokenizer, tools, instructions, date)
        switches = dict(template or {})
        if date and DATE in _switches(tokenizer, family):
            switches.setdefault(DATE, date)
        self._renderer = _renderer(tokenizer, family, switches)
        self._ends = set(self._renderer.get_stop_token_ids())
        self.stop = tuple(self._decode([end]) for end in sorted(self._ends))
        self._prompt = self._renderer.render_ids(
            [SAMPLE], tools=self._specs, add_generation_prompt=True
        )
        self._thinks = self._has_room_for_thoughts()
        self._closed = self._written(ANSWER)
        call = Action("", calls=(ToolCall(tools[0].name, {}),)) if tools else ANSWER
        for action in (ANSWER, call):
            read = self.parse(self._written(action))
            if (read.calls, read.answer) != (action.calls, action.answer):
                raise ConfigError(
                    f"scaffold renderers, family {family}: it does not read the turns that it "
                    f"writes ({read.error or read.answer}): choose scaffold native"
                )

    @classmethod
    def takes_today(cls, tokenizer: PreTrainedTokenizerBase, options: Mapping[str, Any]) -> bool:
        switches = _switches(tokenizer, options.get("family", "auto"))
        return DATE in switches or writes_today(tokenizer)

    def begin(self, prompt: Observation, system: str = "") -> list[Segment]:
        """The system message with the tools, the task, and the beginning of the model's turn."""
        said = "\n\n".join(filter(None, (self._instructions, system)))
        first = [{"role": "system", "content": said}] if said else []
        rendered = self._renderer.render(
            [*first, {"role": "user", "content": prompt.content}],
            tools=self._specs,
            add_generation_prompt=True,
        )
        return self._segments(rendered, 0, {len(first): (prompt.content, prompt.source)})

    def extend(
        self,
        observation: Observation,
        written: Sequence[int] = (),
        results: Sequence[ToolResult] = (),
        words: Sequence[str] = (),
    ) -> list[Segment]:
        """The end of the model's turn where it did not write one, a message for each result, or one
        for anything else, and for each of a user's words, and the beginning of the next turn."""
        shown = contents(observation, results, words)
        messages: list[dict[str, Any]] = [{"role": "user", "content": text} for text, _ in shown]
        if observation.source == Source.TOOL:
            attempts = self._parsed(written).tool_calls
            named = [call for call in attempts if call.status == "ok"]
            for place, message in enumerate(messages[: len(messages) - len(words)]):
                call = named[place] if place < len(named) else None
                given = results[place].call if place < len(results) else None
                message["role"] = "tool"
                message["name"] = getattr(call or given, "name", "")
                message["tool_call_id"] = getattr(call, "id", None) or getattr(given, "id", "")
        used, closing = list(written), []
        rendered = self._after(used, messages)
        if rendered is None:  # the turn ended inside a thought: as after one that is in order
            closing = [] if written and written[-1] in self._ends else self._closed[-1:]
            used = self._closed
            rendered = self._after(used, messages)
        sources = dict(enumerate(shown))
        segments = self._segments(rendered, len(self._prompt) + len(used), sources)
        return [Segment(closing, Source.TEMPLATE), *segments] if closing else segments

    def parse(self, tokens: Sequence[int]) -> Action:
        """Read one model turn: calls, or an answer; else an error."""
        text = self._decode(tokens)
        try:
            parsed = self._parsed(tokens)
        except (ValueError, RecursionError) as error:  # numbers and lists that json does not take
            return malformed(text, "", f"a tool call cannot be read: {first_line(error)}")
        said = parsed.content.strip()
        thought = (parsed.reasoning_content or "").strip()
        if parsed.reasoning_complete is False:
            return malformed(text, thought, "the reasoning has no end")
        for number, call in enumerate(parsed.tool_calls, 1):
            if call.status != "ok":
                problem = f"tool call {number}: {call.status.value.replace('_', ' ')}"
                return malformed(text, thought, problem)
            named = isinstance(call.name, str) and call.name.strip()
            if not named or not isinstance(call.arguments, dict):
                return malformed(text, thought, f"tool call {number} needs a name and an object")
            try:
                check_characters(call.arguments)
            except ValueError as error:
                return malformed(text, thought, f"tool call {number} {error}")
        calls = [ToolCall(call.name, call.arguments) for call in parsed.tool_calls]
        return acted(text, thought, said, calls)

    def render(self, action: Action) -> list[int]:
        """Tokens of an action, as `parse` reads them; one with `error` is its text and an end. A
        thought is left out where the prompt has closed the thinking already."""
        if action.error is not None:
            return [*self._encode(action.text), self._closed[-1]]
        return self._written(action)

    def past(self, action: Action) -> list[int]:
        """Tokens of an action before a user's words: no thought unless the prompt begins one."""
        results = [self._result(call, place) for place, call in enumerate(action.calls)]
        tokens = self._sampled([SAMPLE, self._message(action), *results, SAMPLE])
        if tokens and tokens[-1] in self._ends and self._parsed(tokens).reasoning_complete:
            return tokens
        return self._written(replace(action, thought=""))

    def _written(self, action: Action) -> list[int]:
        """The tokens that the model would sample to do this, the end of the turn included; with a
        thought in any case where the prompt has begun one."""
        tokens = self._turn(action)
        if self._parsed(tokens).reasoning_complete is False:
            tokens = self._turn(replace(action, thought="…"))
        return tokens

    def _turn(self, action: Action) -> list[int]:
        message = self._message(action)
        tokens = self._sampled([SAMPLE, message])
        if tokens and tokens[-1] in self._ends:
            return tokens
        then = self._result(action.calls[0]) if action.calls else SAMPLE
        return [*tokens, self._sampled([SAMPLE, message, then])[-1]]

    def _message(self, action: Action) -> dict[str, Any]:
        calls = [
            {
                "type": "function",
                "id": f"functions.{call.name}:{place}",
                "function": {"name": call.name, "arguments": dict(call.arguments)},
            }
            for place, call in enumerate(action.calls)
        ]
        message = {"role": "assistant", "content": action.answer or "", "tool_calls": calls}
        if action.thought and self._thinks:
            message["reasoning_content"] = action.thought
        return message

    def _result(self, call: ToolCall, place: int = 0) -> dict[str, Any]:
        """A result of a call, whatever it is."""
        name = f"functions.{call.name}:{place}"
        return {"role": "tool", "content": "Hello.", "name": call.name, "tool_call_id": name}

    def _has_room_for_thoughts(self) -> bool:
        """Whether a turn with a thought goes on from the prompt. It does not where a switch of the
        template (`enable_thinking = false`) has the prompt end with an empty thought."""
        message = {"role": "assistant", "content": "Hello.", "reasoning_content": "…"}
        rendered = self._renderer.render([SAMPLE, message], tools=self._specs).token_ids
        return list(rendered[: len(self._prompt)]) == list(self._prompt)

    def _sampled(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """The tokens of the second message that the model would have sampled: from where it differs
        from the prompt, in which a family may have begun the thought already, to its end."""
        rendered = self._renderer.render(list(messages), tools=self._specs)
        pairs = enumerate(zip(rendered.token_ids, self._prompt, strict=False))
        begun = next((n for n, (one, other) in pairs if one != other), len(self._prompt))
        marks = zip(rendered.message_indices, rendered.sampled_mask, strict=True)
        end = max(place for place, (index, sampled) in enumerate(marks) if index == 1 and sampled)
        own: list[int] = list(rendered.token_ids[begun : end + 1])
        return own

    def _parsed(self, tokens: Sequence[int]) -> Any:
        return self._renderer.parse_response(
            list(tokens), tools=self._specs, prompt_ids=self._prompt
        )

    def _after(self, written: Sequence[int], messages: Sequence[Mapping[str, Any]]) -> Any:
        """The prompt, what was written, and what follows; None where that cannot be said."""
        return self._renderer.bridge_to_next_turn(
            self._prompt, list(written), list(messages), tools=self._specs
        )

    def _segments(
        self, rendered: Any, start: int, sources: Mapping[int, tuple[str, Source]]
    ) -> list[Segment]:
        """The tokens from `start` on; `sources` has the text of some messages, and its source. A
        text from outside that holds a token of the tokenizer's own is encoded anew, so that the
        token's name in it is only text."""
        spans: list[tuple[int, list[int]]] = []
        rows = zip(rendered.token_ids, rendered.message_indices, rendered.is_content, strict=True)
        for token, message, is_content in list(rows)[start:]:
            place = message if is_content and message in sources else -1
            if not spans or spans[-1][0] != place:
                spans.append((place, []))
            spans[-1][1].append(token)
        segments = []
        for place, tokens in spans:
            if place < 0:
                segments.append(Segment(tokens, Source.TEMPLATE))
                continue
            text, source = sources[place]
            foreign = self._encode_foreign(text) if self._own & set(tokens) else tokens
            segments.append(Segment(foreign, source))
        return segments


def _switches(tokenizer: PreTrainedTokenizerBase, family: str) -> set[str]:
    """The names of the switches of a family's template."""
    return set(type(_config(tokenizer, family)).model_fields)


def _config(tokenizer: PreTrainedTokenizerBase, family: str) -> Any:
    """The settings of a family's renderer. Raises ConfigError for a family that there is not."""
    try:
        from renderers import config_from_name
        from renderers.base import MODEL_RENDERER_MAP
    except ImportError as error:
        raise ConfigError(
            f"scaffold renderers needs the package renderers: install turnwise[renderers] ({error})"
        ) from None
    known = sorted(set(MODEL_RENDERER_MAP.values()))
    name = MODEL_RENDERER_MAP.get(tokenizer.name_or_path, "") if family == "auto" else family
    if name not in known:
        what = f"model {tokenizer.name_or_path!r} is not known" if family == "auto" else name
        raise ConfigError(
            f"scaffold renderers: {what}: set scaffold.options.family to one of {', '.join(known)}"
        )
    return config_from_name(name)


def _renderer(tokenizer: PreTrainedTokenizerBase, family: str, template: Mapping[str, Any]) -> Any:
    """The renderer of a family, which goes on after any message without rendering again."""
    config = _config(tokenizer, family)
    from renderers import create_renderer

    try:
        switched = type(config)(**{**template, "thinking_retention": "all"})
        return create_renderer(tokenizer, switched)
    except (AssertionError, TypeError, ValueError) as error:
        raise ConfigError(f"scaffold renderers, family {family}: {first_line(error)}") from None
