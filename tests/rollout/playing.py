"""Episodes of a policy that is a function, with a tokenizer of bytes."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tests.fakes import byte_tokenizer
from turnwise.config import RolloutConfig
from turnwise.engines.base import Completion, Engine, Sampling
from turnwise.engines.scripted import ScriptedEngine
from turnwise.environments.base import Environment
from turnwise.rollout.priority_semaphore import PrioritySemaphore
from turnwise.rollout.runner import RolloutRunner
from turnwise.scaffolds.tags import TagsScaffold

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
) -> RolloutRunner:
    """Rollouts by an engine, or by a function of session and prompt."""
    engine: Any = ScriptedEngine(policy) if callable(policy) else policy
    scaffold = scaffold_of(environment)
    return RolloutRunner(environment, scaffold, engine, limits, PrioritySemaphore(seats))


class Sampled(ScriptedEngine):
    """Asks a function for each turn of a prompt."""

    def __init__(self, sample: Callable[[Sequence[int]], Awaitable[Completion]]) -> None:
        super().__init__(lambda session, prompt: [])
        self.sample = sample

    async def generate(
        self, prompt: Sequence[int], sampling: Sampling, *, session: str, **_: Any
    ) -> Completion:
        return await self.sample(prompt)
