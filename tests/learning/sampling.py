"""Episodes that an engine sampled of tiny models, with what it records of tokens, and updates by
them."""

import asyncio
import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tests.fakes import byte_tokenizer
from turnwise.algorithms import make_algorithm
from turnwise.config import LearningConfig
from turnwise.engines.base import Sampling
from turnwise.engines.embedded import EmbeddedEngine
from turnwise.learning.credits import Credits
from turnwise.learning.policy import PolicyLearner
from turnwise.tokens import Segment, Source, Tokens
from turnwise.types import Group, Outcome, Task, Trajectory, Verdict

PROMPTS = ([70, 12, 5, 41, 120, 33], [70, 12, 5, 41, 120, 33], [9, 8, 7])


def played(
    model: Any, deterministic: bool = True, turns: int = 2, experts: bool = False, **options: Any
) -> list[Tokens]:
    """Three episodes, two of which begin with the same prompt."""

    async def episode(engine: EmbeddedEngine, number: int) -> Tokens:
        tokens = Tokens.empty().with_segments([Segment(PROMPTS[number], Source.USER)], 0)
        for turn in range(turns):
            first = tokens.routed if experts else None
            sampling = Sampling(9, seed=10 * number + turn, experts_from=first, **options)
            found = await engine.generate(tokens.ids.tolist(), sampling, session=str(number))
            sampled = found.tokens, found.logprobs, found.version
            tokens = tokens.with_sampled(*sampled, turn, found.experts, found.kept)
            if turn + 1 < turns:
                tokens = tokens.with_segments([Segment([44, 45, 46], Source.TOOL)], turn)
        engine.close(str(number))
        return tokens

    async def play() -> list[Tokens]:
        settings = {"max_sequences": 2, "max_tokens": 100, "deterministic": deterministic}
        engine = EmbeddedEngine(model, byte_tokenizer(), **settings)
        for number in range(len(PROMPTS)):
            engine.open(str(number))
        return list(await asyncio.gather(*(episode(engine, n) for n in range(len(PROMPTS)))))

    return asyncio.run(play())


def groups_of(played: Sequence[Tokens]) -> list[Group]:
    """A group of successes."""
    given = Outcome.SUCCESS, Verdict(1.0, True)
    task = Task("a", "a")
    return [
        Group(
            "a", tuple(Trajectory(task, "a", n, 0, one, (), *given) for n, one in enumerate(played))
        )
    ]


def updated(
    model: Any,
    played: Sequence[Tokens],
    options: Mapping[str, float] = {},
    algorithm: Mapping[str, Any] = {},
    **settings: Any,
) -> dict[str, float]:
    """The metrics of one update of a copy, whose advantages are 1."""
    groups, made = groups_of(played), make_algorithm("grpo", algorithm)
    members = groups[0].graded
    advantages = {one.id: one.tokens.mask.astype(np.float32) for one in members}
    reference = copy.deepcopy(model) if made.has_reference else None
    given = copy.deepcopy(model), reference, LearningConfig(**settings), made
    trained = PolicyLearner(*given, options.get("temperature", 1.0))
    return trained.update(groups, Credits(advantages, frozenset(advantages))).metrics
