"""The gradient of a policy update: what must not move it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.learning.building import (
    GRPO,
    REWARDS,
    change,
    changed,
    each,
    learner,
    load_model,
    make_groups,
    put,
    weights,
)
from turnwise.algorithms import Algorithm, make_algorithm
from turnwise.config import LearningConfig
from turnwise.learning.credits import Credits, estimate
from turnwise.learning.policy import PolicyLearner
from turnwise.learning.signals.base import Signals
from turnwise.tokens import Segment, Source
from turnwise.types import Group

pytestmark = pytest.mark.numbers

EVERYTHING = make_algorithm("dapo", {"kl_coefficient": 0.1, "entropy_coefficient": 0.01})
GSPO = make_algorithm("gspo", {"clip_low": 0.5, "clip_high": 0.5})
TREATED = [
    make_algorithm("gmpo", {}),
    make_algorithm("clip_cov", {"share": 0.2, "covariance_low": 0.0}),
    make_algorithm("kl_cov", {"share": 0.2}),
    make_algorithm("kl_cov", {"share": 0.2, "correction": "truncated"}),
    make_algorithm("grpo", {"kl_coefficient": 0.1, "divergence": "unbiased"}),
]


def assert_same_gradient(one: torch.Tensor, other: torch.Tensor) -> None:
    assert one.norm() > 1e-3
    assert (one - other).norm() / one.norm() < 1e-5


@pytest.mark.long
@pytest.mark.parametrize(
    "algorithm",
    [GRPO, EVERYTHING, GSPO, *TREATED],
    ids=["grpo", "all", "gspo", "gmpo", "clip_cov", "kl_cov", "kl_cov_corrected", "unbiased"],
)
@pytest.mark.parametrize("budget", [64, 100, 100_000])
def test_the_gradient_does_not_depend_on_the_micro_batches(
    algorithm: Algorithm, budget: int
) -> None:
    """64 gives a pass for nearly every trajectory, 100_000 one padded pass for all."""
    whole = change(learner(algorithm), make_groups(REWARDS))
    split = change(learner(algorithm, tokens_per_micro_batch=budget), make_groups(REWARDS))
    assert_same_gradient(whole, split)


def test_the_gradient_does_not_depend_on_the_order() -> None:
    groups = make_groups(REWARDS)
    backwards = [Group(g.id, g.trajectories[::-1]) for g in make_groups(REWARDS)[::-1]]
    assert_same_gradient(change(learner(), groups), change(learner(), backwards))


@pytest.mark.long
@pytest.mark.parametrize("name", ["clip_cov", "kl_cov"])
def test_tokens_are_ranked_over_the_whole_batch_whatever_the_order(name: str) -> None:
    """An all-equal group has a part in the ranks; what tools wrote, and ungraded members, have
    none."""
    band = {"covariance_low": 0.0, "covariance_high": 99.0} if name == "clip_cov" else {}
    algorithm = make_algorithm(name, {"share": 0.2, **band})
    groups = make_groups([*REWARDS, [1.0, 1.0], [None, 0.0, 1.0]])
    credits = estimate(groups, Signals(), algorithm)
    examples = learner(algorithm)._examples(groups, credits)
    members = {str(m.id): m for group in groups for m in group.graded}
    assert {example.name for example in examples} == set(members)
    advantage = np.concatenate(
        [credits.advantages[m.id][m.tokens.mask] for m in members.values()]
    ).astype(np.float64)
    logprob = np.concatenate([m.tokens.logprob[m.tokens.mask] for m in members.values()])
    covariance = (advantage - advantage.mean()) * (logprob - logprob.astype(np.float64).mean())
    least = np.sort(covariance)[::-1][int(0.2 * len(covariance)) - 1]
    for example in examples:
        member = members[example.name]
        own = (credits.advantages[member.id] - advantage.mean()) * (
            member.tokens.logprob - logprob.astype(np.float64).mean()
        )
        expected = (own >= least - 1e-12) & member.tokens.mask
        numbers = example.loss_scale == 0 if name == "clip_cov" else example.kl_penalty != 0
        np.testing.assert_array_equal(
            numbers & example.trained, expected[: len(example.ids)], example.name
        )
    backwards = [Group(g.id, g.trajectories[::-1]) for g in groups[::-1]]
    assert_same_gradient(change(learner(algorithm), groups), change(learner(algorithm), backwards))


@pytest.mark.long
def test_leaving_out_zero_advantages_leaves_the_gradient_equal() -> None:
    """The saving against the same loss computed on every trajectory (a vanishing KL term)."""
    groups = [*REWARDS, [1.0, 1.0, 1.0]]
    computed = replace(GRPO, kl_coefficient=1e-30)
    assert_same_gradient(
        change(learner(), make_groups(groups)), change(learner(computed), make_groups(groups))
    )
    smaller = change(learner(), make_groups(REWARDS))
    larger = change(learner(), make_groups(groups))
    # 8 of 11 sequences have an advantage; all 11 are in the denominator.
    torch.testing.assert_close(larger, smaller * 8 / 11, rtol=1e-3, atol=1e-6)


@pytest.mark.long
def test_what_stands_on_masked_tokens_has_no_influence() -> None:
    """Advantages and log-probabilities on prompt and tool tokens are garbage here."""
    clean = make_groups(REWARDS)
    dirty = each(clean, lambda m: changed(m, logprob=put(m.tokens.logprob, ~m.tokens.mask, 123.0)))
    trained, other = learner(EVERYTHING), learner(EVERYTHING)
    for groups, garbage, who in ((clean, 0.0, trained), (dirty, 77.0, other)):
        report = who.update(groups, credits_of(groups, garbage))
        assert not report.problems
        members = [member for group in groups for member in group.graded]
        assert report.metrics["policy/trained_tokens"] == sum(m.tokens.mask.sum() for m in members)
    assert torch.equal(weights(trained.model), weights(other.model))


def credits_of(groups: list[Group], garbage: float) -> Credits:
    credits = estimate(groups, Signals(), EVERYTHING)
    members = {member.id: member for group in groups for member in group.trajectories}
    advantages = {
        name: own + np.where(members[name].tokens.mask, 0, np.float32(garbage))
        for name, own in credits.advantages.items()
    }
    return replace(credits, advantages=advantages)


def test_observations_after_the_last_action_have_no_influence() -> None:
    short, seen = make_groups(REWARDS), [Segment([3] * 9, Source.TOOL)]
    long = each(short, lambda m: changed(m, tokens=m.tokens.with_segments(seen, 5)))
    assert torch.equal(change(learner(), short), change(learner(), long))


@pytest.mark.long
@pytest.mark.parametrize("temperature", [0.0, 0.5])
def test_the_temperature_is_that_of_sampling(temperature: float) -> None:
    groups = make_groups(REWARDS)
    gradients = []
    for given in (1.0, temperature):
        trained = PolicyLearner(load_model(), None, LearningConfig(), GRPO, given)
        gradients.append(change(trained, groups))
    assert torch.equal(*gradients) is (temperature == 0)
