"""The KL term in the reward, and its coefficient: numbers against the model's own logits, what the
micro-batches must not change, and exact resumption."""

import copy
from functools import partial

import numpy as np
import pytest
import torch

from tests.learning import building
from tests.learning.building import load_model, make_groups, put, weights, with_one
from turnwise.algorithms import make_algorithm
from turnwise.learning.credits import estimate
from turnwise.learning.policy import PolicyLearner, UpdateReport
from turnwise.learning.signals.base import Signals
from turnwise.learning.signals.reward_terms import KLReward
from turnwise.types import Group, Trajectory

IN_REWARD = make_algorithm("dr_grpo", {"kl_reward_coefficient": 0.3})
REWARDS = [[1.0, 0.0, None], [0.5, 1.0], [1.0, 1.0]]
ADAPTED = {"kl_target": 0.5, "kl_horizon": 10}
learner = partial(building.learner, family="llama", temperature=0.7)


def measured(trained: PolicyLearner, groups: list[Group]) -> Signals:
    if not trained.algorithm.kl_reward_coefficient:
        return Signals()
    return KLReward(trained.reference_logprobs, trained.kl_coefficient).measure(groups)


def step(trained: PolicyLearner, groups: list[Group]) -> UpdateReport:
    credits = estimate(groups, measured(trained, groups), trained.algorithm)
    return trained.update(groups, credits)


def own_logprobs(model: torch.nn.Module, member: Trajectory) -> np.ndarray:
    """float64[n]: from all logits at temperature 0.7; 0 for the first token."""
    ids = torch.tensor(member.tokens.ids)[None]
    with torch.no_grad():
        logits = model(input_ids=ids).logits[0].double() / 0.7
    chosen = torch.log_softmax(logits, -1)[:-1].gather(1, ids[0, 1:, None])[:, 0]
    return np.concatenate([[0.0], chosen.numpy()])


@pytest.mark.long
@pytest.mark.parametrize("budget", [64, 8192])
def test_the_penalty_is_the_log_ratio_of_each_sampled_token(budget: int) -> None:
    trained = learner(IN_REWARD, tokens_per_micro_batch=budget)
    groups = make_groups(REWARDS)
    signals = measured(trained, groups)
    credits = estimate(groups, signals, IN_REWARD)
    report = trained.update(groups, credits)
    assert signals.of(groups[0].trajectories[2]).token_rewards is None
    reference, drifts = load_model("llama"), []
    for group in groups:
        totals = []
        for member in group.graded:
            mask = member.tokens.mask
            drift = np.where(mask, member.tokens.logprob - own_logprobs(reference, member), 0.0)
            rewards = signals.of(member).token_rewards
            np.testing.assert_allclose(rewards, -0.3 * drift, atol=1e-5)
            totals.append(member.verdict.reward - 0.3 * drift.sum())
            drifts.append(drift[mask])
        for member, total in zip(group.graded, totals, strict=True):
            expected = np.where(member.tokens.mask, total - np.mean(totals), 0.0)
            np.testing.assert_allclose(credits.advantages[member.id], expected, atol=1e-4)
            assert member.reward == member.verdict.reward  # what the environment gave
    mean = float(np.concatenate(drifts).mean())
    assert report.metrics["policy/kl_reference"] == pytest.approx(mean, abs=1e-5)
    assert report.metrics["policy/kl_coefficient"] == 0.3


def test_degenerate_groups() -> None:
    """A group of one compares nothing, ungraded members are nowhere; the rewards of an all-equal
    group differ by their penalties."""
    trained = learner(IN_REWARD)
    groups = make_groups([[1.0], [None, None], [1.0, 1.0]])
    credits = estimate(groups, measured(trained, groups), IN_REWARD)
    trained.update(groups, credits)
    single, *equal = (credits.advantages[m.id] for group in groups for m in group.graded)
    assert not single.any()
    assert len(equal) == 2
    assert all(advantage.any() for advantage in equal)
    nothing = learner(make_algorithm("dr_grpo", {"kl_reward_coefficient": 1}))
    report = step(nothing, make_groups([[None]]))
    assert report.metrics["policy/updates"] == 0
    assert "policy/kl_reference" not in report.metrics


def test_a_trajectory_in_which_nothing_was_sampled_has_no_penalty() -> None:
    groups = make_groups([[1.0, 0.0, 0.5]])
    groups = with_one(
        groups, 0, 1, source=np.zeros(len(groups[0].trajectories[1].tokens), np.uint8)
    )
    masked, trained = groups[0].trajectories[1], learner(IN_REWARD)
    signals = measured(trained, groups)
    rewards, credits = signals.of(masked).token_rewards, estimate(groups, signals, IN_REWARD)
    assert not rewards.any()
    assert not credits.advantages[masked.id].any()
    assert trained.update(groups, credits).problems == []


def test_a_log_probability_that_is_none_is_found_by_the_update() -> None:
    groups = make_groups(REWARDS)
    tokens = groups[1].trajectories[1].tokens
    groups = with_one(
        groups, 1, 1, logprob=put(tokens.logprob, np.flatnonzero(tokens.mask)[1], np.nan)
    )
    report = step(learner(IN_REWARD), groups)
    assert report.problems == ["the loss is not finite in g1 episode 1"]
    assert all(np.isfinite(value) for value in report.metrics.values())


@pytest.mark.long
@pytest.mark.parametrize("placement", ["kl_coefficient", "kl_reward_coefficient"])
@pytest.mark.parametrize("target", [1e-3, 1e3])
def test_the_coefficient_is_adapted(placement: str, target: float) -> None:
    """By at most a fifth of 6 in 10: 6 of the 7 are graded."""
    algorithm = make_algorithm("grpo", {placement: 0.2, "kl_target": target, "kl_horizon": 10})
    trained = learner(algorithm)
    expected, misses = 0.2, []
    for seed in (0, 1, 2):
        metrics = step(trained, make_groups(REWARDS, seed)).metrics
        assert metrics["policy/kl_coefficient"] == pytest.approx(expected)
        misses.append(min(max(metrics["policy/kl_reference"] / target - 1, -0.2), 0.2))
        expected *= 1 + misses[-1] * 6 / 10
    assert trained.kl_coefficient == pytest.approx(expected)
    assert misses[-1] == (0.2 if target < 1 else -0.2)
    if placement == "kl_coefficient":  # in the first update the policy is the reference
        assert misses[0] == -0.2


@pytest.mark.long
@pytest.mark.parametrize("placement", ["kl_coefficient", "kl_reward_coefficient"])
def test_the_update_uses_the_coefficient_as_it_is_now(placement: str) -> None:
    """One that came to 0.5 does what one that began there does."""
    ends = []
    for begin in (0.1, 0.5):
        trained = learner(make_algorithm("grpo", {placement: begin, **ADAPTED}))
        trained.kl_coefficient = 0.5
        for seed in (0, 1):
            report = step(trained, make_groups(REWARDS, seed))
        ends.append((weights(trained.model), report.metrics))
    assert torch.equal(ends[0][0], ends[1][0])
    assert ends[0][1] == ends[1][1]
    other = learner(make_algorithm("grpo", {placement: 0.1, **ADAPTED}))
    for seed in (0, 1):
        step(other, make_groups(REWARDS, seed))
    assert not torch.equal(weights(other.model), ends[0][0])


@pytest.mark.long
@pytest.mark.parametrize("placement", ["kl_coefficient", "kl_reward_coefficient"])
def test_resuming_is_exact(placement: str) -> None:
    algorithm = make_algorithm("grpo", {placement: 0.2, **ADAPTED})
    whole, stopped, resumed = (learner(algorithm, warmup_steps=5) for _ in range(3))
    for trained in (whole, stopped):
        for seed in (0, 1):
            step(trained, make_groups(REWARDS, seed))
    resumed.model.load_state_dict(stopped.model.state_dict())
    resumed.load_state(copy.deepcopy(stopped.state()))
    assert resumed.kl_coefficient not in (0.2, 0.0)
    for seed in (2, 3):
        reports = [step(trained, make_groups(REWARDS, seed)) for trained in (whole, resumed)]
        assert reports[0].metrics == reports[1].metrics
    assert torch.equal(weights(whole.model), weights(resumed.model))
    torch.testing.assert_close(whole.state(), resumed.state(), rtol=0, atol=0)


def test_a_skipped_update_in_the_loss_leaves_the_coefficient() -> None:
    trained = learner(make_algorithm("grpo", {"kl_coefficient": 0.2, **ADAPTED}))
    groups = make_groups([[1.0, 0.0]])
    tokens = groups[0].trajectories[0].tokens
    groups = with_one(groups, 0, 0, logprob=put(tokens.logprob, tokens.mask, np.inf))
    assert step(trained, groups).problems
    assert trained.kl_coefficient == 0.2
