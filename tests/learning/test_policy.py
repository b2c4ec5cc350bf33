"""The policy update: metrics, skipped updates, exact resumption, the reference model."""

import copy

import numpy as np
import pytest
import torch

from tests.learning.building import (
    GRPO,
    REWARDS,
    changed,
    each,
    learner,
    load_model,
    make_groups,
    put,
    update,
    weights,
    with_one,
)
from turnwise.algorithms import make_algorithm, table
from turnwise.config import LearningConfig
from turnwise.errors import ConfigError
from turnwise.learning.credits import estimate
from turnwise.learning.policy import PolicyLearner
from turnwise.learning.signals.base import Signals

pytestmark = pytest.mark.numbers

EVERYTHING = make_algorithm("dapo", {"kl_coefficient": 0.1, "entropy_coefficient": 0.01})


@pytest.mark.long
@pytest.mark.parametrize("rewards", [[[1.0]], [[0.3, 0.3]], [[None, None]], [[1.0, None]], []])
def test_nothing_to_learn_makes_no_update(rewards: list[list[float | None]]) -> None:
    trained = learner(weight_decay=0.1)
    before = weights(trained.model)
    groups = make_groups(rewards)
    report = update(trained, groups)
    assert report.metrics["policy/updates"] == 0
    assert report.metrics["policy/trained_tokens"] == 0
    assert trained.optimizer.updates == 0
    assert torch.equal(before, weights(trained.model))


def test_a_filter_looks_at_all_groups_of_a_step_whatever_the_number_of_updates() -> None:
    """Of four groups the two with the largest spread are in the first half; each is an update."""
    algorithm = make_algorithm("grpo", {"group_filter": "top_spread", "share": 0.5})
    trained = learner(algorithm, updates_per_step=2)
    groups = make_groups([[1.0, 0.0], [0.9, 0.0], [0.2, 0.0], [0.1, 0.0]])
    report = update(trained, groups)
    kept = [member for group in groups[:2] for member in group.graded]
    assert report.metrics["policy/updates"] == 2
    assert report.metrics["policy/trained_tokens"] == sum(m.tokens.mask.sum() for m in kept)


def test_updates_raise_the_probability_of_what_was_rewarded() -> None:
    trained = learner(learning_rate=3e-3)
    groups = make_groups([[1.0, 0.0]])
    losses = [update(trained, groups).metrics["policy/loss"] for _ in range(4)]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0] - 0.01


def test_the_gap_is_measured_on_sampled_tokens_before_the_first_update() -> None:
    once, twice = (learner(updates_per_step=count) for count in (1, 2))
    groups = make_groups([[1.0, 0.0]])
    credits = estimate(groups, Signals(), GRPO)
    report = once.update(groups, credits)
    again = twice.update([*groups, *groups], credits)
    assert report.metrics["policy/logprob_gap"] > 0.1
    assert again.metrics["policy/logprob_gap"] == report.metrics["policy/logprob_gap"]
    assert again.metrics["policy/updates"] == 2
    assert again.metrics["policy/approx_kl"] != report.metrics["policy/approx_kl"]


def test_extremes_are_of_all_micro_batches() -> None:
    whole, split = (
        update(learner(tokens_per_micro_batch=budget), make_groups(REWARDS)).metrics
        for budget in (100_000, 64)
    )
    for name in ("policy/ratio_max", "policy/ratio_min"):
        assert split[name] == pytest.approx(whole[name], rel=1e-4)


def test_two_epochs_are_two_passes_over_the_same_shares() -> None:
    """With ratios to the policy that sampled they are two updates on the same trajectories."""
    groups = make_groups(REWARDS)
    credits = estimate(groups, Signals(), GRPO)
    twice, once = (learner(epochs=epochs, updates_per_step=2) for epochs in (2, 1))
    report = twice.update(groups, credits)
    once.update(groups, credits)
    assert not torch.equal(weights(once.model), weights(twice.model))
    once.update(groups, credits)
    assert report.metrics["policy/updates"] == 4
    assert torch.equal(weights(once.model), weights(twice.model))


def test_a_loss_that_is_not_finite_is_skipped_and_named() -> None:
    """The engine gave no log-probability for one sampled token."""
    groups = make_groups(REWARDS)
    tokens = groups[1].trajectories[1].tokens
    logprob = put(tokens.logprob, np.flatnonzero(tokens.mask)[1], np.nan)
    groups = with_one(groups, 1, 1, logprob=logprob)
    credits = estimate(groups, Signals(), GRPO)
    trained = learner(updates_per_step=3, tokens_per_micro_batch=64)
    report = trained.update(groups, credits)
    assert report.metrics["policy/skipped_updates"] == 1
    assert report.metrics["policy/updates"] == 2
    assert report.problems == ["the loss is not finite in g1 episode 1"]
    assert all(np.isfinite(value) for value in report.metrics.values())


def test_a_skipped_update_leaves_weights_and_optimizer_untouched() -> None:
    """The longest comes last, when the other micro-batches have left their gradients."""
    trained = learner(tokens_per_micro_batch=64)
    groups = make_groups(REWARDS)
    credits = estimate(groups, Signals(), GRPO)
    trained.update(groups, credits)
    before, state = weights(trained.model), copy.deepcopy(trained.state())
    members = [member for group in groups for member in group.trajectories]
    longest = max(members, key=lambda member: len(member.tokens))
    endless = changed(longest, logprob=put(longest.tokens.logprob, longest.tokens.mask, np.inf))
    broken = each(groups, lambda member: endless if member is longest else member)
    report = trained.update(broken, credits)
    assert report.metrics["policy/updates"] == 0
    assert torch.equal(before, weights(trained.model))
    torch.testing.assert_close(trained.state(), state, rtol=0, atol=0)
    assert all(p.grad is None for p in trained.model.parameters())


def test_a_gradient_that_is_not_finite_is_skipped() -> None:
    trained = learner()
    groups = make_groups(REWARDS)
    credits = estimate(groups, Signals(), GRPO)
    first = trained.optimizer.parameters[0]
    first.register_hook(lambda gradient: gradient * torch.inf)
    before = weights(trained.model)
    report = trained.update(groups, credits)
    assert report.metrics["policy/skipped_updates"] == 1
    assert "gradient's norm" in report.problems[0]
    assert torch.equal(before, weights(trained.model))


def test_unmasked_observations_are_scored_by_the_current_policy() -> None:
    trained = learner(mask_observations=False, tokens_per_micro_batch=64)
    groups = make_groups(REWARDS)
    report = update(trained, groups)
    assert report.problems == []
    masked = update(learner(), groups)
    assert report.metrics["policy/trained_tokens"] > masked.metrics["policy/trained_tokens"]
    assert report.metrics["policy/logprob_gap"] == pytest.approx(
        masked.metrics["policy/logprob_gap"], rel=1e-5
    )


def test_reference_and_coefficient_go_together() -> None:
    for algorithm in (EVERYTHING, make_algorithm("dr_grpo", {"kl_reward_coefficient": 0.3})):
        with pytest.raises(ConfigError, match="needs a reference"):
            PolicyLearner(load_model(), None, LearningConfig(), algorithm)
    with pytest.raises(ConfigError, match="kl_coefficient is 0"):
        PolicyLearner(load_model(), load_model(), LearningConfig(), GRPO)


def test_the_reference_stays_where_it_is() -> None:
    trained = learner(EVERYTHING)
    before = weights(trained.reference)
    groups = make_groups(REWARDS)
    update(trained, groups)
    second = update(trained, groups)
    assert torch.equal(before, weights(trained.reference))
    assert second.metrics["policy/kl_reference"] > 1e-4


@pytest.mark.long
def test_ratios_are_to_the_policy_before_the_update_unless_bypassed() -> None:
    """The behaviour log-probabilities of `make_groups` are not this model's own."""
    ratios = {}
    for correction in ("bypass", "truncated", "none"):
        algorithm = make_algorithm("grpo", {"correction": correction})
        groups = make_groups([[1.0, 0.0, 0.5]])
        metrics = update(learner(algorithm), groups).metrics
        ratios[correction] = metrics["policy/ratio_max"]
        assert ("correction/weight" in metrics) is (correction != "bypass")
    assert ratios["bypass"] != pytest.approx(1.0, abs=1e-3)
    assert ratios["truncated"] == ratios["none"] == pytest.approx(1.0, abs=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("name", [row["name"] for row in table()])
def test_every_algorithm_that_needs_rewards_alone_makes_an_update(name: str) -> None:
    """And those that need what these groups have not say so; without an estimator there is no
    policy loss to make one."""
    algorithm = make_algorithm(name, {"k": 1} if name == "pass_at_k" else {})
    groups = make_groups([[1.0, 0.0, 1.0], [0.0, 1.0]])
    if name == "gdpo":  # the parts of a task's own reward have to be named
        with pytest.raises(ConfigError, match="needs reward_weights"):
            estimate(groups, Signals(), algorithm)
        return
    if algorithm.needs - {"turn_rewards", "self_teacher"}:  # without rewards, outcomes count
        needs = "critic|reward per t|same state|teacher|episode|played on|hindsight|score|gains"
        with pytest.raises(ValueError, match=needs):
            estimate(groups, Signals(), algorithm)
        return
    credits = estimate(groups, Signals(), algorithm)
    trained = learner(algorithm)
    before = weights(trained.model)
    report = trained.update(groups, credits)
    updated = algorithm.estimator != "none"
    assert report.metrics["policy/updates"] == updated
    assert torch.equal(before, weights(trained.model)) is not updated
