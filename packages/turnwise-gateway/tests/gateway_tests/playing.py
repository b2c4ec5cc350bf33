"""Episodes of an agent, played by a runner, for tests."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from tests.fakes import Capitals
from turnwise.config import RolloutConfig, ScaffoldConfig
from turnwise.environments.base import Environment
from turnwise.rollout.priority_semaphore import PrioritySemaphore
from turnwise.rollout.runner import RolloutRunner
from turnwise.scaffolds.base import Scaffold
from turnwise.scaffolds.tags import TagsScaffold
from turnwise.types import Group, Task
from turnwise_gateway.agent_episode import AgentHost
from turnwise_gateway.settings import FunctionAgent

LIMITS = RolloutConfig(
    max_turns=4, max_turn_tokens=80, max_tokens=700, max_ungraded_share=1.0, max_seconds=20
)
SCAFFOLD = ScaffoldConfig(options={"instructions": ""})
RIGHT = "<answer> Paris</answer>"
ASKING = """
import json, os, sys, time, urllib.request
def post(path, body, root=os.environ.get("TURNWISE_GATEWAY"), **headers):
    headers = {"content-type": "application/json", **headers}
    asked = urllib.request.Request(f"{root}{path}", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(asked) as reply:
        return json.load(reply)
def ask(words="Capital of France?", *where, model="policy", **headers):
    body = {"model": model, "messages": [{"role": "user", "content": words}]}
    said = post("/v1/chat/completions", body, *where, **headers)
    return said["choices"][0]["message"]["content"]
"""
"""The first lines of a program that asks over HTTP."""


def limits(**changes: float) -> RolloutConfig:
    return LIMITS.model_copy(update=changes)


def written(folder: Path, lines: str, **settings: Any) -> FunctionAgent:
    """An agent of a file with these lines."""
    file = folder / "agent.py"
    file.write_text(lines)
    return FunctionAgent(run=f"{file}:run", **settings)


def group_of(
    host: AgentHost,
    engine: Any,
    environment: Environment | None = None,
    limits: RolloutConfig = LIMITS,
    *,
    episodes: int = 1,
    places: int = 50,
    tasks: Sequence[Task] = (),
    scaffold: Scaffold | None = None,
    meanwhile: Callable[[], Awaitable[None]] | None = None,
) -> Group:
    """Episodes of one task, one capital if none is given; the host has ended then."""
    environment = environment or Capitals()
    scaffold = scaffold or TagsScaffold(host.tokenizer, environment.tools(), instructions="")
    place = PrioritySemaphore(places)
    runner = RolloutRunner(environment, scaffold, engine, limits, place, player=host)
    engine.host = host

    async def work() -> Group:
        tasks_ = tasks or Capitals().tasks("train")[:1]
        playing = asyncio.create_task(runner.collect(tasks_, episodes, 0, "test"))
        try:
            if meanwhile is not None:
                await meanwhile()
            (group,) = await playing
        finally:
            playing.cancel()
            await host.stop()
        return group

    return asyncio.run(work())
