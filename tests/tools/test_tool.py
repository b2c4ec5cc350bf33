"""Tools: the schema of a signature, checked arguments, deadlines, and what the agent is told."""

import asyncio
import threading
import time
from typing import Any, Literal

import pytest

from turnwise.environments.base import Environment
from turnwise.errors import InfrastructureError, ToolError
from turnwise.tools.tool import Tool, tool, tools_of
from turnwise.types import Action, Step, ToolCall


class Desk(Environment):
    tool_deadline = 0.2

    @tool
    def add(self, left: int, right: int = 1) -> str:
        """Add two numbers,
        exactly.

        Not shown.
        """
        return str(left + right)

    @tool
    async def wait(self, seconds: float) -> str:
        """Wait."""
        await asyncio.sleep(seconds)
        return "done"

    @tool
    def thread(self) -> str:
        return threading.current_thread().name

    @tool
    def paint(self, colour: Literal["red", "blue"], tags: list[str] | None = None) -> str:
        if tags == ["broken"]:
            raise KeyError("a bug")
        if colour == "blue":
            raise ToolError("out of blue")
        return f"{colour} {tags}"

    def hidden(self) -> str:
        return "not a tool"


def call(name: str, **arguments: Any) -> Step:
    action = Action("", calls=(ToolCall(name, arguments),))
    return asyncio.run(Desk().step(action))


def test_the_schema_is_the_signature():
    assert Tool.of(Desk().add).schema == {
        "name": "add",
        "description": "Add two numbers, exactly.",
        "parameters": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "left": {"title": "Left", "type": "integer"},
                "right": {"title": "Right", "type": "integer", "default": 1},
            },
            "required": ["left"],
        },
    }


def test_a_schema_is_made_once():
    """Every call of a tool asks for it."""
    assert Tool.of(Desk().add).schema is Tool.of(Desk().add).schema


def test_only_marked_methods_are_tools_in_alphabetical_order():
    assert list(tools_of(Desk())) == ["add", "paint", "thread", "wait"]
    assert [entry.name for entry in Desk().tools()] == ["add", "paint", "thread", "wait"]


def test_arguments_are_converted_and_defaults_filled_in():
    assert call("add", left="2").observation.content == "3"
    assert call("paint", colour="red", tags=["a"]).observation.content == "red ['a']"


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("add", {}, "add: argument 'left': Field required"),
        ("add", {"left": "x"}, "add: argument 'left': Input should be a valid integer"),
        ("add", {"left": 1, "other": 2}, "add: argument 'other': Extra inputs"),
        ("paint", {"colour": "green"}, "paint: argument 'colour': Input should be 'red' or 'blue'"),
        ("paint", {"colour": "blue"}, "out of blue"),
        ("hidden", {}, "there is no tool 'hidden'; tools: add, paint, thread, wait"),
        ("missing", {}, "there is no tool 'missing'"),
    ],
)
def test_the_agents_mistakes_become_observations(name, arguments, message):
    step = call(name, **arguments)
    assert step.observation.content.startswith(f"Error: {message}")
    assert [result.ok for result in step.results] == [False]
    assert not step.done


def test_a_bug_in_a_tool_is_not_the_agents_mistake():
    with pytest.raises(KeyError):
        call("paint", colour="red", tags=["broken"])


def test_asynchronous_tools_have_a_deadline():
    assert call("wait", seconds=0).observation.content == "done"
    start = time.monotonic()
    with pytest.raises(InfrastructureError, match=r"tool wait: no result within 0\.2 s"):
        call("wait", seconds=30)
    assert time.monotonic() - start < 10


def test_plain_tools_run_beside_the_event_loop():
    assert call("thread").observation.content != threading.main_thread().name


def test_results_keep_the_order_of_the_calls():
    calls = (ToolCall("wait", {"seconds": 0.05}), ToolCall("add", {"left": 1}))
    step = asyncio.run(Desk().step(Action("", calls=calls)))
    assert step.observation.content == "done\n2"
    assert [result.call for result in step.results] == list(calls)
    assert step.results[0].seconds >= 0.04
