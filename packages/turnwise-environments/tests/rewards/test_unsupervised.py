"""Agreement within a group, by hand."""

import math
from dataclasses import replace

import pytest

from tests.rewards.episodes import episode, group, sampled
from turnwise.types import Outcome
from turnwise_environments.rewards.unsupervised import clusters, confidence, majority

VOTES: list[tuple[list[str | None], list[float], list[float]]] = [
    (["4", "4.0", "5", None], [1, 1, 0, 0], [0.5, 0.5, 0.25, 0]),
    (["The Rome", "rome.", "Paris"], [1, 1, 0], [2 / 3, 2 / 3, 1 / 3]),
    (["b", "a", "a", "b"], [1, 0, 0, 1], [0.5] * 4),  # equally many: the first
    ([None, None, None, "a"], [0, 0, 0, 1], [0, 0, 0, 0.25]),  # no answer has no vote
    ([None, "", " "], [0, 0, 0], [0, 0, 0]),
    (["1/2", "0.5", r"\frac{1}{2}", "0.5 kg"], [1, 1, 1, 0], [0.75] * 3 + [0.25]),
]


@pytest.mark.parametrize(("answers", "votes", "shares"), VOTES)
def test_majority_and_clusters(
    answers: list[str | None], votes: list[float], shares: list[float]
) -> None:
    assert majority(group(answers)) == votes
    assert clusters(group(answers)) == shares


def test_ungraded_members_have_no_vote() -> None:
    found = group(["a", "a", "b"])
    ungraded = replace(found.trajectories[0], outcome=Outcome.GRADER_ERROR, verdict=None)
    found = replace(found, trajectories=(ungraded, *found.trajectories[1:]))
    assert majority(found) == [1.0, 0.0]
    assert clusters(found) == [0.5, 0.5]


def test_confidence_is_of_the_sampled_tokens() -> None:
    one = replace(episode(), tokens=sampled(math.log(0.5), math.log(0.125)))
    assert confidence(one) == pytest.approx(0.25)
    assert confidence(episode()) == 0.0
    assert confidence(replace(episode(), tokens=sampled(0.0))) == 1.0
