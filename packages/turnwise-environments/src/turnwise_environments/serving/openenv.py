"""An environment as an OpenEnv server: reset, step, state and close over a WebSocket, each
connection a client; its schemas by HTTP.

The protocol is that of openenv-core 0.3, spoken by websockets alone (extra `openenv`). An action
names a tool and its arguments, or is an answer; the rewards of an episode's steps add up to its
reward. A reset names a task, or a seed by which one is chosen.
"""

import asyncio
import contextlib
import json
import logging
import random
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, model_validator

from turnwise.environments.base import Environment, Split
from turnwise.errors import ToolError
from turnwise.types import Action, ToolCall
from turnwise_environments.serving.offer import Offer, Reply, Session, verdict_of

LARGEST_MESSAGE = 16 << 20
"""The most bytes of a message."""
FAREWELL_SECONDS = 5.0
FULL, INVALID, JSON, UNKNOWN = (
    "CAPACITY_REACHED",
    "VALIDATION_ERROR",
    "INVALID_JSON",
    "UNKNOWN_TYPE",
)
FAILED, SESSION = "EXECUTION_ERROR", "SESSION_ERROR"
"""Codes of the protocol's errors."""


class Reset(BaseModel):
    model_config = ConfigDict(extra="forbid")

    seed: int | None = Field(None, ge=0)
    """The environment's; without `task` it chooses the task too. Any, if it is not given."""
    episode_id: str | None = Field(None, max_length=255)
    task: int | None = Field(None, ge=0)
    split: Split = "train"


class ActionBase(BaseModel):
    model_config = ConfigDict(extra="forbid")

    arguments: dict[str, Any] = Field(default_factory=dict)
    answer: str | None = Field(
        None, description="The answer, or words to the user where the task has one; no tool then."
    )
    metadata: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (getattr(self, "tool", None) is None) == (self.answer is None):
            raise ValueError("give either a tool or an answer")
        return self


class Seen(BaseModel):
    text: str


class State(BaseModel):
    """The state of a session: the verdict's fields are there when the episode is over."""

    model_config = ConfigDict(extra="allow")

    episode_id: str | None = None
    step_count: int = 0


def action_model(environment: Environment) -> type[ActionBase]:
    """The type of an environment's actions. Its schema tells all tools."""
    tools = environment.tools()
    told = "; ".join(
        f"{tool.name}{json.dumps(tool.schema['parameters'].get('properties', {}))}: "
        f"{tool.description}"
        for tool in tools
    )
    names: Any = Literal[tuple(tool.name for tool in tools)] | None if tools else None
    arguments: Any = Field(default_factory=dict, description=f"The tool's arguments. Tools: {told}")
    fields: dict[str, Any] = {
        "tool": (names, Field(None, description="The tool to call; no answer then.")),
        "arguments": (dict[str, Any], arguments),
    }
    return create_model(f"{environment.spec.name}_action", __base__=ActionBase, **fields)


class _Refused(Exception):
    """A message that gets an error for a reply: its code, and words."""


def _error(code: str, message: str, **more: Any) -> dict[str, Any]:
    return {"type": "error", "data": {"message": message, "code": code, **more}}


class OpenEnvClient:
    def __init__(self, offer: Offer, kind: type[ActionBase]) -> None:
        self.session = Session(offer)
        self._offer, self._kind = offer, kind
        self._name: str | None = None

    async def answer(self, text: str | bytes) -> dict[str, Any] | None:
        """The reply to a message; None for `close`."""
        try:
            return await self._answer(text)
        except _Refused as refused:
            return _error(*refused.args)
        except ValidationError as error:
            errors = error.errors(include_url=False, include_context=False, include_input=False)
            return _error(INVALID, "Invalid message", errors=errors)
        except ToolError as error:
            return _error(FAILED, str(error))

    async def _answer(self, text: str | bytes) -> dict[str, Any] | None:
        try:
            message = json.loads(text)
        except (ValueError, RecursionError):
            raise _Refused(JSON, "Invalid JSON") from None
        kind = message.get("type") if isinstance(message, dict) else None
        if kind == "close":
            return None
        if kind == "state":
            return {"type": "state", "data": self._state()}
        if kind == "reset":
            return self._told(await self._reset(Reset.model_validate(message.get("data", {}))))
        if kind == "step":
            return self._told(await self._step(self._kind.model_validate(message.get("data"))))
        raise _Refused(UNKNOWN, f"Unknown message type: {kind}")

    async def _reset(self, wanted: Reset) -> Reply:
        seed, number = wanted.seed, wanted.task
        if seed is None:
            seed = random.SystemRandom().randrange(2**31)
        if number is None:
            number = seed % max(self._offer.count(wanted.split), 1)
        self._name = wanted.episode_id
        return await self.session.begin(number, wanted.split, seed)

    async def _step(self, action: ActionBase) -> Reply:
        if action.answer is not None:
            return await self.session.act(Action(action.answer, answer=action.answer))
        name = str(getattr(action, "tool", ""))
        return await self.session.act(Action("", calls=(ToolCall(name, action.arguments),)))

    def _told(self, reply: Reply) -> dict[str, Any]:
        if reply.ended is not None and reply.ended.reward is None:
            raise _Refused(FAILED, f"the episode is over without a grade: {reply.ended.outcome}")
        data = {
            "observation": {"text": reply.observation.content},
            "reward": reply.reward,
            "done": reply.ended is not None,
        }
        return {"type": "observation", "data": data}

    def _state(self) -> dict[str, Any]:
        trajectory = self.session.trajectory
        over = trajectory is not None and not self.session.running
        told = verdict_of(trajectory) if trajectory is not None and over else {}
        task = {} if trajectory is None else {"task": trajectory.task.id}
        return {"episode_id": self._name, "step_count": self.session.steps} | task | told


@contextlib.asynccontextmanager
async def serving_openenv(offer: Offer, host: str, port: int) -> AsyncIterator[str]:
    """Serve inside; gives the address. Port 0 is any free one. Raises OSError for one that is
    taken."""
    from websockets.asyncio.server import serve

    kind = action_model(offer.environment)
    pages = _pages(offer.environment, kind)
    connected = 0

    def page(connection: Any, request: Any) -> Any:
        """The reply to a request by HTTP; None lets a WebSocket begin."""
        path = request.path.partition("?")[0]
        if path == "/ws":
            return None
        if path not in pages:
            return connection.respond(HTTPStatus.NOT_FOUND, f"there is no {path}\n")
        answer = connection.respond(HTTPStatus.OK, json.dumps(pages[path]))
        del answer.headers["Content-Type"]  # to set a header adds another one
        answer.headers["Content-Type"] = "application/json"
        return answer

    async def converse(connection: Any) -> None:
        nonlocal connected
        if connected >= offer.sessions:
            await _turn_away(connection, f"{offer.sessions} sessions are open, no more may be")
            return
        connected += 1
        client = OpenEnvClient(offer, kind)
        try:
            await _conversation(connection, client, offer.patience)
        finally:
            connected -= 1
            await client.session.close()

    quiet = logging.getLogger("turnwise_environments.serving.openenv")
    quiet.addHandler(logging.NullHandler())
    quiet.propagate = False
    server = await serve(
        converse,
        host,
        port,
        process_request=page,
        # A browser says where its page is from: no page of the web may play here.
        origins=[None],
        max_size=LARGEST_MESSAGE,
        # A trainer that computes does not answer pings; a silent one is dropped all the same.
        ping_interval=None,
        logger=quiet,
    )
    try:
        name = f"[{host}]" if ":" in host else host
        yield f"http://{name}:{server.sockets[0].getsockname()[1]}"
    finally:
        await offer.close()
        server.close()
        await server.wait_closed()


async def _turn_away(connection: Any, why: str) -> None:
    """Say that there is no room, and wait for the client's first message: one that sends before it
    reads would not be told otherwise."""
    from websockets.exceptions import ConnectionClosed

    with contextlib.suppress(ConnectionClosed, TimeoutError):
        async with asyncio.timeout(FAREWELL_SECONDS):
            await connection.send(json.dumps(_error(FULL, why)))
            await connection.recv()


async def _conversation(connection: Any, client: OpenEnvClient, patience: float) -> None:
    from websockets.exceptions import ConnectionClosed

    with contextlib.suppress(ConnectionClosed):
        while True:
            try:
                async with asyncio.timeout(patience):
                    text = await connection.recv()
            except TimeoutError:
                silent = _error(SESSION, f"no message within {patience:g} s")
                await connection.send(json.dumps(silent))
                return
            reply = await client.answer(text)
            if reply is None:
                return
            await connection.send(json.dumps(reply))


def _pages(environment: Environment, kind: type[ActionBase]) -> dict[str, Any]:
    spec = environment.spec
    tools = [dict(tool.schema) for tool in environment.tools()]
    return {
        "/health": {"status": "healthy"},
        "/schema": {
            "action": kind.model_json_schema(),
            "observation": Seen.model_json_schema(),
            "state": State.model_json_schema(),
        },
        "/metadata": {
            "name": spec.name,
            "version": spec.version,
            "description": f"turnwise's environment {spec.name}",
            "readme_content": "Tools:\n" + "\n".join(json.dumps(tool) for tool in tools),
        },
    }
