"""Turns read by the tokenizer's own response template, where it has one (transformers writes it
beside the chat template: fields, and the texts and patterns between which they stand)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from transformers.utils.chat_parsing import ResponseParser
from transformers.utils.chat_parsing.response_templates import load_response_template

from turnwise.errors import ConfigError, first_line
from turnwise_environments.scaffolds.tool_formats import Call, JsonCalls

_THOUGHTS = "reasoning_content", "reasoning", "thinking"
"""Names of the field of thoughts."""


class ResponseTemplate:
    """Reads a turn, and as a `ToolFormat` calls and the text beside them."""

    def __init__(
        self, template: Mapping[str, Any], specs: Sequence[Mapping[str, Any]], prompt: str
    ) -> None:
        """`specs` are the tools' names, descriptions and parameters, which give texts their types;
        `prompt` is what stands before a turn. Raises ConfigError for a template that transformers
        cannot use."""
        try:
            self._template = load_response_template(dict(template))
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"scaffold native: the tokenizer's response template cannot be used ({error}): "
                "mend or delete response_template in its tokenizer_config.json"
            ) from None
        self._tools, self._prompt = [dict(spec) for spec in specs], prompt

    def turn(self, text: str, end: str = "") -> tuple[str, str, list[Call]]:
        """The thought, what is said, and the calls of a text before a turn's end, if it has one.
        Raises ValueError, in words for the agent."""
        try:
            parser = ResponseParser(self._template, prefix=self._prompt, tools=self._tools)
            parser.feed(text + end if self.ends(end) else text)
            found, _ = parser.finalize()
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            raise ValueError(f"the turn cannot be read: {first_line(error)}") from None
        thought = next((found[name] for name in _THOUGHTS if found.get(name)), "")
        read = JsonCalls()
        calls = [read.call(one, n) for n, one in enumerate(_flat(found.get("tool_calls")), 1)]
        return str(thought).strip(), str(found.get("content") or "").strip(), calls

    def read(self, text: str) -> tuple[str, list[Call]]:
        """See `ToolFormat`."""
        return self.turn(text)[1:]

    def ends(self, token: str) -> bool:
        """Whether a token ends what is said."""
        content = self._template.fields.get("content")
        return bool(content and content.close_re and content.close_re.fullmatch(token))


def _flat(calls: Any) -> Iterator[Any]:
    """The calls of a field that holds one, a list, or a list of a match's lists."""
    if isinstance(calls, list):
        for one in calls:
            yield from _flat(one)
    elif calls is not None:
        yield calls
