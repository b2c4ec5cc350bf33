"""Parts without accepted answers: agreement within a group, and the policy's own confidence.

They reward what the policy believes already, so they can lock in an error that the group shares,
and a policy that always says the same is the best of all: watch entropy and held-out success (arXiv
2504.16084, on when it fails).
"""

import math
from collections import Counter

from turnwise.rewards.answer import normalise
from turnwise.rewards.parts import Scope, reward_part
from turnwise.types import Group, Trajectory
from turnwise_environments.rewards.numeric import read_quantity


@reward_part("majority", 0, 1, Scope.GROUP)
def majority(group: Group) -> list[float]:
    """1 for the answer that most of the group gave, else 0, and 0 for none.

    Of answers with equally many votes the one that came first in the group wins. Source: TTRL, Zuo
    et al. 2025 (arXiv 2504.16084).
    """
    answers = _answers(group)
    votes = Counter(answer for answer in answers if answer)
    first = max(votes, key=lambda answer: votes[answer], default="")
    return [float(bool(answer) and answer == first) for answer in answers]


@reward_part("clusters", 0, 1, Scope.GROUP)
def clusters(group: Group) -> list[float]:
    """Share of the group that gave the same answer, and 0 for none.

    It is EMPO's reward p(cluster), Zhang et al. 2025 (arXiv 2504.05812), with equal answers in
    place of clusters that a model finds.
    """
    answers = _answers(group)
    votes = Counter(answer for answer in answers if answer)
    return [votes[answer] / len(answers) for answer in answers]


@reward_part("confidence", 0, 1)
def confidence(trajectory: Trajectory) -> float:
    """Geometric mean of the sampled tokens' probabilities when they were sampled; 0 for none."""
    sampled = trajectory.tokens.logprob[trajectory.tokens.mask]
    return math.exp(min(0.0, float(sampled.mean()))) if sampled.size else 0.0


def _answers(group: Group) -> list[str]:
    """The normalised answer of each graded member, numbers by their value; "" for none."""
    found = []
    for member in group.graded:
        quantity = read_quantity(member.answer or "")
        plain = normalise(member.answer or "")
        found.append(plain if quantity is None else f"{quantity.value} {quantity.unit}")
    return found
