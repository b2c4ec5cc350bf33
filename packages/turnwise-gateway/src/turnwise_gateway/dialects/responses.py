"""The dialect of OpenAI's responses: a request's body becomes a Request, a Reply a body.

The shapes are those of the package `openai` (its `types/responses`). The gateway keeps no
responses: an agent sends the whole conversation as items each time.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from turnwise.types import ToolCall
from turnwise_gateway.dialects.conversation import (
    Conversation,
    Kinds,
    check_caller,
    distinct,
    read_choice,
    read_content,
    read_tool,
)
from turnwise_gateway.dialects.fields import Fields
from turnwise_gateway.dialects.writing import arguments_json, event, openai_error, pieces
from turnwise_gateway.requests import Choice, Message, RefusedError, Reply, Request, ToolSchema

NAME = "responses"
PATH = "/v1/responses"
INCLUDED = frozenset({"reasoning.encrypted_content"})
"""Extras of a response that agents ask for with every request, and can do without."""
IGNORED = (
    *("temperature", "top_p", "reasoning", "user", "metadata", "store", "service_tier"),
    *("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "safety_identifier"),
    *("stream_options", "max_tool_calls", "client_metadata", "parallel_tool_calls"),
)
"""Sampling settings are the recipe's; there is no account, no store, no cache, no tool of the API.

`parallel_tool_calls` is false in all requests of Codex for models that it does not know, though it
runs whatever calls a reply has."""
REFUSED = {
    "previous_response_id": "no responses are kept: send the whole conversation as input",
    "conversation": "no conversations are kept: send the whole conversation as input",
    "prompt": "no prompts are kept: write it into instructions",
    "background": "a reply comes with its request",
    "moderation": "nothing is moderated",
    "context_management": "the gateway shortens no conversation",
    "top_logprobs": "log-probabilities are listed by chat completions alone",
}


def read(body: Mapping[str, Any]) -> Request:
    """The request in a body. Raises RefusedError that names what is malformed or not supported."""
    fields = Fields(body)
    fields.refuse(REFUSED)
    fields.ignore(*IGNORED)
    conversation = Conversation()
    if "instructions" in fields:
        conversation.add(Message("system", fields.text("instructions")))
    content = fields.text_or_objects("input")
    if isinstance(content, str):
        conversation.add(Message("user", content))
    else:
        _read_items(content, conversation)
    offered = [one for tool in fields.objects("tools") for one in _read_tools(tool)]
    tools = distinct(fields, offered)
    _check_options(fields)
    request = Request(
        conversation.complete(fields, "input"),
        tools,
        dialect=NAME,
        model=fields.text("model"),
        max_tokens=fields.number("max_output_tokens"),
        stream=fields.flag("stream"),
        needs_call=read_choice(fields, tools),
        ignored=fields.ignored,
    )
    fields.end()
    return request


def body(request: Request, reply: Reply) -> dict[str, Any]:
    cut_off = reply.choices[0].ending == "length"
    return {
        **_head(request, reply, "incomplete" if cut_off else "completed"),
        "incomplete_details": {"reason": "max_output_tokens"} if cut_off else None,
        "output": _items(request, reply),
        "usage": _usage(reply),
    }


def events(request: Request, reply: Reply) -> Iterator[str]:
    begun = {**_head(request, reply, "in_progress"), "output": [], "usage": None}
    numbered = enumerate(_events(begun, body(request, reply)))
    return (event({**one, "sequence_number": number}) for number, one in numbered)


def error(refused: RefusedError) -> dict[str, Any]:
    """The body of an error. What other dialects call messages is the input here."""
    if refused.field == "messages":
        message = refused.message.removeprefix("messages: ")
        refused = RefusedError(message, refused.status, "input", refused.kind)
    return openai_error(refused)


def _check_options(fields: Fields) -> None:
    unknown = sorted(set(fields.texts("include")) - INCLUDED)
    if unknown:
        raise fields.refused("include", f"{unknown[0]!r} is not supported")
    fields.kind("truncation", "disabled", default="disabled")
    if "text" in fields:
        text = fields.object("text")
        text.ignore("verbosity")
        if "format" in text:
            wanted = text.object("format")
            wanted.kind("type", "text")


def _read_tools(tool: Fields) -> list[ToolSchema]:
    """A tool, or those of a namespace, whose description stands before that of the first."""
    kind = tool.text("type")
    if kind != "namespace":
        return [_read_tool(tool, kind)]
    space, about = tool.text("name"), tool.text("description", "")
    found = []
    for one in tool.objects("tools"):
        read = _read_tool(one, one.text("type"))
        words = "\n\n".join(filter(None, (about, read.description)))
        name = _with_namespace(space, read.name)
        found.append(replace(read, name=name, description=words, namespace=space))
        about = ""
    return found


def _with_namespace(space: str, name: str) -> str:
    return f"{space}__{name}" if space else name


def _read_tool(tool: Fields, kind: str) -> ToolSchema:
    if kind != "function":
        raise tool.refused(
            "type", f"{kind!r} is not supported, only 'function': switch this tool off in the agent"
        )
    read = read_tool(tool, "parameters")
    tool.ignore("output_schema")
    return read


def _read_items(items: list[Fields], conversation: Conversation) -> None:
    """Read items into messages: calls belong to the assistant's message right before them."""
    calling = False
    for item in items:
        kind = item.text("type", "message")
        item.ignore("id", "status")
        if kind == "message":
            message = _read_message(item)
            conversation.add(message)
            calling = message.role == "assistant"
        elif kind == "function_call":
            if not calling:
                conversation.add(Message("assistant", ""))
            conversation.add_call(_read_call(item))
            calling = True
        elif kind == "function_call_output":
            call = conversation.answered(item, "call_id")
            item.ignore("name")
            text, images = _read_content(item, "output", "tool")
            conversation.add(Message("tool", text, call=call, images=images))
            calling = False
        elif kind == "reasoning":
            item.drop("reasoning")
            calling = False
        else:
            raise item.refused("type", f"{kind!r} is not supported")
        if kind in ("function_call", "function_call_output"):
            item.ignore("namespace")  # of a result; a call has read its own
            check_caller(item)


def _read_message(item: Fields) -> Message:
    role = item.kind("role", "system", "developer", "user", "assistant")
    item.ignore("phase")
    text, images = _read_content(item, "content", role)
    if role == "assistant":
        return Message("assistant", text)
    return Message("user" if role == "user" else "system", text, images=images)


def _read_call(item: Fields) -> ToolCall:
    item.ignore("parsed_arguments")  # which the package adds to what it has streamed
    name = _with_namespace(item.text("namespace", ""), item.text("name"))
    return ToolCall(name, item.arguments("arguments"), item.text("call_id"))


def _read_content(item: Fields, name: str, role: str) -> tuple[str, tuple[bytes, ...]]:
    kinds: Kinds = {"input_text": _read_text, "output_text": _read_text}
    if role in ("user", "tool"):
        kinds = {**kinds, "input_image": _read_image}
    return read_content(item, name, role, kinds)


def _read_text(part: Fields) -> str:
    part.ignore("annotations", "logprobs", "prompt_cache_breakpoint")
    return part.text("text")


def _read_image(part: Fields) -> bytes:
    part.refuse({"file_id": "no files are kept: send the image as a data URL"})
    part.ignore("detail", "prompt_cache_breakpoint")
    return part.png_url("image_url")


def _head(request: Request, reply: Reply, status: str) -> dict[str, Any]:
    """All of a response but its output, usage and reason to be incomplete."""
    tools = [
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": dict(tool.parameters),
            "strict": False,
        }
        for tool in request.tools
    ]
    return {
        "id": f"resp_{reply.id}",
        "object": "response",
        "created_at": reply.created,
        "status": status,
        "model": reply.model,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": request.max_tokens,
        "metadata": {},
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "store": False,
        "temperature": None,
        "top_p": None,
        "text": {"format": {"type": "text"}},
        "tool_choice": "required" if request.needs_call else "auto",
        "tools": tools,
        "truncation": "disabled",
    }


def _items(request: Request, reply: Reply) -> list[dict[str, Any]]:
    choice = reply.choices[0]
    spaces = {tool.name: tool.namespace for tool in request.tools if tool.namespace}
    items: list[dict[str, Any]] = []
    if choice.thought:
        summary = [{"type": "summary_text", "text": choice.thought}]
        items.append({"type": "reasoning", "id": f"rs_{reply.id}", "summary": summary})
    if choice.text or not choice.calls:
        items.append(_message(reply, choice))
    items += [
        {
            "type": "function_call",
            "id": f"fc_{reply.id}-{number}",
            "call_id": call.id,
            **_named(call.name, spaces.get(call.name, "")),
            "arguments": arguments_json(call),
            "status": "completed",
        }
        for number, call in enumerate(choice.calls)
    ]
    return items


def _named(name: str, space: str) -> dict[str, str]:
    """A called tool's name as the agent knows it."""
    if not space:
        return {"name": name}
    return {"name": name.removeprefix(_with_namespace(space, "")), "namespace": space}


def _message(reply: Reply, choice: Choice) -> dict[str, Any]:
    cut_off = choice.ending == "length" and not choice.calls
    part = {"type": "output_text", "text": choice.text, "annotations": [], "logprobs": []}
    return {
        "type": "message",
        "id": f"msg_{reply.id}",
        "role": "assistant",
        "status": "incomplete" if cut_off else "completed",
        "content": [part],
    }


def _usage(reply: Reply) -> dict[str, Any]:
    read, written = reply.prompt_tokens, reply.sampled
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": reply.thought},
        "total_tokens": read + written,
    }


Event = dict[str, Any]


def _events(begun: Mapping[str, Any], ended: Mapping[str, Any]) -> Iterator[Event]:
    """Events of a response; `begun` is it without output, `ended` with all of it. The order is
    accumulators': what is added is empty, deltas fill it, what is done is complete."""
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(ended["output"]):
        place = {"output_index": index}
        yield {"type": "response.output_item.added", **place, "item": _opened(item)}
        yield from _FILLED[item["type"]](item, {"item_id": item["id"], **place})
        yield {"type": "response.output_item.done", **place, "item": item}
    yield {"type": f"response.{ended['status']}", "response": ended}


def _opened(item: Mapping[str, Any]) -> Event:
    if item["type"] == "reasoning":
        return {**item, "summary": []}
    opened = {**item, "status": "in_progress"}
    if item["type"] == "message":
        return {**opened, "content": []}
    return {**opened, "arguments": ""}


def _thought(item: Mapping[str, Any], place: Event) -> Iterator[Event]:
    for number, part in enumerate(item["summary"]):
        here = {**place, "summary_index": number}
        kind = "response.reasoning_summary"
        yield {"type": f"{kind}_part.added", **here, "part": {**part, "text": ""}}
        for piece in pieces(part["text"]):
            yield {"type": f"{kind}_text.delta", **here, "delta": piece}
        yield {"type": f"{kind}_text.done", **here, "text": part["text"]}
        yield {"type": f"{kind}_part.done", **here, "part": part}


def _said(item: Mapping[str, Any], place: Event) -> Iterator[Event]:
    for number, part in enumerate(item["content"]):
        here = {**place, "content_index": number}
        yield {"type": "response.content_part.added", **here, "part": {**part, "text": ""}}
        text = {**here, "logprobs": []}
        for piece in pieces(part["text"]):
            yield {"type": "response.output_text.delta", **text, "delta": piece}
        yield {"type": "response.output_text.done", **text, "text": part["text"]}
        yield {"type": "response.content_part.done", **here, "part": part}


def _called(item: Mapping[str, Any], place: Event) -> Iterator[Event]:
    kind = "response.function_call_arguments"
    for piece in pieces(item["arguments"]):
        yield {"type": f"{kind}.delta", **place, "delta": piece}
    yield {"type": f"{kind}.done", **place, "name": item["name"], "arguments": item["arguments"]}


_FILLED = {"reasoning": _thought, "message": _said, "function_call": _called}
