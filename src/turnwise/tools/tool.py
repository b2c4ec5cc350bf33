"""A tool is a method with types: `@tool` turns its signature into a schema and its calls into data.

Not here: what runs inside a tool (that is the environment's business) and how a call is written in
tokens (that is the scaffold's).
"""

import asyncio
import contextlib
import functools
import inspect
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ConfigDict, ValidationError, create_model

from turnwise.errors import InfrastructureError, ToolError

Function = TypeVar("Function", bound=Callable[..., Any])
_MARK = "__turnwise_tool__"
_CONSEQUENCE = "__turnwise_consequence__"


def tool(function: Function) -> Function:
    """Mark a method of an environment as an action of the agent.

    Its signature is the schema, the first paragraph of its docstring the description. It may be
    `async def`; a plain method runs in a worker thread, so that it cannot block the others. It
    returns the text of the observation and raises ToolError for what the agent did wrong.
    """
    setattr(function, _MARK, True)
    return function


def consequential(what: str) -> Callable[[Function], Function]:
    """Mark a tool by what it does outside of the conversation: "write", "send", "delete", or a word
    of one's own. A recipe can limit, refuse or dry-run it (`environments/guarded.py`).

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
    """What it does outside of the conversation, if it is marked as `consequential`."""

    @classmethod
    def of(cls, method: Callable[..., Any]) -> "Tool":
        """Read a bound method's signature."""
        schema = _schema_of(getattr(method, "__func__", method))
        consequence = getattr(method, _CONSEQUENCE, "")
        return cls(schema["name"], schema["description"], schema, method, consequence)

    async def __call__(self, arguments: Mapping[str, Any], deadline: float) -> str:
        """Check the arguments and run the tool.

        Raises ToolError for wrong arguments, which is shown to the agent, and InfrastructureError
        when `deadline` seconds pass. What else the tool raises goes through.
        """
        values = self.check(arguments)
        try:
            async with asyncio.timeout(deadline):
                if inspect.iscoroutinefunction(self.function):
                    return str(await self.function(**values))
                return str(await in_thread(functools.partial(self.function, **values)))
        except TimeoutError:
            message = f"tool {self.name}: no result within {deadline:g} s"
            raise InfrastructureError(message) from None

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments in the tool's types. Raises ToolError where they do not fit."""
        try:
            checked = _arguments_model(self.function).model_validate(dict(arguments))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise ToolError(f"{self.name}: argument {where!r}: {first['msg']}") from None
        return {name: getattr(checked, name) for name in type(checked).model_fields}


async def in_thread(function: Callable[[], Any]) -> Any:
    """Run a blocking function in a thread of its own.

    Not `asyncio.to_thread`: a few hung tools would fill its pool, and the program could not end
    before they do. A daemon thread hinders nobody.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(setter: Callable[[Any], None], value: Any) -> None:
        if not future.done():
            setter(value)

    def work() -> None:
        try:
            setter, value = future.set_result, function()
        except BaseException as error:  # noqa: BLE001 - raised again where the tool was called
            setter, value = future.set_exception, error
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
            loop.call_soon_threadsafe(settle, setter, value)

    threading.Thread(target=work, daemon=True).start()
    return await future


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
    schema = _model_of(function).model_json_schema()
    parameters = {key: value for key, value in schema.items() if key != "title"}
    return {"name": function.__name__, "description": description, "parameters": parameters}


@functools.cache
def _model_of(function: Callable[..., Any]) -> Any:
    fields: dict[str, Any] = {}
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        if name == "self":
            continue
        given, empty = parameter.annotation, inspect.Parameter.empty
        annotation = Any if given is empty else given
        default = ... if parameter.default is empty else parameter.default
        fields[name] = (annotation, default)
    return create_model(function.__name__, __config__=ConfigDict(extra="forbid"), **fields)


def _arguments_model(method: Callable[..., Any]) -> Any:
    return _model_of(getattr(method, "__func__", method))
