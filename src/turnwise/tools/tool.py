"""A tool is a method with types: `@tool` turns its signature into a schema and its calls into data.

Next: `scaffolds/tags.py`.
"""

import asyncio
import contextlib
import functools
import inspect
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from pydantic import ConfigDict, PydanticUserError, ValidationError, create_model

from turnwise.errors import ConfigError, DeadlineError, ToolError, first_line
from turnwise.tools.isolated import run_static
from turnwise.types import encodable

Function = TypeVar("Function", bound=Callable[..., Any])
MOST_CHARACTERS = 200_000
"""Characters of one result: what is more is cut off before anything has to be tokenised."""
_MARK = "__turnwise_tool__"
_ISOLATED = "__turnwise_isolated__"
_CONSEQUENCE = "__turnwise_consequence__"


@overload
def tool(function: Function, /) -> Function: ...
@overload
def tool(*, isolated: bool) -> Callable[[Function], Function]: ...
def tool(function: Any = None, /, *, isolated: bool = False) -> Any:
    """Mark a method of an environment, or a function, as an action of the agent.

    Its signature is the schema, the first paragraph of its docstring the description. It may be
    `async def`; a plain method runs in a worker thread, so that it cannot block the others. It
    returns the text of the observation and raises ToolError for what the agent did wrong.

    With `isolated` it is a static method, `@tool(isolated=True)` above `@staticmethod`, and runs in
    a process of its own, which is killed at the deadline: for what could hold the interpreter, such
    as arithmetic of the agent's. Then a late call has failed, and the episode goes on.

    Raises ConfigError for a method without a docstring, or with a parameter without a type.

    >>> class House(Environment):
    ...     @tool
    ...     def open(self, door: int) -> str:
    ...         \"\"\"Open a door.\"\"\"
    ...         return f"Door {door} is open."
    >>> [each.name for each in House().tools()]
    ['open']
    """
    if function is None:
        return _isolated_tool if isolated else tool
    _check_signature(getattr(function, "__func__", function))
    setattr(function, _MARK, True)
    return function


def _isolated_tool(function: Any) -> Any:
    plain = getattr(function, "__func__", function)
    if not isinstance(function, staticmethod) or inspect.iscoroutinefunction(plain):
        raise ConfigError(
            f"{_place(plain)}: an isolated tool is a plain @staticmethod: it has no self"
        )
    if "<locals>" in plain.__qualname__:
        raise ConfigError(f"{_place(plain)}: an isolated tool's class is at the top of its file")
    setattr(plain, _ISOLATED, True)
    return tool(function)


def _check_signature(function: Callable[..., Any]) -> None:
    if not (inspect.getdoc(function) or "").strip():
        raise ConfigError(f"{_place(function)}: write a docstring: the agent reads it")
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ConfigError(f"{_place(function)}: name every parameter, in place of {parameter}")
        if name != "self" and parameter.annotation is parameter.empty:
            raise ConfigError(
                f"{_place(function)}: give parameter {name!r} a type, as in {name}: str"
            )


def _place(function: Callable[..., Any]) -> str:
    code = inspect.unwrap(function).__code__
    return f"{code.co_filename}, line {code.co_firstlineno}: tool {function.__name__}"


def consequential(what: str) -> Callable[[Function], Function]:
    """Mark a tool by what it does outside of the conversation: "write", "send", "delete", or a word
    of one's own. A recipe can limit, refuse or dry-run it (`environments/derived.py`).

    Example: `@tool` above `@consequential("send")` above `def send_mail(...)`.
    """

    def mark(function: Function) -> Function:
        setattr(function, _CONSEQUENCE, what)
        return function

    return mark


@dataclass(frozen=True)
class Tool:
    """A bound tool. Example: `Tool.of(environment.search).schema["name"] == "search"`."""

    name: str
    description: str
    schema: Mapping[str, Any]
    """JSON schema of the call: name, description, parameters."""
    function: Callable[..., Any]
    consequence: str = ""
    """The effect outside of the conversation, if the tool is marked as `consequential`."""
    isolated: Callable[[Mapping[str, Any], float], str] | None = None
    """Runs it in another process, with checked arguments and a deadline; blocks. None: here."""

    @classmethod
    def of(cls, method: Callable[..., Any]) -> "Tool":
        """Read a bound method's signature."""
        plain = getattr(method, "__func__", method)
        schema = _schema_of(plain)
        consequence = getattr(method, _CONSEQUENCE, "")
        isolated = functools.partial(run_static, plain) if hasattr(plain, _ISOLATED) else None
        return cls(schema["name"], schema["description"], schema, method, consequence, isolated)

    async def __call__(self, arguments: Mapping[str, Any], deadline: float) -> str:
        """Check the arguments and run the tool. Its result has MOST_CHARACTERS at most, all of
        which can be encoded.

        Raises ToolError for wrong arguments, for a tool that raised SystemExit, and for an isolated
        one that took longer than `deadline` seconds: all are shown to the agent; and
        DeadlineError when another one does, which goes on in its thread: the episode has to end.
        What else the tool raises goes through.
        """
        values = self.check(arguments)
        try:
            if self.isolated is not None:
                result = await in_thread(functools.partial(self.isolated, values, deadline))
            else:
                result = await self._here(values, deadline)
        except SystemExit as error:
            raise ToolError(f"{self.name}: it ended itself with SystemExit({error})") from None
        except ToolError as error:
            raise ToolError(readable(str(error))) from error
        return readable(str(result))

    async def _here(self, values: Mapping[str, Any], deadline: float) -> Any:
        try:
            async with asyncio.timeout(deadline) as scope:
                return await called(functools.partial(self.function, **values))
        except TimeoutError:
            if not scope.expired():
                raise  # the tool's own
            raise DeadlineError(f"tool {self.name}: no result within {deadline:g} s") from None

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments in the tool's types. Raises ToolError where they do not fit."""
        function = getattr(self.function, "__func__", self.function)
        try:
            checked = _model_of(function).model_validate(dict(arguments))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise ToolError(f"{self.name}: argument {where!r}: {first['msg']}") from None
        # Not model_dump: an argument whose type is a model arrives as one.
        return {name: getattr(checked, name) for name in type(checked).model_fields}


def readable(text: str) -> str:
    """A text that can be tokenised, in time: cut after MOST_CHARACTERS, and with a replacement for
    each half of a surrogate pair.

    >>> readable("a\\ud800b")
    'a?b'
    """
    left = len(text) - MOST_CHARACTERS
    if left > 0:
        text = f"{text[:MOST_CHARACTERS]}\n[{left} more characters are not shown]"
    return encodable(text)


async def called(function: Callable[[], Any]) -> Any:
    """Call what is `async def` here, anything else in a thread, and await what that returns."""
    if inspect.iscoroutinefunction(getattr(function, "func", function)):
        return await function()
    found = await in_thread(function)
    return await found if inspect.isawaitable(found) else found


async def in_thread(function: Callable[[], Any]) -> Any:
    """Run a blocking function in a thread of its own. Not `asyncio.to_thread`: a few hung tools
    would fill its pool, and the program could not end before they do, as daemon threads let it."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(setter: Callable[[Any], None], value: Any) -> None:
        if not future.done():
            setter(value)

    def work() -> None:
        try:
            setter, value = future.set_result, function()
        except StopIteration as error:  # no future can hold one
            setter, value = future.set_exception, RuntimeError(f"StopIteration: {error}")
        except BaseException as error:  # noqa: BLE001 - raised again where the tool was called
            setter, value = future.set_exception, error
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
            loop.call_soon_threadsafe(settle, setter, value)

    threading.Thread(target=work, daemon=True).start()
    return await future


def is_tool(value: object) -> bool:
    """Whether a function is marked with @tool."""
    return callable(value) and hasattr(value, _MARK)


def tools_of(owner: object) -> dict[str, Tool]:
    """All methods of an object that are marked with @tool, by name, in alphabetical order."""
    kind: Any = type(owner)
    return {name: Tool.of(getattr(owner, name)) for name in _tool_names(kind)}


@functools.cache
def _tool_names(kind: type) -> tuple[str, ...]:
    """Looked up in the class: its properties are not worked out for it."""
    found = (name for name in dir(kind) if hasattr(inspect.getattr_static(kind, name), _MARK))
    return tuple(sorted(found))


@functools.cache
def _schema_of(function: Callable[..., Any]) -> dict[str, Any]:
    description = (inspect.getdoc(function) or "").partition("\n\n")[0].replace("\n", " ")
    try:
        schema = _model_of(function).model_json_schema()
    except (NameError, PydanticUserError) as error:
        raise ConfigError(
            f"{_place(function)}: give parameters types that JSON has, and import them for more "
            f"than the type checker: {first_line(error)}"
        ) from None
    parameters = {key: value for key, value in schema.items() if key != "title"}
    return {"name": function.__name__, "description": description, "parameters": parameters}


@functools.cache
def _model_of(function: Callable[..., Any]) -> Any:
    fields: dict[str, Any] = {}
    # eval_str: a file may begin with `from __future__ import annotations`.
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        if name == "self":
            continue
        given, empty = parameter.annotation, inspect.Parameter.empty
        annotation = Any if given is empty else given
        default = ... if parameter.default is empty else parameter.default
        fields[name] = (annotation, default)
    return create_model(function.__name__, __config__=ConfigDict(extra="forbid"), **fields)
