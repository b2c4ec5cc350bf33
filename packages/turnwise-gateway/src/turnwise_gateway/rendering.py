"""Messages of an agent as segments of tokens, by the recipe's scaffold.

The scaffold renders what is new and appends it: sampled tokens are never rendered.
"""

import json
from collections.abc import Callable, Sequence
from threading import Lock
from typing import TYPE_CHECKING

from jinja2 import TemplateError

from turnwise.config import ScaffoldConfig
from turnwise.errors import ConfigError, InfrastructureError
from turnwise.scaffolds.base import Scaffold
from turnwise.scaffolds.registry import make_scaffold, shows_images
from turnwise.tokens import Segment, Source
from turnwise.tools.tool import Tool
from turnwise.types import Action, Observation, ToolCall, ToolResult
from turnwise_gateway.requests import Message, RefusedError, Request, ToolSchema

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


KEPT_SCAFFOLDS = 64
"""Sets of tools whose scaffolds are kept."""
UNFIT = KeyError, TypeError, ValueError, TemplateError
"""Errors of a scaffold, or of its chat template, at messages and tools without a form in it."""


class Scaffolds:
    """The scaffolds of an agent's requests: one for each set of tools that it offers."""

    def __init__(
        self,
        config: ScaffoldConfig,
        tokenizer: "PreTrainedTokenizerBase",
        encode_image: Callable[[bytes], Sequence[int]] | None = None,
    ) -> None:
        """`encode_image` gives the tokens that stand for a PNG, where the model takes images."""
        self._config, self._tokenizer, self._encode_image = config, tokenizer, encode_image
        self.shows_images = encode_image is not None and shows_images(config.name)
        self._made: dict[str, Scaffold] = {}
        self._making = Lock()

    def of(self, request: Request) -> tuple[str, Scaffold]:
        """A name for a request's set of tools, equal for equal sets, and their scaffold. Raises
        RefusedError for tools that the scaffold cannot describe, and for images that the model, or
        the scaffold, has no place for."""
        tools = request.tools
        if not self.shows_images and any(one.images for one in request.messages):
            raise RefusedError(
                f"scaffold {self._config.name} shows no images to this model", field="messages"
            )
        name = json.dumps([(one.name, one.description, one.parameters) for one in tools])
        with self._making:  # requests come in threads, since templates are tried here
            if name not in self._made:
                if len(self._made) >= KEPT_SCAFFOLDS:
                    del self._made[next(iter(self._made))]  # the oldest
                self._made[name] = self._make(tools)
            return name, self._made[name]

    def _make(self, tools: Sequence[ToolSchema]) -> Scaffold:
        try:
            made = [_tool(one) for one in tools]
            return make_scaffold(self._config, self._tokenizer, made, self._encode_image)
        except (*UNFIT, AttributeError, ConfigError) as error:
            raise RefusedError(
                f"scaffold {self._config.name} cannot describe these tools: {error}", field="tools"
            ) from None


def _tool(schema: ToolSchema) -> Tool:
    """A tool for a scaffold to describe; the agent runs it."""
    parameters = {"type": "object", "properties": {}, **schema.parameters}
    call = {"name": schema.name, "description": schema.description, "parameters": parameters}
    return Tool(schema.name, schema.description, call, _not_here)


def _not_here() -> None:
    raise AssertionError("an agent's tools are run by the agent")


def beginning(scaffold: Scaffold, messages: Sequence[Message]) -> list[Segment]:
    """The first tokens of a context: the system's and the user's messages, each kind joined by
    blank lines. Raises RefusedError for messages that do not begin a conversation."""
    system = [one.text for one in messages if one.role == "system"]
    user = [one for one in messages if one.role == "user"]
    if len(system) + len(user) < len(messages):
        raise RefusedError("a tool's message has no call before it", field="messages")
    if not user and not system:
        raise RefusedError("there is no message of a user", field="messages")
    # Templates want words of a user: without any, the last of the system are taken for it.
    said = user or [Message("user", system.pop())]
    images = tuple(image for one in said for image in one.images)
    prompt = Observation("\n\n".join(one.text for one in said), Source.USER, images)
    return _rendered(lambda: scaffold.begin(prompt, "\n\n".join(system)))


def continuation(
    scaffold: Scaffold,
    written: Sequence[int],
    calls: Sequence[ToolCall],
    messages: Sequence[Message],
) -> list[Segment]:
    """The tokens after a turn: results of its calls, in their order, then what a user says. Raises
    RefusedError for results of other calls, and for calls without a result."""
    results = {one.call: one for one in messages if one.role == "tool"}
    words = [one.text for one in messages if one.role != "tool"]
    images = tuple(image for one in messages for image in one.images)
    known = [call.id for call in calls]
    strange = next((name for name in results if name not in known), None)
    if strange is not None:
        raise RefusedError(f"the result of {strange!r} belongs to no call", field="messages")
    missing = next((name for name in known if name not in results), None)
    if missing is not None:
        raise RefusedError(f"the call {missing!r} has no result", field="messages")
    if not calls:
        observation = Observation("\n\n".join(words), Source.USER, images)
        return _rendered(lambda: scaffold.extend(observation, written))
    told = tuple(ToolResult(call, results[call.id].text) for call in calls)
    shown = Observation("\n".join(one.content for one in told), Source.TOOL, images)
    if not words:
        return _rendered(lambda: scaffold.extend(shown, written, told))
    return _rendered(lambda: scaffold.extend(shown, written, told, words))


def assistant_turn(scaffold: Scaffold, message: Message, past: bool = False) -> list[int]:
    """The tokens of an assistant's message that the policy has not sampled so. One that is `past`,
    before other words of a user's, is without its thought, as the scaffold's own template has it
    there, where it has one. Raises RefusedError for one that the scaffold cannot write."""
    thought, answer = ("", message.text) if not message.calls else (message.text, None)
    action = Action("", "" if past else thought, message.calls, answer)
    write: Callable[[Action], list[int]] = scaffold.render
    try:
        return (getattr(scaffold, "past", write) if past else write)(action)
    except UNFIT as error:
        raise RefusedError(
            f"the scaffold cannot write this message of the assistant: {error}", field="messages"
        ) from None


def _rendered(render: Callable[[], list[Segment]]) -> list[Segment]:
    try:
        return render()
    except (*UNFIT, InfrastructureError) as error:
        raise RefusedError(
            f"the template refuses these messages: {error}", field="messages"
        ) from None
