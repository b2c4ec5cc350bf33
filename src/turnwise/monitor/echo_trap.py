"""Early warning of the Echo Trap: an agent that repeats what once paid, before its reward falls.

The signature (RAGEN, arXiv 2504.20073, section 4): the spread of rewards within groups falls while
the reward no longer rises. An agent that has learned its task looks alike in the first and differs
in the second: its spread falls because it always succeeds. There the entropy falls as well; it is
told, and is no condition, since it also rises when what an agent repeats is no longer trained on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

SPREAD, ENTROPY, REWARD = "reward/group_std", "policy/entropy", "reward/mean"


@dataclass(frozen=True)
class Thresholds:
    """When to warn."""

    window: int = 5
    """Steps that are averaged."""
    spread: float = 0.45
    """To what share of its highest average the spread has fallen."""
    gain: float = 0.02
    """The reward counts as rising when its average is so much above that of the window before, or
    of the first one."""
    solved: float = 0.75
    """Of the highest reward there can be: above it a small spread is success. Runs that learned
    what they can of the demo level off from 0.8 on."""

    @property
    def fewest_steps(self) -> int:
        """Fewer are too few to say that anything fell."""
        return self.window + 1

    @property
    def pause(self) -> int:
        """Steps between two warnings."""
        return 2 * self.window


@dataclass(frozen=True)
class EchoTrap:
    """What was seen. Example: str(trap) is the sentence for people."""

    step: int
    spread: tuple[float, float]
    """Highest and present average."""
    entropy: tuple[float, float]
    reward: tuple[float, float]
    """Average of the window before (or the first), and of the last one."""

    def __str__(self) -> str:
        return (
            f"Echo Trap: at step {self.step} the spread of rewards within groups has fallen from "
            f"{self.spread[0]:.3f} to {self.spread[1]:.3f}, while the reward stays at "
            f"{self.reward[1]:.3f} (before: {self.reward[0]:.3f}); the policy's entropy is "
            f"{self.entropy[1]:.3f} (at most: {self.entropy[0]:.3f}): the agent repeats itself"
        )


def look(
    history: Sequence[Mapping[str, float]], highest_reward: float, thresholds: Thresholds
) -> EchoTrap | None:
    """The warning that the last step of a run's metrics calls for, if it does.

    Steps in which nothing was updated have no entropy and stand with the one before them.
    """
    window = thresholds.window
    if len(history) < thresholds.fewest_steps:
        return None
    spreads = averages([line[SPREAD] for line in history], window)
    entropies = averages(_carried([line.get(ENTROPY) for line in history]), window)
    rewards = averages([line[REWARD] for line in history], window)
    fallen = spreads[-1] <= thresholds.spread * max(spreads)
    before = rewards[max(0, len(rewards) - 1 - window)]
    rising = rewards[-1] > before + thresholds.gain * abs(highest_reward)
    if not fallen or rising or rewards[-1] >= thresholds.solved * highest_reward:
        return None
    return EchoTrap(
        step=int(history[-1]["step"]),
        spread=(max(spreads), spreads[-1]),
        entropy=(max(entropies), entropies[-1]),
        reward=(before, rewards[-1]),
    )


def averages(numbers: Sequence[float], window: int) -> list[float]:
    """Of each full window, in order."""
    return [fmean(numbers[end - window : end]) for end in range(window, len(numbers) + 1)]


def _carried(numbers: Sequence[float | None]) -> list[float]:
    known = next((number for number in numbers if number is not None), 0.0)
    carried = []
    for number in numbers:
        known = known if number is None else number
        carried.append(known)
    return carried
