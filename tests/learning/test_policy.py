"""The policy update: metrics, skipped updates, exact resumption, the reference model; its gradient,
what must not move it, and how much of it is noise."""

import copy
import math
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
    update,
    weights,
    with_one,
)
from turnwise.algorithms import Algorithm, make_algorithm, table
from turnwise.config import LearningConfig
from turnwise.errors import ConfigError
from turnwise.learning.credits import Credits, estimate
from turnwise.learning.metric_sums import GradientNoise
from turnwise.learning.policy import PolicyLearner
from turnwise.learning.signals.base import Signals
from turnwise.tokens import Segment, Source
from turnwise.types import Group

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
    groups = make_groups([[1.0, 0.0]])
    once, twice = (
        update(learner(updates_per_step=count), groups * count).metrics for count in (1, 2)
    )
    assert once["policy/logprob_gap"] > 0.1
    assert twice["policy/logprob_gap"] == once["policy/logprob_gap"]
    assert twice["policy/updates"] == 2
    assert twice["policy/approx_kl"] != once["policy/approx_kl"]


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
    twice, once = (learner(epochs=epochs, updates_per_step=2) for epochs in (2, 1))
    report = update(twice, groups)
    update(once, groups)
    assert not torch.equal(weights(once.model), weights(twice.model))
    update(once, groups)
    assert report.metrics["policy/updates"] == 4
    assert torch.equal(weights(once.model), weights(twice.model))


def test_a_loss_that_is_not_finite_is_skipped_and_named() -> None:
    """The engine gave no log-probability for one sampled token."""
    groups = make_groups(REWARDS)
    tokens = groups[1].trajectories[1].tokens
    logprob = put(tokens.logprob, np.flatnonzero(tokens.mask)[1], np.nan)
    groups = with_one(groups, 1, 1, logprob=logprob)
    report = update(learner(updates_per_step=3, tokens_per_micro_batch=64), groups)
    assert report.metrics["policy/skipped_updates"] == 1
    assert report.metrics["policy/updates"] == 2
    assert report.problems == ["the loss is not finite in g1 episode 1"]
    assert all(np.isfinite(value) for value in report.metrics.values())


def test_a_skipped_update_leaves_weights_and_optimizer_untouched() -> None:
    """The longest comes last, when the other micro-batches have left their gradients."""
    trained = learner(tokens_per_micro_batch=64)
    groups = make_groups(REWARDS)
    update(trained, groups)
    before, state = weights(trained.model), copy.deepcopy(trained.state())
    members = [member for group in groups for member in group.trajectories]
    longest = max(members, key=lambda member: len(member.tokens))
    endless = changed(longest, logprob=put(longest.tokens.logprob, longest.tokens.mask, np.inf))
    broken = each(groups, lambda member: endless if member is longest else member)
    assert update(trained, broken).metrics["policy/updates"] == 0
    assert torch.equal(before, weights(trained.model))
    torch.testing.assert_close(trained.state(), state, rtol=0, atol=0)
    assert all(p.grad is None for p in trained.model.parameters())


def test_a_gradient_that_is_not_finite_is_skipped() -> None:
    trained = learner()
    first = trained.optimizer.parameters[0]
    first.register_hook(lambda gradient: gradient * torch.inf)
    before = weights(trained.model)
    report = update(trained, make_groups(REWARDS))
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
    if algorithm.part("estimator").needs - {"turn_rewards"}:  # without these, outcomes count
        needs = "critic|rewards per t|same state|teacher|episode|played on|hindsight|score|gains"
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
    given = (1.0, temperature)
    gradients = [change(learner(temperature=one), make_groups(REWARDS)) for one in given]
    assert torch.equal(*gradients) is (temperature == 0)


def measured(gradients: np.ndarray, groups: int) -> dict[str, float]:
    """Of parameters of two shapes whose gradients add up as given, float64[added, 5]."""
    parameters = [torch.zeros(2, 1, requires_grad=True), torch.zeros(3, requires_grad=True)]
    spread = GradientNoise(parameters)
    for gradient in gradients:
        for parameter, part in zip(parameters, (gradient[:2], gradient[2:]), strict=True):
            loss = (parameter.flatten() * torch.tensor(part, dtype=torch.float32)).sum()
            loss.backward()
        spread.add()
    return spread.metrics(groups)


def test_it_is_the_unbiased_sample_covariance() -> None:
    gradients = np.random.default_rng(0).normal(1.0, 2.0, (6, 5))
    found = measured(gradients, 6)
    variance = 6 * np.cov(gradients.T, ddof=1).trace()  # of a sum of six
    assert math.isclose(found["policy/gradient_variance"], variance, rel_tol=1e-5)
    square = float(np.square(gradients.sum(0)).sum())
    assert math.isclose(found["policy/gradient_signal"], square - variance, rel_tol=1e-4)


def test_groups_without_a_gradient_count_as_zero() -> None:
    gradients = np.random.default_rng(1).normal(size=(3, 5))
    with_zeros = np.concatenate([gradients, np.zeros((2, 5))])
    found, expected = measured(gradients, 5), measured(with_zeros, 5)
    for name in expected:
        assert math.isclose(found[name], expected[name], rel_tol=1e-5)


def test_a_weight_may_have_its_first_gradient_later() -> None:
    first, second = (torch.zeros(1, requires_grad=True) for _ in range(2))
    spread = GradientNoise([first, second])
    for weight in (second, first):
        weight.sum().backward()
        spread.add()
    assert spread.metrics(2) == {"policy/gradient_variance": 2.0, "policy/gradient_signal": 0.0}


def test_one_group_says_nothing() -> None:
    assert measured(np.ones((1, 5)), 1) == {}
    assert measured(np.ones((0, 5)), 4) == {}


def test_measuring_changes_no_update() -> None:
    """The gradient is summed in another order, and is the same."""
    plain, spread = (learner(tokens_per_micro_batch=64) for _ in range(2))
    before = update(plain, make_groups(REWARDS)).metrics
    found = update(spread, make_groups(REWARDS), measure_variance=True).metrics
    assert torch.allclose(weights(plain.model), weights(spread.model), atol=1e-5)
    added = {"policy/gradient_variance", "policy/gradient_signal"}
    assert set(found) - set(before) == added
    total = sum(found[name] for name in added)
    assert math.isclose(total, found["policy/gradient_norm"] ** 2, rel_tol=1e-3)
    assert found["policy/gradient_variance"] > 0
