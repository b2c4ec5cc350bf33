"""A recipe's judge, as a run uses it: a language model that scores episodes.

A wing makes it, by its function for the section `judge`. Not here: what the wing is asked for
before there is a model (`first_checks.py`), and how its numbers count (`rewarding.py`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from turnwise.config import Recipe
from turnwise.engines.base import Engine
from turnwise.rewards.parts import RewardPart
from turnwise.rollout.runner import RolloutRunner
from turnwise.seeds import derive
from turnwise.types import Group
from turnwise.wings import wings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Policy:
    """The policy, for a judge that asks it: its engine, its tokenizer, and the name of its present
    weights."""

    engine: Engine
    tokenizer: "PreTrainedTokenizerBase"
    weights: Callable[[], str]
    max_tokens: int
    """Tokens of a trajectory, at most."""
    date: str = ""
    """The run's, for chat templates that write today's."""


class Judge(Protocol):
    """The judge of a run."""

    @property
    def part(self) -> RewardPart:
        """The part `judge` of the reward."""
        ...

    async def regraded(self, groups: Sequence[Group]) -> list[Group]:
        """The groups with the judge's numbers as rewards, in place of all others; a member whose
        judgement is missing is ungraded."""
        ...

    async def refine(
        self, runner: RolloutRunner, groups: Sequence[Group], seed: int, step: int
    ) -> list[Group]:
        """Groups of replies by which a judge that is the policy is trained, in the same update as
        these groups of a step; none where it is not trained. Their names begin with
        `storage.trajectory_rows.REFINEMENT` and a slash. Raises RunStoppedError where too many of
        the replies are ungraded."""
        ...

    def refinement_metrics(self, groups: Sequence[Group]) -> dict[str, float]:
        """The metrics of such groups; empty where there are none."""
        ...

    def timing(self) -> dict[str, float]:
        """Seconds and counts of what judging took since this process began."""
        ...

    def alarm(self, timing: Iterable[Mapping[str, float]]) -> Callable[[int], str]:
        """A function that gives, after each step, what its judgements have to be warned of, or
        nothing; `timing` are the lines of the steps before, of a run that goes on."""
        ...


def judge_of(
    recipe: Recipe, folder: Path | None = None, policy: Policy | None = None
) -> Judge | None:
    """The judge that a recipe describes, if it does; it keeps its answers in `folder`, the run's.
    Without a policy only its part can be asked for, which has its range then.

    Raises ConfigError for settings that cannot work, MissingExtraError without the judges' wing.
    """
    if recipe.judge is None:
        return None
    make = wings().section("judge")
    judge: Judge = make(recipe.judge, derive(recipe.seed, "judge"), folder, policy)
    return judge
