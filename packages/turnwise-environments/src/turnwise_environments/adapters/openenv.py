"""Environments behind a server of OpenEnv (openenv-core): reset, step and reward over a WebSocket.

An episode is a session of its own, and an action of the server's schema is the one tool, `act`. The
protocol is spoken here, as openenv-core 0.3 has it: its client makes one RuntimeError of an action
that does not fit and of a server that fails, and brings some 50 packages; the extra `openenv` is
the WebSocket alone. Each reward is the turn's; success is a sum of rewards that is high enough. The
agent reads why an action does not fit the schema; a server that is gone, full, silent or whose
environment raises is infrastructure. The protocol has no snapshots.
"""

import asyncio
import contextlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx2

from turnwise.environments.base import Environment, EnvironmentSpec
from turnwise.environments.tasksets import SPLITS, Split, TaskFile, Tasks, TaskSet, every
from turnwise.errors import ConfigError, InfrastructureError, ToolError
from turnwise.options import Options
from turnwise.ranges import Count, Seconds
from turnwise.rewards.parts import RewardPart
from turnwise.seeds import derive
from turnwise.tokens import Source
from turnwise.tools.tool import Tool, readable
from turnwise.types import (
    Action,
    Observation,
    Step,
    Task,
    ToolCall,
    ToolResult,
    Trajectory,
    Verdict,
)
from turnwise_environments.common import check_installed, identity

SECONDS, CLOSE_SECONDS = 30.0, 5.0
LARGEST_MESSAGE = 16 << 20
"""The most bytes of a message."""
AGENTS = "VALIDATION_ERROR"
"""The server's code for an action that does not fit its schema."""


@dataclass(frozen=True)
class Seeds(Options):
    """`count` seeds in each split, drawn by name, so that no split has the other's."""

    count: Count = 1000

    def load(self, prompt: str) -> Tasks:
        tasks: dict[Split, list[Task]] = {}
        for split in SPLITS:
            numbers = (derive("openenv", split, place) % 2**31 for place in range(self.count))
            tasks[split] = [_task({"seed": number}, prompt) for number in dict.fromkeys(numbers)]
        known = {task.id for task in tasks["train"]}
        tasks["heldout"] = [task for task in tasks["heldout"] if task.id not in known]
        return tasks


STANDARD = Seeds()


@dataclass(frozen=True)
class ResetFile(TaskFile):
    """The resets of a file: objects, the arguments of each."""

    def load(self, prompt: str) -> Tasks:
        """Raises DataError for a file that is broken."""
        return TaskSet.read(self, lambda reset, _: _task(reset, prompt), "resets").tasks


class OpenEnv(Environment):
    """One tool, `act`, whose arguments are the fields of the server's actions. Example:
    `OpenEnv(url="http://127.0.0.1:8000", answer_field="message")`."""

    _session: "Session | None" = None

    facts = EnvironmentSpec(
        "openenv", "1", turn_rewards=True, parts={"total": RewardPart(description="sum of rewards")}
    )

    def __init__(
        self,
        url: str,
        tasks: Seeds | ResetFile = STANDARD,
        prompt: str = "",
        answer_field: str = "",
        success_at: float = 1.0,
        seconds: Seconds = SECONDS,
    ) -> None:
        """`url` is a server's that runs. A task is the arguments of a reset. `prompt` stands before
        the first observation. An answer ends the episode; with `answer_field` it is an action with
        that field instead. Success is a sum of rewards of `success_at` or more. The server has
        `seconds` for each reply."""
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"openenv: url {url!r}: write http://host:port")
        check_installed("websockets", "openenv")
        self._url, self._seconds = url.rstrip("/"), seconds
        self._answer_field, self._success_at = answer_field, success_at
        self._schema = _action_schema(self._url, seconds)
        if answer_field and answer_field not in self._schema["properties"]:
            fields = ", ".join(self._schema["properties"])
            raise ConfigError(f"openenv: answer_field {answer_field!r}: the fields are {fields}")
        self.task_set = TaskSet.of(tasks.load(prompt), content=self._content)

    def _content(self, tasks: Tasks) -> str:
        return json.dumps([self._schema, [task.id for _, task in every(tasks)]], sort_keys=True)

    def tools(self) -> list[Tool]:
        words = "Act in the environment."
        schema = {"name": "act", "description": words, "parameters": self._schema}
        return [Tool("act", words, schema, self._act)]

    async def reset(self, task: Task, seed: int) -> Observation:
        """Open a session. A reset without a seed of its own gets none."""
        del seed
        await self.close()
        session = Session(self._url, self._seconds)
        self._session = session
        await session.open()
        try:
            begun = await session.ask({"type": "reset", "data": dict(task.data["reset"])})
        except ToolError as error:
            raise InfrastructureError(f"openenv: {self._url}: reset: {error}") from None
        text = shown(begun.observation)
        return Observation(f"{task.prompt}\n{text}".strip(), Source.USER)

    async def step(self, action: Action) -> Step:
        """Each call is a step of the server's, in order, up to one that ends the episode."""
        calls = action.calls
        if action.answer is not None:
            if not self._answer_field:
                return Step(done=True)
            calls = (ToolCall("act", {self._answer_field: action.answer}),)
        results: list[ToolResult] = []
        rewards: list[float] = []
        done = False
        for call in calls:
            result, reply = await self._stepped(call)
            results.append(result)
            if reply is not None:
                rewards += [] if reply.reward is None else [reply.reward]
                done = reply.done
            if done:
                break
        text = "\n".join(result.content for result in results)
        reward = sum(rewards) if rewards else None
        return Step(Observation(text), tuple(results), done=done, reward=reward)

    async def _stepped(self, call: ToolCall) -> "tuple[ToolResult, Reply | None]":
        if call.name != "act":  # one that the recipe added, or none
            return await self._run(call), None
        try:
            reply = await self._asked(call.arguments)
        except ToolError as error:
            return ToolResult(call, f"Error: {error}", False), None
        return ToolResult(call, shown(reply.observation)), reply

    async def _asked(self, arguments: Mapping[str, Any]) -> "Reply":
        if self._session is None:
            raise InfrastructureError(f"openenv: {self._url}: there is no session")
        return await self._session.ask({"type": "step", "data": dict(arguments)})

    async def _act(self, **arguments: Any) -> str:
        return shown((await self._asked(arguments)).observation)

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """Success is a sum of rewards of `success_at` or more; the verdict's own is 0."""
        steps = [turn.step for turn in trajectory.turns if turn.step is not None]
        total = sum(step.reward for step in steps if step.reward is not None)
        return Verdict(0.0, total >= self._success_at, {"total": total}, f"total {total:g}")

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()


@dataclass(frozen=True)
class Reply:
    observation: Mapping[str, Any]
    reward: float | None
    done: bool


class Session:
    """One connection, which is one episode's environment on the server."""

    def __init__(self, url: str, seconds: float) -> None:
        self._url, self._seconds = url, seconds
        self._socket: Any = None

    async def open(self) -> None:
        """Raises InfrastructureError where there is no connection in time."""
        from websockets.asyncio.client import connect
        from websockets.exceptions import WebSocketException

        address = "ws" + self._url.removeprefix("http") + "/ws"
        try:
            async with asyncio.timeout(self._seconds):
                self._socket = await connect(address, max_size=LARGEST_MESSAGE, proxy=None)
        except (OSError, TimeoutError, WebSocketException) as error:
            raise self._lost(error) from error

    async def ask(self, message: Mapping[str, Any]) -> Reply:
        """The reply to a message. Raises ToolError for what does not fit the server's schema,
        InfrastructureError for any other error, or no reply in time."""
        from websockets.exceptions import WebSocketException

        try:
            async with asyncio.timeout(self._seconds):
                await self._socket.send(json.dumps(message, default=str))
                answer = json.loads(await self._socket.recv())
        except (OSError, TimeoutError, WebSocketException) as error:
            raise self._lost(error) from error
        except (ValueError, RecursionError):
            raise InfrastructureError(f"openenv: {self._url}: a reply that is no JSON") from None
        if not isinstance(answer, dict) or not isinstance(answer.get("data"), dict):
            raise InfrastructureError(f"openenv: {self._url}: a reply that is no message")
        kind, data = answer.get("type"), answer["data"]
        if kind == "observation":
            return _reply(data, self._url)
        if data.get("code") == AGENTS:
            raise ToolError(_mistakes(data))
        raise InfrastructureError(
            f"openenv: {self._url}: {data.get('code', kind)}: {data.get('message', '')}"
        )

    async def close(self) -> None:
        if self._socket is None:
            return
        from websockets.exceptions import WebSocketException

        with contextlib.suppress(OSError, TimeoutError, WebSocketException):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._socket.send('{"type": "close"}')
                await self._socket.close()
        self._socket = None

    def _lost(self, error: Exception) -> InfrastructureError:
        silent = isinstance(error, TimeoutError)
        reason = f"no reply within {self._seconds:g} s" if silent else str(error)
        return InfrastructureError(f"openenv: {self._url}: {reason or type(error).__name__}")


def shown(observation: Mapping[str, Any]) -> str:
    """An observation as text: a single field's text as it is, else a line for each field."""
    texts = {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in observation.items()
    }
    text = "\n".join(texts.values() if len(texts) == 1 else map(": ".join, texts.items()))
    return readable(text)  # a server may say megabytes


def _reply(data: Mapping[str, Any], url: str) -> Reply:
    observation, reward = data.get("observation"), data.get("reward")
    if not isinstance(observation, Mapping):
        raise InfrastructureError(f"openenv: {url}: a reply without an observation")
    if reward is not None and not (isinstance(reward, int | float) and math.isfinite(reward)):
        raise InfrastructureError(f"openenv: {url}: the reward is {reward!r}")
    number = None if reward is None else float(reward)
    return Reply(observation, number, bool(data.get("done")))


def _mistakes(data: Mapping[str, Any]) -> str:
    try:
        first = data["errors"][0]
        where = ".".join(str(part) for part in first["loc"])
        return f"act: argument {where!r}: {first['msg']}"
    except (LookupError, TypeError):
        return f"act: {data.get('message', '')}"


def _action_schema(url: str, seconds: float) -> dict[str, Any]:
    try:
        with httpx2.Client(timeout=seconds, trust_env=False) as http:
            answer = http.get(f"{url}/schema")
        found = answer.json()["action"] if answer.status_code == 200 else None
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise ConfigError(f"openenv: no server answers at {url}: {error}") from None
    except (ValueError, LookupError, TypeError):
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("properties"), dict):
        raise ConfigError(f"openenv: {url}/schema does not answer as an OpenEnv server does")
    properties = {key: value for key, value in found["properties"].items() if key != "metadata"}
    kept = {key: value for key, value in found.items() if key not in ("title", "description")}
    return {**kept, "properties": properties}


def _task(reset: Mapping[str, Any], prompt: str) -> Task:
    return Task(identity(dict(reset)), prompt, data={"reset": dict(reset)})
