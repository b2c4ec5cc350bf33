"""Episodes of a policy that is a function, with a tokenizer of bytes."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tests.fakes import Capitals, byte_tokenizer
from turnwise.config import RolloutConfig
from turnwise.engines.base import Completion, Engine, Sampling
from turnwise.engines.scripted import ScriptedEngine
from turnwise.environments.base import Environment
from turnwise.rollout.priority_semaphore import PrioritySemaphore
from turnwise.rollout.runner import RolloutRunner
from turnwise.scaffolds.base import Scaffold
from turnwise.scaffolds.tags import TagsScaffold
from turnwise.types import Action, Observation, Step, Task, Trajectory, Verdict

TOKENIZER = byte_tokenizer()
LOOKUP, ANSWER = "<lookup> France</lookup>", "<answer> Paris</answer>"


def encode(text: str) -> list[int]:
    return list(TOKENIZER(text, add_special_tokens=False)["input_ids"])


def decode(ids: Any) -> str:
    return TOKENIZER.decode(ids if isinstance(ids, list) else ids.tolist())


def scaffold_of(environment: Environment) -> TagsScaffold:
    return TagsScaffold(TOKENIZER, environment.tools(), instructions="")


def rolling(
    environment: Environment,
    policy: Engine | Callable[[str, list[int]], Sequence[int]],
    limits: RolloutConfig,
    seats: int = 4,
    scaffold: Scaffold | None = None,
    **options: Any,
) -> RolloutRunner:
    """Rollouts by an engine, or by a function of session and prompt."""
    engine: Any = ScriptedEngine(policy) if callable(policy) else policy
    scaffold, places = scaffold or scaffold_of(environment), PrioritySemaphore(seats)
    return RolloutRunner(environment, scaffold, engine, limits, places, **options)


class Breaking(Capitals):
    """Raises an error where it is told to, or waits for ever where there is none."""

    def __init__(self, where: str, error: BaseException | None = None) -> None:
        self.where, self.error = where, error

    def fresh(self) -> "Breaking":
        if self.where == "fresh" and self.error:
            raise self.error
        return super().fresh()

    async def reset(self, task: Task, seed: int) -> Observation:
        await self._break("reset")
        return await super().reset(task, seed)

    async def step(self, action: Action) -> Step:
        await self._break("step")
        return await super().step(action)

    async def verify(self, trajectory: Trajectory) -> Verdict:
        await self._break("verify")
        return await super().verify(trajectory)

    async def close(self) -> None:
        await self._break("close")

    async def _break(self, where: str) -> None:
        if self.where == where and self.error:
            raise self.error
        if self.where == where:
            await asyncio.Event().wait()


class Sampled(ScriptedEngine):
    """Asks a function for each turn of a prompt."""

    def __init__(self, sample: Callable[[Sequence[int]], Awaitable[Completion]]) -> None:
        super().__init__(lambda session, prompt: [])
        self.sample = sample

    async def generate(
        self, prompt: Sequence[int], sampling: Sampling, *, session: str, **_: Any
    ) -> Completion:
        return await self.sample(prompt)
