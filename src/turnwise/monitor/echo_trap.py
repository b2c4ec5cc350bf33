"""Early warning of the Echo Trap: an agent that repeats what once paid, before its reward falls.

The signature (RAGEN, arXiv 2504.20073, section 4): the spread of rewards within groups falls while
the reward no longer rises. An agent that has learned its task looks alike in the first and differs
in the second: its spread falls because it always succeeds. There the entropy falls as well; it is
logged, but is not a condition, since it also rises when what an agent repeats is no longer trained
on.

A few groups a step, or rewards that are seldom, give spreads that come and go by chance: a fall
counts when it is far beyond what the steps of a window differ by. Steps in which spread or reward
was not measured stand for nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean, variance

SPREAD, ENTROPY, REWARD = "reward/group_std", "policy/entropy", "reward/mean"


@dataclass(frozen=True)
class Thresholds:
    """Thresholds of the warning."""

    window: int = 5
    """Steps that are averaged."""
    spread: float = 0.45
    """Share of its highest average to which the spread has fallen."""
    certainty: float = 4.0
    """Standard errors, of the difference of the two averages, that the fall must exceed."""
    gain: float = 0.02
    """The reward rises when its average is so much above the window before, or the first one."""
    solved: float = 0.75
    """Share of the highest possible reward: above it a small spread is success. Runs that learned
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
    """The signs of an Echo Trap. Example: str(trap) is the sentence for people."""

    step: int
    spread: tuple[float, float]
    """Highest and present average."""
    entropy: tuple[float, float] | None
    """Highest and present average; None where it was measured in too few steps."""
    reward: tuple[float, float]
    """Average of the window before (or the first), and of the last one."""

    def __str__(self) -> str:
        entropy = ""
        if self.entropy is not None:
            most, now = self.entropy
            entropy = f"; the policy's entropy is {now:.3f} (at most: {most:.3f})"
        return (
            f"Echo Trap: at step {self.step} the spread of rewards within groups has fallen from "
            f"{self.spread[0]:.3f} to {self.spread[1]:.3f}, while the reward stays at "
            f"{self.reward[1]:.3f} (before: {self.reward[0]:.3f}){entropy}: "
            "the agent repeats itself"
        )


def detect(
    history: Sequence[Mapping[str, float]], highest_reward: float, thresholds: Thresholds
) -> EchoTrap | None:
    """The warning that the last step of a run's metrics calls for, if it does."""
    return [None, *detections(history, highest_reward, thresholds)][-1]


def detections(
    history: Sequence[Mapping[str, float]], highest_reward: float, thresholds: Thresholds
) -> Iterator[EchoTrap | None]:
    """Yield for each measured step, from the first with enough before it, the warning that it calls
    for, or None. One pass over the history."""
    window, highest = thresholds.window, 0
    known = [line for line in history if SPREAD in line and REWARD in line]
    spreads, rewards = (averages([line[k] for line in known], window) for k in (SPREAD, REWARD))
    entropies = averages([line[ENTROPY] for line in known if ENTROPY in line], window)
    counts = list(accumulate(ENTROPY in line for line in known))
    for place in range(1, len(spreads)):
        highest = max(highest, place, key=spreads.__getitem__)
        most, now, end = spreads[highest], spreads[place], place + window
        before, present = rewards[max(0, place - window)], rewards[place]
        windows = ([line[SPREAD] for line in known[at : at + window]] for at in (highest, place))
        error = (sum(map(variance, windows)) / window) ** 0.5  # of the difference: Welch's t
        # now < most: a spread that was 0 all along has not fallen.
        small = now < most and now <= thresholds.spread * most
        rising = present > before + thresholds.gain * abs(highest_reward)
        solved = present >= thresholds.solved * highest_reward
        if small and most - now >= thresholds.certainty * error and not (rising or solved):
            # Entropy is not measured in every step: the windows of it that were full by this one.
            certain = entropies[: max(0, counts[end - 1] - window + 1)]
            entropy = (max(certain), certain[-1]) if certain else None
            yield EchoTrap(int(known[end - 1]["step"]), (most, now), entropy, (before, present))
        else:
            yield None


def averages(numbers: Sequence[float], window: int) -> list[float]:
    """Means of each full window, in order."""
    return [fmean(numbers[end - window : end]) for end in range(window, len(numbers) + 1)]
