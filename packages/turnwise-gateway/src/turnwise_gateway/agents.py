"""Agents of the user's own: a function in this process, or a program, for each episode."""

import asyncio
import inspect
import math
import shutil
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from turnwise.config import Recipe
from turnwise.errors import ConfigError, located
from turnwise.interrupt import ANYTHING, calls_user_code, raise_cancelled
from turnwise.registry import load_function
from turnwise.tools import tool
from turnwise.types import Task, Verdict
from turnwise_gateway import spans
from turnwise_gateway.address import Address
from turnwise_gateway.bounds import check_depth
from turnwise_gateway.dialects import chat_completions
from turnwise_gateway.programs import CommandPlayer, Returned
from turnwise_gateway.remote import RemotePlayer
from turnwise_gateway.requests import RefusedError
from turnwise_gateway.sandboxed import SandboxedPlayer
from turnwise_gateway.session import MODEL, Session
from turnwise_gateway.settings import (
    AgentConfig,
    AnyAgentConfig,
    CommandAgent,
    FrozenPolicy,
    FunctionAgent,
    RemoteAgent,
)

RunTool = Callable[[str, Mapping[str, Any]], Coroutine[Any, Any, str]]
"""Runs one of the environment's tools, by its name, with arguments."""
Found = TypeVar("Found")
TABLE = ("answer", "reward", "success", "parts", "roles")


@dataclass(frozen=True)
class Model:
    """The policy, for a function that is an agent.

    >>> async def run(task, model):
    ...     reply = await model.chat([{"role": "user", "content": task.prompt}])
    ...     return reply["choices"][0]["message"]["content"]
    """

    base_url: str
    anthropic_base_url: str
    api_key: str
    name: str = MODEL
    """The model's name in requests: the first role."""
    roles: Sequence[str] = (MODEL,)
    """All of them."""
    folder: Path | None = None
    """The environment's folder for this episode, if it has one."""
    _session: Session | None = field(default=None, repr=False)
    _run_tool: RunTool | None = field(default=None, repr=False)
    _loop: asyncio.AbstractEventLoop | None = field(default=None, repr=False)

    async def call(self, tool: str, /, **arguments: Any) -> str:
        """Run one of the environment's tools, as `await model.call("book", room=7)`, and return
        its result, which tells of a mistake in the arguments too."""
        assert self._run_tool is not None  # the episode gives it
        return await self._in_run(self._run_tool(tool, arguments))

    def call_sync(self, tool: str, /, **arguments: Any) -> str:
        """Run a tool as `call` does, for an agent that is a plain function, in its thread."""
        assert self._loop is not None  # the episode gives it
        calling = self.call(tool, **arguments)
        return asyncio.run_coroutine_threadsafe(calling, self._loop).result()

    async def chat(
        self, messages: list[Any], tools: list[Any] | None = None, role: str = ""
    ) -> dict[str, Any]:
        """A chat completion, as OpenAI's API has it, without a client; `role` is one of the
        recipe's, the first if not given. Raises RefusedError for what the gateway refuses."""
        assert self._session is not None  # the gateway makes them
        body: dict[str, Any] = {"model": role or self.name, "messages": messages}
        with self._session.counting_refusals():
            check_depth([messages, tools])
            request = chat_completions.read(body | ({"tools": tools} if tools else {}))
        reply = await self._in_run(spans.asked(self._session, request))
        self._session.arrived(reply)
        answer: dict[str, Any] = chat_completions.body(request, reply)
        return answer

    async def _in_run(self, work: Coroutine[Any, Any, Found]) -> Found:
        """Await work in the run's loop, to which its engine belongs: a plain function may have
        begun one of its own."""
        assert self._loop is not None  # the episode gives it
        if asyncio.get_running_loop() is self._loop:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))


class Agent(Protocol):
    """The seam: plays one task, with the policy at an address."""

    async def play(
        self, task: Task, address: Address, session: Session, folder: Path | None = None
    ) -> Returned:
        """Work until done, in the environment's folder if it has one. Cancelled, it ends at once,
        with all that it has started."""
        ...


def make_agent(config: AnyAgentConfig) -> Agent:
    """Raises ConfigError for a function that is not there, or takes other arguments."""
    if isinstance(config, RemoteAgent):
        return RemotePlayer(config)
    if isinstance(config, FunctionAgent):
        return FunctionPlayer(load_function(config.run, "agent"), config.run)
    if config.sandbox is not None:
        return SandboxedPlayer(config.command, config.sandbox)
    return CommandPlayer(config.command)


def check_agent(recipe: Recipe) -> None:
    """Raise ConfigError for an agent that is not there: a function, a program, a sandbox, or a
    checkpoint of one of its roles."""
    config = recipe.find(AgentConfig)
    if config is None:
        return
    make_agent(cast(AnyAgentConfig, config))
    for name, role in config.roles.items():
        if isinstance(role.policy, FrozenPolicy) and not Path(role.policy.checkpoint).is_dir():
            where = f"agent.roles.{name}.policy.checkpoint {role.policy.checkpoint}"
            raise ConfigError(f"{where}: there is no such folder")
    if isinstance(config, CommandAgent) and config.sandbox is None:
        program = config.command[0]
        # One with a slash may lie in the folder of an episode.
        if "/" not in program and shutil.which(program) is None:
            raise ConfigError(f"agent.command: there is no program {program!r} (PATH)")


class FunctionPlayer:
    """A function of the user's: awaited if it is asynchronous, else in a thread of its own."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        try:
            inspect.signature(function).bind(None, None)
        except TypeError as error:
            raise ConfigError(f"agent.run {name}: write run(task, model): {error}") from None
        self._function = function

    async def play(
        self,
        task: Task,
        address: Address,
        session: Session,
        folder: Path | None = None,
        run_tool: RunTool | None = None,
    ) -> Returned:
        model = Model(
            address.openai,
            address.root,
            address.secret,
            session.names[0],
            session.names,
            folder,
            session,
            run_tool,
            asyncio.get_running_loop(),
        )
        try:
            return _returned(await self.called(task, model))
        except RefusedError as refused:
            return Returned(error=refused.message)
        except ANYTHING as error:
            raise_cancelled(error)
            return Returned(error=located(error))

    @calls_user_code
    async def called(self, task: Task, model: Model) -> Any:
        return await tool.called(partial(self._function, task, model))


def _returned(value: Any) -> Returned:
    """The meaning of what a function returned: nothing, an answer, a reward, or a table of both.
    Raises TypeError for anything else."""
    if value is None or isinstance(value, str):
        return Returned(answer=value)
    if isinstance(value, bool | int | float):
        return Returned(reward=_reward(value))
    if isinstance(value, Mapping) and set(value) <= set(TABLE):
        given = None
        if "reward" in value:
            given = _reward(**{name: value[name] for name in TABLE[1:] if name in value})
        answer = value.get("answer")
        return Returned(None if answer is None else str(answer), given)
    raise TypeError(
        "an agent returns nothing, an answer, a reward, or a table with some of "
        f"{', '.join(TABLE)}, not {value!r}"
    )


def _reward(reward: Any, success: Any = None, parts: Any = None, roles: Any = None) -> Verdict:
    number = float(reward)
    if not math.isfinite(number):
        raise TypeError(f"the reward is {number}")
    succeeded = number >= 1 if success is None else bool(success)
    return Verdict(number, succeeded, _numbers(parts), roles=_numbers(roles))


def _numbers(given: Any) -> dict[str, float]:
    return {str(name): float(number) for name, number in (given or {}).items()}
