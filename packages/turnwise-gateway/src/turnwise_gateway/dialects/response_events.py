"""The events of a response that is streamed: item by item, and each of its texts in pieces.

The order is the one that accumulators rely on: what is added is empty, deltas fill it, what is done
is complete.
"""

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from turnwise_gateway.dialects.writing import event, pieces

Event = dict[str, Any]


def events(begun: Mapping[str, Any], ended: Mapping[str, Any]) -> Iterator[str]:
    """Server-sent events of a response; `begun` is it without output, `ended` with all of it."""
    numbers = count()
    for one in _events(begun, ended):
        yield event({**one, "sequence_number": next(numbers)})


def _events(begun: Mapping[str, Any], ended: Mapping[str, Any]) -> Iterator[Event]:
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(ended["output"]):
        place = {"output_index": index}
        yield {"type": "response.output_item.added", **place, "item": _empty(item)}
        yield from _FILLED[item["type"]](item, {"item_id": item["id"], **place})
        yield {"type": "response.output_item.done", **place, "item": item}
    yield {"type": f"response.{ended['status']}", "response": ended}


def _empty(item: Mapping[str, Any]) -> Event:
    if item["type"] == "reasoning":
        return {**item, "summary": []}
    opened = {**item, "status": "in_progress"}
    if item["type"] == "message":
        return {**opened, "content": []}
    return {**opened, "arguments": ""}


def _reasoning(item: Mapping[str, Any], place: Event) -> Iterator[Event]:
    for number, part in enumerate(item["summary"]):
        here = {**place, "summary_index": number}
        kind = "response.reasoning_summary"
        yield {"type": f"{kind}_part.added", **here, "part": {**part, "text": ""}}
        for piece in pieces(part["text"]):
            yield {"type": f"{kind}_text.delta", **here, "delta": piece}
        yield {"type": f"{kind}_text.done", **here, "text": part["text"]}
        yield {"type": f"{kind}_part.done", **here, "part": part}


def _message(item: Mapping[str, Any], place: Event) -> Iterator[Event]:
    for number, part in enumerate(item["content"]):
        here = {**place, "content_index": number}
        yield {"type": "response.content_part.added", **here, "part": {**part, "text": ""}}
        text = {**here, "logprobs": []}
        for piece in pieces(part["text"]):
            yield {"type": "response.output_text.delta", **text, "delta": piece}
        yield {"type": "response.output_text.done", **text, "text": part["text"]}
        yield {"type": "response.content_part.done", **here, "part": part}


def _call(item: Mapping[str, Any], place: Event) -> Iterator[Event]:
    kind = "response.function_call_arguments"
    for piece in pieces(item["arguments"]):
        yield {"type": f"{kind}.delta", **place, "delta": piece}
    yield {"type": f"{kind}.done", **place, "name": item["name"], "arguments": item["arguments"]}


_FILLED = {"reasoning": _reasoning, "message": _message, "function_call": _call}
