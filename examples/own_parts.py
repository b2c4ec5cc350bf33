"""Parts of one's own, each named in a recipe by file and name: an estimator, a part of the reward,
a tool, a scaffold and an engine.

turnwise train examples/thermostat.toml algorithm.estimator=examples/own_parts.py:median
turnwise train examples/thermostat.toml reward.parts.brevity.use=examples/own_parts.py:brevity \
    reward.parts.brevity.weight=0.2
turnwise train examples/thermostat.toml 'environment.tools=["examples/own_parts.py:celsius"]'
turnwise train examples/thermostat.toml scaffold.name=examples/own_parts.py:Brief
turnwise train examples/thermostat.toml engine=examples/own_parts.py:Counting
"""

from typing import Annotated

import numpy as np

from turnwise import tool
from turnwise.algorithms.estimators import of_rewards
from turnwise.algorithms.parts import part
from turnwise.engines.embedded import EmbeddedEngine
from turnwise.ranges import Range
from turnwise.rewards.parts import reward_part
from turnwise.scaffolds.tags import TagsScaffold


@part("estimator", of=of_rewards)
def median(rewards, scale: Annotated[float, Range(0, 10)] = 1.0):
    """Less the median of the group."""
    return scale * (rewards - np.median(rewards))


@reward_part("brevity", 0, 1)
def brevity(trajectory, words: int = 100):
    """1 for nothing written, falling to 0 at so many words."""
    return max(0.0, 1 - len(trajectory.written.split()) / words)


@tool
def celsius(fahrenheit: float) -> str:
    """Convert degrees Fahrenheit to degrees Celsius."""
    return f"{(fahrenheit - 32) / 1.8:.1f}"


class Brief(TagsScaffold):
    """The tags of Search-R1, with one line of instructions."""

    def __init__(self, tokenizer, tools, opening="Use the tools, then answer.\n"):
        super().__init__(tokenizer, tools, instructions=opening)


class Counting(EmbeddedEngine):
    """The embedded engine, which counts the turns that it samples."""

    turns = 0

    async def generate(self, prompt, sampling, *, session, images=()):
        Counting.turns += 1
        return await super().generate(prompt, sampling, session=session, images=images)
