"""The implicit reward model: what its rewards are, that it learns, and that it resumes exactly."""

import copy
from typing import Any

import numpy as np
import pytest
import torch

from tests.learning.building import changed, load_model, make_groups, members_of, weights
from tests.rounding import assert_rounding, gradients
from turnwise.algorithms import make_algorithm
from turnwise.config import ImplicitRewardConfig, LearningConfig
from turnwise.learning.credits import Credits, estimate
from turnwise.learning.policy import PolicyLearner
from turnwise.types import Group, Trajectory
from turnwise_algorithms.signals.implicit_reward import ImplicitReward

PRIME = make_algorithm("prime", {})
REWARDS = [[1.0, 0.0, None], [0.0, 1.0], [1.0, 1.0]]
TEMPERATURE = 0.7
NONE = Credits({}, frozenset())


def implicit(rate: float = 1e-3, **options: Any) -> ImplicitReward:
    learning = LearningConfig(**options)
    policy, reference = load_model("llama"), load_model("llama")
    learner = PolicyLearner(policy, reference, learning, PRIME, TEMPERATURE)
    config = ImplicitRewardConfig(learning_rate=rate, beta=0.5)
    return ImplicitReward(policy, learner.reference_logprobs, config, learning, TEMPERATURE)


def moved(made: ImplicitReward) -> ImplicitReward:
    """With phi some way from the reference."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in made.model.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
    return made


def total_logprob(model: torch.nn.Module, member: Trajectory) -> torch.Tensor:
    """[n]: from all logits, with gradient; 0 where nothing was sampled."""
    ids = torch.tensor(member.tokens.ids)[None]
    logits = model(input_ids=ids).logits[0].double() / TEMPERATURE
    chosen = torch.log_softmax(logits, -1)[:-1].gather(1, ids[0, 1:, None])[:, 0]
    return torch.cat([torch.zeros(1), chosen]) * torch.tensor(member.tokens.mask)


@pytest.mark.long
@pytest.mark.parametrize("budget", [64, 8192])
def test_rewards_are_log_ratios_and_the_gradient_is_that_of_cross_entropy(budget: int) -> None:
    made = moved(implicit(tokens_per_micro_batch=budget))
    groups = make_groups(REWARDS)
    signals = made.measure(groups)
    members = members_of(groups)
    both = torch.nn.ModuleList([copy.deepcopy(made.model), load_model("llama")])
    losses: list[float] = []

    def own(exact: Any) -> list[torch.Tensor]:
        rewards = [
            0.5 * (total_logprob(exact[0], member) - total_logprob(exact[1], member).detach())
            for member in members
        ]
        totals = torch.stack([reward.sum() for reward in rewards])
        successes = torch.tensor([float(member.reward == 1.0) for member in members])
        loss = torch.nn.functional.binary_cross_entropy_with_logits(totals, successes.double())
        losses.append(loss.item())  # the last one is that of the weights as they are
        return [torch.cat(rewards), *gradients(exact[0], loss)]

    assert signals.of(groups[0].trajectories[2]).token_rewards is None
    found = [torch.from_numpy(np.concatenate([signals.of(m).token_rewards for m in members]))]
    apply = made.optimizer.apply

    def keep() -> float:
        found.extend(p.grad.clone() for p in made.model.parameters() if p.grad is not None)
        return apply()

    made.optimizer.apply = keep
    metrics = made.update(groups, signals, NONE)
    assert_rounding(found, both, own)
    assert metrics["implicit_reward/loss"] == pytest.approx(losses[-1], rel=1e-5)


@pytest.mark.long
def test_it_begins_as_the_reference_and_learns_what_succeeds() -> None:
    made = implicit(rate=1e-2)
    before = copy.deepcopy(made.reference(make_groups(REWARDS)[0].graded))
    found = []
    for _ in range(8):
        groups = make_groups(REWARDS)
        found.append(made.update(groups, made.measure(groups), NONE))
    assert found[0]["implicit_reward/loss"] == pytest.approx(np.log(2), abs=1e-5)
    assert found[0]["implicit_reward/mean"] == pytest.approx(0, abs=1e-5)
    assert found[-1]["implicit_reward/loss"] < 0.3
    assert found[-1]["implicit_reward/accuracy"] == 1
    after = made.reference(make_groups(REWARDS)[0].graded)
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.long
def test_it_resumes_exactly() -> None:
    whole, resumed = implicit(), implicit()
    groups = make_groups(REWARDS)
    whole.update(groups, whole.measure(groups), NONE)
    resumed.load_state(copy.deepcopy(whole.state()))
    for made in (whole, resumed):
        made.update(groups, made.measure(groups), NONE)
    assert torch.equal(weights(whole.model), weights(resumed.model))


def test_advantages_come_from_its_rewards_and_the_policy_is_not_its_model() -> None:
    policy, learning = load_model("llama"), LearningConfig(learning_rate=1e-2)
    learner = PolicyLearner(policy, load_model("llama"), learning, PRIME, TEMPERATURE)
    config = ImplicitRewardConfig()
    made = ImplicitReward(policy, learner.reference_logprobs, config, learning, TEMPERATURE)
    moved(made)
    groups = make_groups(REWARDS)
    credits = estimate(groups, made.measure(groups), PRIME)
    member = groups[0].trajectories[0]
    advantage = credits.advantages[member.id]
    assert len(set(advantage[member.tokens.mask].tolist())) == member.tokens.mask.sum()
    before = weights(made.model)
    report = learner.update(groups, credits)
    assert report.metrics["policy/updates"] == 1
    assert not {"policy/kl_reference", "policy/kl_coefficient"} & set(report.metrics)
    assert torch.equal(before, weights(made.model))


def test_nothing_to_learn_makes_no_update() -> None:
    made = implicit()
    groups = make_groups([[None]])
    (played,) = make_groups([[1.0]])[0].trajectories
    silent = changed(played, group="silent", source=np.zeros(len(played.tokens), np.uint8))
    groups.append(Group("silent", (silent,)))
    signals = made.measure(groups)
    rewards = signals.of(silent).token_rewards
    assert not rewards.any()
    assert made.update(groups, signals, NONE) == {}
    assert made.optimizer.updates == 0


def test_of_a_policy_with_adapters_the_adapters_are_trained() -> None:
    peft = pytest.importorskip("peft")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = peft.LoraConfig(r=2, target_modules="all-linear")
        policy = peft.get_peft_model(load_model("llama"), config)
    learning = LearningConfig()
    learner = PolicyLearner(policy, None, learning, PRIME, TEMPERATURE)
    options = ImplicitRewardConfig(learning_rate=1e-2)
    made = ImplicitReward(policy, learner.reference_logprobs, options, learning, TEMPERATURE)
    before = {name: p.detach().clone() for name, p in made.model.named_parameters()}
    losses = []
    for _ in range(3):
        groups = make_groups(REWARDS)
        metrics = made.update(groups, made.measure(groups), NONE)
        losses.append(metrics["implicit_reward/loss"])
    assert losses[0] == pytest.approx(np.log(2), abs=1e-5)
    assert losses[2] < losses[0]
    after = made.model.named_parameters()
    changed = {name for name, p in after if not torch.equal(p, before[name])}
    assert changed
    assert all("lora_" in name for name in changed)
    for parameter, own in zip(policy.parameters(), before.values(), strict=True):
        assert torch.equal(parameter, own)
