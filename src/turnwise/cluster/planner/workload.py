"""Episodes as planners see them: turns of so many tokens, and tools that take so many seconds.

Not here: when what is played (`simulation.py`), and the reading of runs (`measured.py`).
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, log, sqrt
from statistics import fmean
from typing import NamedTuple


class PlannedTurn(NamedTuple):
    """One turn of an episode."""

    read: int
    """Tokens that the model is given before it: prompt, observation."""
    sampled: int
    calls: int
    """Tool calls after it, one after the other."""


Episode = tuple[PlannedTurn, ...]


@dataclass(frozen=True)
class ToolTimes:
    """Seconds of a tool call: a log-normal distribution, as in `environment.latency`."""

    mean: float = 0.0
    spread: float = 0.0
    """Standard deviation of the logarithm."""

    def draw(self, luck: random.Random, calls: int) -> float:
        """Seconds of so many calls, one after the other."""
        if not self.mean:
            return 0.0
        middle = log(self.mean) - self.spread**2 / 2
        return sum(exp(luck.gauss(middle, self.spread)) for _ in range(calls))


@dataclass(frozen=True)
class Workload:
    """The episodes of a step: how many, drawn from which ones."""

    episodes: int
    """Episodes of one step."""
    kinds: Sequence[Episode]
    """Episodes that are drawn from, each as likely."""
    tools: ToolTimes = ToolTimes()
    success: float | None = None
    """Share of successes; None where it is not known."""

    @property
    def read(self) -> float:
        """Tokens that an episode reads, mean."""
        return fmean(sum(turn.read for turn in kind) for kind in self.kinds)

    @property
    def sampled(self) -> float:
        """Tokens that an episode samples, mean."""
        return fmean(sum(turn.sampled for turn in kind) for kind in self.kinds)

    @property
    def tokens(self) -> float:
        """Tokens of an episode, mean."""
        return self.read + self.sampled

    @property
    def turns(self) -> float:
        """Turns of an episode, mean."""
        return fmean(len(kind) for kind in self.kinds)

    @property
    def calls(self) -> float:
        """Tool calls of an episode, mean."""
        return fmean(sum(turn.calls for turn in kind) for kind in self.kinds)

    @property
    def context(self) -> float:
        """Tokens before a sampled token, mean over sampled tokens: what its attention reads."""
        total = weight = 0.0
        for kind in self.kinds:
            length = 0.0
            for turn in kind:
                length += turn.read
                total += turn.sampled * (length + turn.sampled / 2)
                weight += turn.sampled
                length += turn.sampled
        return total / max(weight, 1.0)

    @property
    def longest(self) -> int:
        """Tokens of the longest episode."""
        return max(sum(turn.read + turn.sampled for turn in kind) for kind in self.kinds)

    def draw(self, step: int, seed: int) -> list[Episode]:
        """The episodes of a step. The same ones whatever they are played on: each kind equally
        often, as far as that goes, in a random order."""
        luck = random.Random(f"{seed} {step}")
        whole, rest = divmod(self.episodes, len(self.kinds))
        drawn = list(self.kinds) * whole + luck.sample(list(self.kinds), rest)
        luck.shuffle(drawn)
        return drawn

    def thinned(self, episodes: int) -> "Workload":
        """Fewer episodes of the same kinds."""
        return replace(self, episodes=min(episodes, self.episodes))


@dataclass(frozen=True)
class Stated:
    """Distributions of an episode that are stated, where no run has measured any. Each is
    log-normal: its mean, and the standard deviation of its logarithm, which is `spread` for all."""

    prompt: int
    turns: float
    turn_tokens: float
    observation: float
    most_turns: int
    most_turn_tokens: int
    spread: float = 0.5

    def episodes(self, count: int, seed: int = 0) -> list[Episode]:
        """Draw episodes; a call follows each turn but the last."""
        luck = random.Random(seed)
        return [self._episode(luck) for _ in range(count)]

    def _episode(self, luck: random.Random) -> Episode:
        turns = self._draw(luck, self.turns, self.most_turns)
        return tuple(
            PlannedTurn(
                read=self.prompt if turn == 0 else round(self.observation),
                sampled=self._draw(luck, self.turn_tokens, self.most_turn_tokens),
                calls=int(turn + 1 < turns),
            )
            for turn in range(turns)
        )

    def _draw(self, luck: random.Random, mean: float, most: int) -> int:
        drawn = exp(luck.gauss(log(mean) - self.spread**2 / 2, self.spread))
        return max(1, min(most, round(drawn)))


def log_spread(values: Sequence[float]) -> float:
    """Standard deviation of the logarithms of positive numbers; 0 for fewer than two."""
    logs = [log(value) for value in values if value > 0]
    if len(logs) < 2:
        return 0.0
    middle = fmean(logs)
    return sqrt(fmean((one - middle) ** 2 for one in logs))
