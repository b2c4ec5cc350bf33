"""Models of wings that measure parts of the reward: judges, learned rewards.

A wing's section adds one to `Components.reward_sources`, by its name.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from turnwise.rewards.parts import RewardPart
from turnwise.rollout.runner import RolloutRunner
from turnwise.types import Group


class RewardSource(Protocol):
    """A model that measures parts of the reward. What it does beside that, such as learning, is
    nothing unless its class says so."""

    @property
    @abstractmethod
    def parts(self) -> Mapping[str, RewardPart]:
        """The parts by their names."""

    async def refine(
        self, runner: RolloutRunner, groups: Sequence[Group], seed: int, step: int
    ) -> list[Group]:
        """Groups of replies by which a model that is the policy is trained, in the same update as
        these groups of a step. Their names begin with `storage.trajectory_rows.REFINEMENT` and a
        slash. Raises RunStoppedError where too many of the replies are ungraded."""
        return []

    def refinement_metrics(self, groups: Sequence[Group]) -> dict[str, float]:
        """The metrics of such groups."""
        return {}

    def learn(self, groups: Sequence[Group]) -> dict[str, float]:
        """Learn from the groups of a step of RL, beside the policy; returns metrics."""
        return {}

    def state(self) -> dict[str, Any]:
        """All that a resumed run needs of a model that learns beside the policy; empty for one that
        stays as it is."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue exactly where `state`, of a checkpoint, was taken."""
        return

    def timing(self) -> dict[str, float]:
        """Seconds and counts of what measuring took since this process began."""
        return {}

    def alarm(self, timing: Iterable[Mapping[str, float]]) -> Callable[[int], str]:
        """A function that gives, after each step, what to warn of, or nothing; `timing` are the
        lines of the steps before, of a run that goes on."""
        return lambda step: ""
