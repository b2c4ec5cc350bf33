"""The base of scaffolds whose syntax is text: instructions before the task, two ways to encode, for
the scaffold's own words and for what others wrote, and images after their words."""

import json
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from turnwise.scaffolds.templates import check_day, opened, pieces, writes_today
from turnwise.tokens import Segment, Source
from turnwise.tools.tool import Tool
from turnwise.types import Action, Observation, ToolCall, ToolResult, encodable

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

THOUGHT_END = "</think>"
UNCLOSED = "<think> is not closed by </think>"
KEPT_TEXTS = 256
"""Texts of others whose tokens are kept: a group has one prompt, and often the same results."""


class TextScaffold:
    """Holds the tokenizer and the tools; nothing of an episode."""

    shows_images: ClassVar[bool] = True
    """Whether observations' images are shown to a model that takes them."""
    encode_image: Callable[[bytes], Sequence[int]] | None = None
    """Function from a PNG to the tokens that stand for it; None where the model takes none."""

    _thought: ClassVar[str] = ""
    """The form of a thought before what is said, with {} in its place."""
    _form: str
    """How a turn ends, in a sentence for the agent."""

    def __init__(
        self,
        tokenizer: "PreTrainedTokenizerBase",
        tools: Sequence[Tool],
        instructions: str,
        date: str = "",
    ) -> None:
        """`instructions` precede the task; `{tools}` in them becomes the list of tools. `date`
        (2026-11-26) is today's for a chat template that writes it; a run fixes it. Raises
        ConfigError for an invalid date."""
        self._tokenizer = tokenizer
        check_day(date)
        self._date = date
        # Whether special tokens are split is a setting of the tokenizer, not of a call, and tools
        # truncate their results in other threads: text from outside has a tokenizer of its own.
        self._foreign_tokenizer = deepcopy(tokenizer)
        # Not a decorator: its cache would be the class's, and keep every scaffold in memory.
        self._encoded = lru_cache(KEPT_TEXTS)(self._encode_anew)
        self._frames: dict[bool, tuple[str, str]] = {}
        self._tools = {tool.name: tool for tool in tools}
        self._instructions = instructions.replace("{tools}", self._described())

    def begin(self, prompt: Observation, system: str = "") -> list[Segment]:
        """The chat template's opening where the tokenizer has one, plain text otherwise; `system`
        and the task are one message, with a blank line between them. Raises ConfigError for a
        template that does not show them."""
        before, after = map(self._template, self._frame)
        said = f"{encodable(system)}\n\n{prompt.content}" if system else prompt.content
        content = Segment(self._encode_foreign(said), prompt.source)
        return [before, content, *self._images(prompt), after]

    @property
    def _frame(self) -> tuple[str, str]:
        """The texts before and after every task."""
        # Asked anew: `encode_image` is set after the constructor (`make_scaffold`).
        with_images = self.encode_image is not None
        if with_images not in self._frames:
            if self._tokenizer.chat_template:
                said = [("user", self._instructions)]
                before, after = pieces(self._tokenizer, said, with_images, self._date)
            else:
                before, after = (self._tokenizer.bos_token or "") + self._instructions, "\n"
            self._frames[with_images] = before, after
        return self._frames[with_images]

    @property
    def _opened(self) -> str:
        """The end of every prompt where the chat template begins a thought: it belongs to the turn,
        and stands before its text."""
        return opened(self._frame[1])

    def _text(self, tokens: Sequence[int]) -> str:
        """The text of a turn, with what its prompt has opened of it."""
        return self._opened + self._decode(tokens)

    def _thought_and_rest(self, turn: str) -> tuple[str, str]:
        """The thought that a turn's prompt has opened, and the rest; ValueError without an end."""
        if not self._opened:
            return "", turn
        thought, closed, rest = turn.removeprefix(self._opened).partition(THOUGHT_END)
        if not closed:
            raise ValueError(UNCLOSED)
        return thought.strip(), rest

    def parse(self, tokens: Sequence[int]) -> Action:
        """Read one model turn: its thought, then calls or an answer; else an error."""
        text, thought = self._text(tokens), ""
        try:
            thought, said = self._parted(text)
            return Action(text, thought, *self._read(said))
        except ValueError as error:
            return Action(text, thought, error=f"Malformed: {error}. {self._form}")

    def render(self, action: Action) -> list[int]:
        """Tokens of an action, as `parse` reads them; one with `error` is its text and an end."""
        if action.error is not None:
            return self._encode(f"{action.text.removeprefix(self._opened)}{self._end}")
        form = f"{{}}{THOUGHT_END}\n" if self._opened else self._thought if action.thought else ""
        return self._encode(form.format(action.thought) + self._said(action))

    def _parted(self, turn: str) -> tuple[str, Any]:
        """The thought of a turn, and the rest for `_read`. Raises as that."""
        raise NotImplementedError

    def _read(self, said: Any) -> tuple[tuple[ToolCall, ...], str | None]:
        """Calls, or an answer. Raises ValueError, in words for the agent."""
        raise NotImplementedError

    def _said(self, action: Action) -> str:
        """The text of calls or an answer."""
        raise NotImplementedError

    def _reopened(self) -> list[Segment]:
        """The beginning of a turn after others, as the first one's prompt has it."""
        return [self._template(self._opened)] if self._opened else []

    def _template(self, text: str) -> Segment:
        return Segment(self._encode(text), Source.TEMPLATE)

    @classmethod
    def takes_today(cls, tokenizer: "PreTrainedTokenizerBase", options: Mapping[str, Any]) -> bool:
        """Whether prompts hold today's date, for `date` to fix."""
        del options
        return writes_today(tokenizer)

    def truncate(self, text: str, max_tokens: int) -> str:
        """Cut at a token boundary of the policy's tokenizer."""
        text = encodable(text)
        encoded = self._foreign_tokenizer(
            text, add_special_tokens=False, return_offsets_mapping=True, split_special_tokens=True
        )
        offsets = encoded["offset_mapping"]
        return text if len(offsets) <= max_tokens else text[: offsets[max_tokens][0]].rstrip()

    def _images(self, observation: Observation) -> list[Segment]:
        if self.encode_image is None:
            return []
        source = observation.source
        return [Segment(self.encode_image(png), source, png) for png in observation.images]

    def _described(self) -> str:
        """The tools, in the words of the syntax."""
        raise NotImplementedError

    def _decode(self, tokens: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(
            list(tokens), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return text

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _encode_foreign(self, text: str) -> list[int]:
        """Text that others wrote: a special token's name in it is only text."""
        return list(self._encoded(text))  # a copy: what is kept is shared

    def _encode_anew(self, text: str) -> tuple[int, ...]:
        encoded = self._foreign_tokenizer(text, add_special_tokens=False, split_special_tokens=True)
        return tuple(encoded["input_ids"])

    @property
    def _end(self) -> str:
        """The token that ends a text, as the tokenizer has it; empty where it has none."""
        return str(self._tokenizer.eos_token or "")


def contents(
    observation: Observation, results: Sequence[ToolResult], words: Sequence[str] = ()
) -> list[tuple[str, Source]]:
    """The texts to show, each with its source: the results one by one where the observation is
    nothing but several of them, in the order of the calls, else the observation as a whole; then
    what a user says."""
    single = [result.content for result in results]
    several = len(single) > 1 and "\n".join(single) == observation.content
    shown = single if several else [observation.content]
    said = [(encodable(text), Source.USER) for text in words]
    return [(text, observation.source) for text in shown] + said


def texts_for_calls(
    observation: Observation, results: Sequence[ToolResult], calls: int
) -> list[str]:
    """A text for each call of a turn: its result, or with the first what was shown after all."""
    texts = [text for text, _ in contents(observation, results)]
    if len(texts) == calls or not calls:
        return texts[:calls]
    return [observation.content, *["(see the first result)"] * (calls - 1)]


def single_argument(tool: Tool) -> str | None:
    """The name of a tool's only argument, if it has one and that is a string."""
    properties: Mapping[str, Any] = tool.schema["parameters"].get("properties", {})
    if len(properties) != 1:
        return None
    name, schema = next(iter(properties.items()))
    return name if schema.get("type") == "string" else None


def written_arguments(tool: Tool, call: ToolCall) -> str:
    """The arguments of a call as `arguments_of` reads them."""
    single = single_argument(tool)
    return str(call.arguments[single]) if single else json.dumps(dict(call.arguments))


def arguments_of(tool: Tool, content: str) -> Mapping[str, Any]:
    """The argument of a tool of one string, else a JSON object. ValueError in words for agents."""
    if (single := single_argument(tool)) is not None:
        return {single: content}
    try:
        arguments = json.loads(content)
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error}") from None
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    if not isinstance(arguments, dict):
        raise ValueError("needs a JSON object")
    check_characters(arguments)
    return arguments


def check_characters(arguments: Mapping[str, Any]) -> None:
    """Raises ValueError for half of a character, which JSON can write and no text can hold, and for
    numbers that are none or infinite, which Python reads and JSON lacks."""
    try:
        json.dumps(arguments, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        raise ValueError("holds half of a character") from None
    except (TypeError, RecursionError):
        raise ValueError("holds a value that JSON lacks") from None
    except ValueError:
        raise ValueError("holds a number that is NaN or infinite") from None
