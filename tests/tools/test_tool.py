"""Tools: the schema of a signature, checked arguments, deadlines, and what the agent is told."""

import asyncio
import functools
import gc
import os
import signal
import threading
from typing import Any, Literal

import pytest

from turnwise.environments.base import Environment
from turnwise.errors import ConfigError, DeadlineError, InfrastructureError, ToolError
from turnwise.tools.isolated import Workers
from turnwise.tools.tool import MOST_CHARACTERS, Tool, tool, tools_of
from turnwise.types import Action, Step, ToolCall

TOOLS = ["add", "fail", "leave", "leave_thread", "odd", "paint", "power", "thread", "wait"]


class Desk(Environment):
    tool_deadline = 60.0

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
        """Name the thread."""
        return threading.current_thread().name

    @tool
    def paint(self, colour: Literal["red", "blue"], tags: list[str] | None = None) -> str:
        """Paint."""
        if tags == ["broken"]:
            raise KeyError("a bug")
        if colour == "blue":
            raise ToolError("out of blue")
        return f"{colour} {tags}"

    @tool
    async def leave(self, how: Literal["exit", "iteration"]) -> str:
        """Leave."""
        return exiting(how)

    @tool
    def leave_thread(self, how: Literal["exit", "iteration"]) -> str:
        """Leave."""
        return exiting(how)

    @tool
    def odd(self, what: Literal["told", "raised", "long"]) -> str:
        """Give what cannot be encoded, or is long."""
        if what == "raised":
            raise ToolError("no \ud800 here")
        return "a\ud800b" if what == "told" else "x" * 10_000_000

    @tool(isolated=True)
    @staticmethod
    def power(base: int, exponent: int) -> str:
        """Work out a power."""
        return str(base**exponent % 1000)

    @tool(isolated=True)
    @staticmethod
    def fail(how: Literal["told", "exit", "deep", "end", "bug", "iteration"]) -> str:
        """Fail."""
        if how == "told":
            raise ToolError("not like this")
        if how == "end":
            os._exit(0)
        return exiting(how)

    def hidden(self) -> str:
        return "not a tool"


def exiting(how: str) -> str:
    if how == "exit":
        raise SystemExit(3)
    if how == "deep":
        return exiting(how)
    return {"one": "x"}[how] if how == "bug" else next(iter(()))


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
    assert Tool.of(Desk().add).schema is Tool.of(Desk().add).schema, "every call asks for it"


def test_only_marked_methods_are_tools_in_alphabetical_order():
    assert list(tools_of(Desk())) == TOOLS
    assert [entry.name for entry in Desk().tools()] == TOOLS


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
        ("hidden", {}, "there is no tool 'hidden'; tools: " + ", ".join(TOOLS)),
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
    class Hurried(Desk):
        tool_deadline = 0.2

    assert call("wait", seconds=0).observation.content == "done"
    late = Action("", calls=(ToolCall("wait", {"seconds": 1e4}),))
    with pytest.raises(DeadlineError, match=r"tool wait: no result within 0\.2 s"):
        asyncio.run(asyncio.wait_for(Hurried().step(late), 60))


def test_plain_tools_run_beside_the_event_loop():
    assert call("thread").observation.content != threading.main_thread().name


def test_results_keep_the_order_of_the_calls():
    calls = (ToolCall("wait", {"seconds": 0.05}), ToolCall("add", {"left": 1}))
    step = asyncio.run(Desk().step(Action("", calls=calls)))
    assert step.observation.content == "done\n2"
    assert [result.call for result in step.results] == list(calls)
    assert step.results[0].seconds >= 0.04


@pytest.mark.parametrize("name", ["leave", "leave_thread"])
def test_a_tool_that_ends_the_program_has_failed(name):
    step = call(name, how="exit")
    assert not step.results[0].ok
    assert "it ended itself with SystemExit(3)" in step.observation.content


def test_a_tool_out_of_items_does_not_hang_until_its_deadline():
    with pytest.raises(RuntimeError, match="StopIteration"):
        call("leave_thread", how="iteration")


@pytest.mark.parametrize("what", ["told", "raised"])
def test_half_a_surrogate_pair_can_be_encoded(what):
    content = call("odd", what=what).observation.content
    assert content in ("a?b", "Error: no ? here")
    assert content.encode()


def test_a_long_result_is_cut_before_it_is_tokenised():
    content = call("odd", what="long").observation.content
    assert content.endswith("x\n[9800000 more characters are not shown]")
    assert len(content) < MOST_CHARACTERS + 100


@pytest.mark.long
def test_an_isolated_tool_is_killed_at_its_deadline_and_the_next_call_works():
    """The power is worked out in one operation, which lets go of the interpreter when it ends."""

    class Hurried(Desk):
        tool_deadline = 1.0

    async def both() -> tuple[Step, Step]:
        late = Action("", calls=(ToolCall("power", {"base": 9, "exponent": 9**9}),))
        good = Action("", calls=(ToolCall("power", {"base": 2, "exponent": 10}),))
        return await Hurried().step(late), await Desk().step(good)

    late, good = asyncio.run(both())
    assert (late.results[0].ok, late.observation.content) == (
        False,
        "Error: it was stopped after 1 s",
    )
    assert (good.results[0].ok, good.observation.content) == (True, "24")


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("told", "Error: not like this"),
        ("exit", "Error: SystemExit"),
        ("deep", "Error: RecursionError"),
        ("end", "Error: it ended its process"),
    ],
)
def test_what_an_isolated_tool_does_to_itself_is_a_failed_call(how, told):
    step = asyncio.run(Desk().step(Action("", calls=(ToolCall("fail", {"how": how}),))))
    assert (step.results[0].ok, step.observation.content) == (False, told)


@pytest.mark.long
@pytest.mark.parametrize(("how", "error"), [("bug", "KeyError"), ("iteration", "StopIteration")])
def test_a_bug_in_an_isolated_tool_names_its_line(how, error):
    with pytest.raises(InfrastructureError, match=rf"{error}.*test_tool\.py, line \d+"):
        asyncio.run(Desk().step(Action("", calls=(ToolCall("fail", {"how": how}),))))


def test_a_worker_that_ended_between_two_calls_is_no_call_of_anybodys():
    workers = Workers(os.getcwd)
    first = workers.call(os.getpid, seconds=120.0)
    os.kill(first, signal.SIGKILL)
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
    assert workers.call(os.getpid, seconds=120.0) != first
    for worker in workers._idle:
        worker.kill()


def undocumented(self, text: str) -> str: ...


def untyped(self, text) -> str:
    """Say."""


def open_ended(self, *texts: str) -> str:
    """Say."""


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (undocumented, "tool undocumented: write a docstring: the agent reads it"),
        (untyped, "tool untyped: give parameter 'text' a type, as in text: str"),
        (open_ended, r"tool open_ended: name every parameter, in place of \*texts: str"),
    ],
)
def test_a_tool_that_the_agent_could_not_use_is_refused_in_one_line(function, told):
    with pytest.raises(ConfigError, match=rf"test_tool\.py, line \d+: {told}"):
        tool(function)


class Room: ...


def test_types_that_no_call_can_have_are_refused_in_one_line():
    def enter(room: Room) -> str:
        """Enter."""

    def leave(room: "Elsewhere") -> str:  # noqa: F821
        """Leave."""

    for function in (enter, leave):
        told = rf"test_tool\.py, line \d+: tool {function.__name__}: give parameters types that"
        with pytest.raises(ConfigError, match=told):
            Tool.of(tool(function))


def test_a_wrapper_of_an_asynchronous_tool_is_awaited():
    class Wrapped(Desk):
        wait = tool(functools.wraps(Desk.wait)(lambda self, seconds: Desk.wait(self, seconds)))

    wait = Action("", calls=(ToolCall("wait", {"seconds": 0}),))
    assert asyncio.run(Wrapped().step(wait)).observation.content == "done"


def test_an_isolated_tool_has_no_self_and_can_be_found():
    with pytest.raises(ConfigError, match="an isolated tool is a plain @staticmethod"):
        tool(isolated=True)(Desk.add)

    def local(text: str) -> str:
        """Say."""
        return text

    with pytest.raises(ConfigError, match="at the top of its file"):
        tool(isolated=True)(staticmethod(local))
    assert tool(isolated=False)(Desk.add) is Desk.add


def test_workers_end_with_what_they_are_kept_by() -> None:
    workers = Workers(os.getpid)
    process = workers.call(os.getpid, seconds=60.0)
    del workers
    gc.collect()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
