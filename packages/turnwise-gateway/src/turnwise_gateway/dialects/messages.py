"""The dialect of Anthropic's messages: a request's body becomes a Request, a Reply a body.

The shapes are those of the package `anthropic` (its `types`). Thoughts are shown to agents that
configure thinking, without a signature; those that come back are not read.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from turnwise.types import ToolCall
from turnwise_gateway.dialects.conversation import (
    Conversation,
    Kinds,
    check_caller,
    distinct,
    joined,
    read_choice,
    read_content,
    read_stops,
    read_tool,
)
from turnwise_gateway.dialects.fields import Fields
from turnwise_gateway.dialects.writing import arguments_json, event, pieces
from turnwise_gateway.requests import Choice, Message, RefusedError, Reply, Request, ToolSchema

NAME = "messages"
PATH = "/v1/messages"
COUNT_PATH = f"{PATH}/count_tokens"
ENDINGS = {"stop": "end_turn", "calls": "tool_use", "length": "max_tokens"}
BILLING = "x-anthropic-billing-header"
"""The beginning of a block of Claude Code's, with a number that differs between requests."""
IGNORED = (
    *("temperature", "top_p", "top_k", "metadata", "service_tier", "speed", "inference_geo"),
    *("user_profile_id", "workspace_id", "diagnostics", "cache_control", "betas"),
    *("billing_policy", "fallbacks", "fallback_credit_token"),
)
"""Sampling settings are the recipe's; there is no account, no bill, no cache, no other model."""
REFUSED = {
    "mcp_servers": "the gateway runs no tools: offer those of the server as tools of the agent's",
    "container": "the gateway runs no code",
    "thread": "no conversations are kept: send all messages",
    "compaction": "the gateway shortens no conversation",
    "output_format": "replies are free text",
}


def read(body: Mapping[str, Any]) -> Request:
    """The request in a body, be it for a reply or for a count. Raises RefusedError that names what
    is malformed or not supported."""
    fields = Fields(body)
    fields.refuse(REFUSED)
    fields.ignore(*IGNORED)
    conversation = Conversation()
    if "system" in fields:
        conversation.add(Message("system", _read_system(fields, "system")))
    messages = fields.objects("messages")
    if not messages:
        raise fields.refused("messages", "must have at least one message")
    for message in messages:
        _read_message(message, conversation)
    read = conversation.complete(fields, "messages")
    if read[-1].role == "assistant":
        raise messages[-1].refused("role", "must not be 'assistant' at the end: no reply is begun")
    tools = distinct(fields, [_read_tool(tool) for tool in fields.objects("tools")])
    _check_options(fields)
    request = Request(
        read,
        tools,
        dialect=NAME,
        model=fields.text("model"),
        max_tokens=fields.number("max_tokens"),
        stop=read_stops(fields, "stop_sequences"),
        stream=fields.flag("stream"),
        needs_call=read_choice(fields, tools),
        thoughts=_read_thinking(fields),
        ignored=fields.ignored,
    )
    fields.end()
    return request


def body(request: Request, reply: Reply) -> dict[str, Any]:
    choice = reply.choices[0]
    content = _blocks(request, choice)
    return {**_head(reply), "content": content, **_ending(choice), "usage": _usage(reply)}


def events(request: Request, reply: Reply) -> Iterator[str]:
    begun = {
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _usage(reply) | {"output_tokens": 0},
    }
    yield event({"type": "message_start", "message": {**_head(reply), "content": [], **begun}})
    choice = reply.choices[0]
    for index, block in enumerate(_blocks(request, choice)):
        empty, deltas = _deltas(block)
        yield event({"type": "content_block_start", "index": index, "content_block": empty})
        for delta in deltas:
            yield event({"type": "content_block_delta", "index": index, "delta": delta})
        yield event({"type": "content_block_stop", "index": index})
    yield event({"type": "message_delta", "delta": _ending(choice), "usage": _usage(reply)})
    yield event({"type": "message_stop"})


def counted(tokens: int) -> dict[str, Any]:
    return {"input_tokens": tokens}


def error(refused: RefusedError) -> dict[str, Any]:
    return {"type": "error", "error": {"type": refused.kind, "message": refused.message}}


def _check_options(fields: Fields) -> None:
    if "output_config" in fields:
        output = fields.object("output_config")
        output.ignore("effort")
        output.refuse({"format": "replies are free text"})
    if "context_management" in fields:
        management = fields.object("context_management")
        for edit in management.objects("edits"):
            kind = edit.text("type")
            if not kind.startswith("clear_thinking"):
                raise edit.refused("type", f"{kind!r} is not supported: nothing is cleared")
            edit.drop("context_management")


def _read_thinking(fields: Fields) -> bool:
    """Whether thoughts are to be shown; how much the model thinks is not the agent's to say."""
    if "thinking" not in fields:
        return False
    thinking = fields.object("thinking")
    kind = thinking.kind("type", "enabled", "adaptive", "between_tools", "disabled")
    display = thinking.kind("display", "summarized", "omitted", default="summarized")
    thinking.drop("thinking")
    return kind != "disabled" and display != "omitted"


def _read_tool(tool: Fields) -> ToolSchema:
    kind = tool.text("type", "custom")
    if kind != "custom":
        reason = f"{kind!r} is not supported, only 'custom': switch this tool off in the agent"
        raise tool.refused("type", reason)
    read = read_tool(tool, "input_schema")
    tool.ignore("cache_control", "eager_input_streaming")
    tool.refuse({"input_examples": "templates show none: write them into the description"})
    return read


def _read_system(fields: Fields, name: str) -> str:
    """Instructions, in a field of the body's or of a message's."""
    content = fields.text_or_objects(name)
    if isinstance(content, str):
        return content
    texts = []
    for block in content:
        block.kind("type", "text")
        text = _read_text(block)
        if text.startswith(BILLING):
            block.drop(BILLING)
        else:
            texts.append(text)
    return joined(texts, "system")


def _read_message(message: Fields, conversation: Conversation) -> None:
    role = message.kind("role", "user", "assistant", "system")
    if role == "system":
        conversation.add(Message("system", _read_system(message, "content")))
    else:
        content = message.text_or_objects("content")
        if isinstance(content, str):
            conversation.add(Message("user" if role == "user" else "assistant", content))
        elif role == "user":
            _read_user(message, content, conversation)
        else:
            conversation.add(_read_assistant(content))


def _read_user(message: Fields, blocks: list[Fields], conversation: Conversation) -> None:
    """Read a message's blocks: results become messages of their own, what is between them too."""
    if not blocks:
        raise message.refused("content", "must have at least one block")
    texts: list[str] = []
    images: list[bytes] = []

    def end() -> None:
        if texts or images:
            conversation.add(Message("user", joined(texts, "user"), images=tuple(images)))
        texts.clear()
        images.clear()

    for block in blocks:
        kind = block.kind("type", "text", "image", "tool_result")
        if kind == "text":
            texts.append(_read_text(block))
        elif kind == "image":
            images.append(_read_image(block))
        else:
            end()
            conversation.add(_read_result(block, conversation))
    end()


def _read_assistant(blocks: list[Fields]) -> Message:
    texts: list[str] = []
    calls: list[ToolCall] = []
    for block in blocks:
        kind = block.kind("type", "text", "tool_use", "thinking", "redacted_thinking")
        if kind == "tool_use":
            calls.append(_read_call(block))
        elif kind != "text":
            block.drop("thinking")
        elif calls:
            raise block.refused("type", "'text' is not supported after 'tool_use'")
        else:
            texts.append(_read_text(block))
    return Message("assistant", joined(texts, "assistant"), tuple(calls))


def _read_text(block: Fields) -> str:
    text = block.text("text")
    block.ignore("cache_control", "citations")
    return text


def _read_image(block: Fields) -> bytes:
    source = block.object("source")
    source.kind("type", "base64")
    source.kind("media_type", "image/png")
    block.ignore("cache_control", "transformations")
    return source.png("data")


def _read_call(block: Fields) -> ToolCall:
    call = ToolCall(block.text("name"), block.arguments("input"), block.text("id"))
    block.refuse({"toolset_name": "toolsets are not supported"})
    block.ignore("cache_control")
    check_caller(block)
    return call


def _read_result(block: Fields, conversation: Conversation) -> Message:
    """A result; one that is marked as an error says so, since templates have no place for marks."""
    call = conversation.answered(block, "tool_use_id")
    text, images = "", tuple[bytes, ...]()
    if "content" in block:
        kinds: Kinds = {"text": _read_text, "image": _read_image}
        text, images = read_content(block, "content", "tool", kinds)
    text = f"Error: {text}" if block.flag("is_error") else text
    block.refuse({"toolset_name": "toolsets are not supported"})
    block.ignore("cache_control")
    return Message("tool", text, call=call, images=images)


def _head(reply: Reply) -> dict[str, Any]:
    head = {"id": f"msg_{reply.id}", "type": "message", "role": "assistant"}
    return {**head, "model": reply.model}


def _ending(choice: Choice) -> dict[str, Any]:
    if choice.ending == "stop" and choice.stopped_at:
        return {"stop_reason": "stop_sequence", "stop_sequence": choice.stopped_at}
    return {"stop_reason": ENDINGS[choice.ending], "stop_sequence": None}


def _blocks(request: Request, choice: Choice) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if request.thoughts and choice.thought:
        blocks.append({"type": "thinking", "thinking": choice.thought, "signature": ""})
    if choice.text or not choice.calls:
        blocks.append({"type": "text", "text": choice.text})
    for call in choice.calls:
        named = {"type": "tool_use", "id": call.id, "name": call.name}
        blocks.append({**named, "input": dict(call.arguments)})
    return blocks


def _deltas(block: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A block as it begins, and what fills it."""
    if block["type"] == "tool_use":
        written = arguments_json(ToolCall(block["name"], block["input"]))
        kind, field, empty = "input_json_delta", "partial_json", {**block, "input": {}}
    else:
        field = block["type"]
        written, kind, empty = block[field], f"{field}_delta", {**block, field: ""}
    return empty, [{"type": kind, field: piece} for piece in pieces(written)]


def _usage(reply: Reply) -> dict[str, int]:
    cached = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    return {"input_tokens": reply.prompt_tokens, **cached, "output_tokens": reply.sampled}
