"""The dialect of OpenAI's chat completions: a request's body becomes a Request, a Reply a body.

The shapes are those of the package `openai` (its `types/chat`). Thoughts stand in
`reasoning_content`, as other servers have them; those that come back are not read.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from turnwise.types import ToolCall
from turnwise_gateway.dialects.conversation import (
    Conversation,
    Kinds,
    distinct,
    read_choice,
    read_content,
    read_stops,
    read_tool,
)
from turnwise_gateway.dialects.fields import Fields
from turnwise_gateway.dialects.writing import (
    arguments_json,
    event,
    openai_call,
    openai_error,
    pieces,
)
from turnwise_gateway.requests import Choice, Message, RefusedError, Reply, Request, ToolSchema

NAME = "chat_completions"
PATH = "/v1/chat/completions"
MOST_CHOICES = 128
"""The API's bound of `n`."""
ENDINGS = {"stop": "stop", "calls": "tool_calls", "length": "length"}
IGNORED = (
    *("temperature", "top_p", "top_k", "min_p", "seed", "frequency_penalty", "presence_penalty"),
    *("repetition_penalty", "user", "metadata", "store", "service_tier", "reasoning_effort"),
    *("verbosity", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
    *("safety_identifier",),
)
"""Sampling settings are the recipe's; there is no account, no store and no cache to choose."""
REFUSED = {
    "logit_bias": "no token's chance can be changed",
    "prediction": "predicted output is not supported",
    "audio": "replies are text",
    "moderation": "nothing is moderated",
    "web_search_options": "the gateway searches nothing: offer a function that does",
    "functions": "is deprecated: use tools",
    "function_call": "is deprecated: use tools and tool_choice",
    "top_logprobs": "only the sampled tokens have log-probabilities: leave it out, or 0",
}


def read(body: Mapping[str, Any]) -> Request:
    """The request in a body. Raises RefusedError that names what is malformed or not supported."""
    fields = Fields(body)
    fields.refuse(REFUSED)
    fields.ignore(*IGNORED)
    conversation = Conversation()
    for message in fields.objects("messages"):
        _read_message(message, conversation)
    tools = distinct(fields, [_read_tool(tool) for tool in fields.objects("tools")])
    _check_options(fields)
    request = Request(
        conversation.complete(fields, "messages"),
        tools,
        dialect=NAME,
        model=fields.text("model"),
        max_tokens=_read_bound(fields),
        stop=read_stops(fields, "stop"),
        count=fields.number("n", MOST_CHOICES) or 1,
        logprobs=fields.flag("logprobs"),
        stream=fields.flag("stream"),
        needs_call=read_choice(fields, tools),
        stream_usage=_read_stream_usage(fields),
        ignored=fields.ignored,
    )
    fields.end()
    return request


def body(request: Request, reply: Reply) -> dict[str, Any]:
    choices = [
        {"index": index, "message": _message(choice), **_ending(request, choice)}
        for index, choice in enumerate(reply.choices)
    ]
    return {**_head(reply, "chat.completion"), "choices": choices, "usage": _usage(reply)}


def events(request: Request, reply: Reply) -> Iterator[str]:
    head = _head(reply, "chat.completion.chunk") | ({"usage": None} if request.stream_usage else {})
    for index, choice in enumerate(reply.choices):
        for delta in _deltas(choice):
            part = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
            yield event({**head, "choices": [part]}, named=False)
        end = {"index": index, "delta": {}, **_ending(request, choice)}
        yield event({**head, "choices": [end]}, named=False)
    if request.stream_usage:
        yield event({**head, "choices": [], "usage": _usage(reply)}, named=False)
    yield "data: [DONE]\n\n"


def error(refused: RefusedError) -> dict[str, Any]:
    return openai_error(refused)


def _check_options(fields: Fields) -> None:
    if not fields.flag("parallel_tool_calls", default=True):
        raise fields.refused("parallel_tool_calls", "false is not supported: leave it out")
    if "response_format" in fields:
        wanted = fields.object("response_format")
        wanted.kind("type", "text")
    if set(fields.texts("modalities")) - {"text"}:
        raise fields.refused("modalities", "only 'text' is supported")


def _read_bound(fields: Fields) -> int | None:
    old, new = fields.number("max_tokens"), fields.number("max_completion_tokens")
    if old is not None and new is not None:
        raise fields.refused("max_tokens", "stands beside max_completion_tokens: give one of them")
    return new if old is None else old


def _read_stream_usage(fields: Fields) -> bool:
    if "stream_options" not in fields:
        return False
    options = fields.object("stream_options")
    options.ignore("include_obfuscation")
    return options.flag("include_usage")


def _read_tool(tool: Fields) -> ToolSchema:
    tool.kind("type", "function")
    function = tool.object("function")
    read = read_tool(function, "parameters")
    tool.ignore("cache_control")
    return read


def _read_message(message: Fields, conversation: Conversation) -> None:
    role = message.kind("role", "system", "developer", "user", "assistant", "tool")
    message.ignore("cache_control")
    if role == "assistant":
        conversation.add(_read_assistant(message))
    elif role == "tool":
        call = conversation.answered(message, "tool_call_id")
        message.ignore("name")
        text, images = _read_content(message, role)
        conversation.add(Message("tool", text, call=call, images=images))
    else:
        text, images = _read_content(message, role)
        conversation.add(Message("user" if role == "user" else "system", text, images=images))
    message.refuse({"name": "only roles have names here: write it into the text"})


def _read_assistant(message: Fields) -> Message:
    message.refuse(
        {
            "refusal": "refusals are not supported: write it into content",
            "audio": "audio is not supported",
            "function_call": "is deprecated: use tool_calls",
        }
    )
    message.ignore("annotations", "reasoning_content", "reasoning", "provider_specific_fields")
    calls = tuple(_read_call(call) for call in message.objects("tool_calls"))
    text, _ = _read_content(message, "assistant") if "content" in message else ("", ())
    return Message("assistant", text, calls)


def _read_call(call: Fields) -> ToolCall:
    call.kind("type", "function", default="function")
    call.ignore("index", "name")  # tau2-bench says the function's name twice
    function = call.object("function")
    function.ignore("parsed_arguments")  # which the package adds to what it has streamed
    return ToolCall(function.text("name"), function.arguments("arguments"), call.text("id"))


def _read_content(message: Fields, role: str) -> tuple[str, tuple[bytes, ...]]:
    kinds: Kinds = {"text": _read_text}
    if role == "user":
        kinds = {**kinds, "image_url": _read_image}
    return read_content(message, "content", role, kinds)


def _read_text(part: Fields) -> str:
    part.ignore("cache_control", "prompt_cache_breakpoint")
    return part.text("text")


def _read_image(part: Fields) -> bytes:
    part.ignore("cache_control", "prompt_cache_breakpoint")
    image = part.object("image_url")
    image.ignore("detail")
    return image.png_url("url")


def _head(reply: Reply, kind: str) -> dict[str, Any]:
    identity = {"id": f"chatcmpl-{reply.id}", "object": kind}
    return {**identity, "created": reply.created, "model": reply.model}


def _ending(request: Request, choice: Choice) -> dict[str, Any]:
    logprobs = _logprobs(choice) if request.logprobs else None
    return {"logprobs": logprobs, "finish_reason": ENDINGS[choice.ending]}


def _message(choice: Choice) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": choice.text, "refusal": None}
    if choice.thought:
        message["reasoning_content"] = choice.thought
    if choice.calls:
        message["content"] = choice.text or None
        message["tool_calls"] = [openai_call(call) for call in choice.calls]
    return message


def _deltas(choice: Choice) -> Iterator[dict[str, Any]]:
    whole = _message(choice)
    yield {"role": "assistant", "content": None if whole["content"] is None else ""}
    yield from ({"reasoning_content": piece} for piece in pieces(choice.thought))
    yield from ({"content": piece} for piece in pieces(choice.text))
    for index, call in enumerate(choice.calls):
        begun = {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": ""},
        }
        yield {"tool_calls": [{"index": index, **begun}]}
        for piece in pieces(arguments_json(call)):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _logprobs(choice: Choice) -> dict[str, Any]:
    tokens = [
        {
            "token": token.text,
            "logprob": token.logprob,
            "bytes": list(token.bytes),
            "top_logprobs": [],
        }
        for token in choice.tokens
    ]
    return {"content": tokens, "refusal": None}


def _usage(reply: Reply) -> dict[str, Any]:
    read, written = reply.prompt_tokens, reply.sampled
    return {
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": read + written,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": reply.thought},
    }
