"""A package of a user's own: an environment, a scaffold, an engine, an estimator, an objective."""

import os
from typing import Annotated

import numpy as np

from turnwise.algorithms.estimators import of_rewards
from turnwise.algorithms.parts import part
from turnwise.engines.embedded import EmbeddedEngine
from turnwise.environments.base import Environment
from turnwise.errors import RunStoppedError
from turnwise.ranges import Range
from turnwise.scaffolds.tags import TagsScaffold
from turnwise.types import Task, Verdict

calls = 0


class Letters(Environment):
    """Write letters: the reward is their share."""

    def tasks(self, split):
        names = range(8) if split == "train" else range(8, 12)
        return [Task(f"task {name}", f"Write {name}.") for name in names]

    async def verify(self, trajectory):
        written = trajectory.written
        share = sum(map(str.isalpha, written)) / max(len(written), 1)
        return Verdict(share, share > 0.5)


class Brief(TagsScaffold):
    """Tags without instructions."""

    def __init__(self, tokenizer, tools, opening=""):
        super().__init__(tokenizer, tools, instructions=opening)


class Counting(EmbeddedEngine):
    """The embedded engine, which says how many turns it has sampled when it stops."""

    @classmethod
    def build(cls, setup, greeting="sampled"):
        made = cls(
            setup.model,
            setup.tokenizer,
            max_sequences=setup.config.max_sequences,
            max_tokens=setup.max_tokens,
            deterministic=setup.config.deterministic,
        )
        made.greeting, made.turns = greeting, 0
        return made

    async def generate(self, prompt, sampling, *, session, pictures=()):
        self.turns += 1
        return await super().generate(prompt, sampling, session=session, pictures=pictures)

    async def stop(self):
        await super().stop()
        with open("turns.txt", "a") as file:
            file.write(f"{self.greeting} {self.turns}\n")


@part("estimator", of=of_rewards)
def median(rewards, scale: Annotated[float, Range(0, 10)] = 1.0):
    """Less the median of the group."""
    global calls
    calls += 1
    if calls > int(os.environ.get("OWN_CALLS", "1000000")):
        raise RunStoppedError("the machine is switched off")
    return scale * (rewards - np.median(rewards))


@part("objective")
def quadratic(inputs, bend: Annotated[float, Range(0)] = 0.5):
    """The policy gradient, and a square of the log-ratio."""
    losses = -inputs.ratio * inputs.advantage + bend * inputs.log_ratio**2
    return losses, inputs.advantage != inputs.advantage
