"""The value head: what reaches the policy's body, against float64, and what must not."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model

from tests.learning.building import (
    PPO,
    Step,
    credited,
    descend_plainly,
    load_model,
    make_groups,
    weights,
)
from turnwise.config import LearningConfig, ValueHeadConfig
from turnwise.learning.credits import Credits
from turnwise.learning.policy import PolicyLearner, UpdateReport
from turnwise.learning.signals.value_head import ValueHead, ValueLoss

pytestmark = pytest.mark.numbers

REWARDS = [[1.0, 0.0, None], [0.5, 1.0]]


def made(model: Any, micro: int = 8192, **options: Any) -> tuple[PolicyLearner, ValueHead]:
    """A learner that descends plainly, so that its gradient can be read off, and a head that is not
    0 to begin with."""
    learning = LearningConfig(tokens_per_micro_batch=micro)
    learner = descend_plainly(PolicyLearner(model, None, learning, PPO))
    config = ValueHeadConfig(**{"kind": "head", "learning_rate": 1e-2, **options})
    head = ValueHead(model, config, learning)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        torch.nn.init.normal_(head.head.weight)
    return learner, head


def prepared(head: ValueHead) -> Step:
    return credited(head, make_groups(REWARDS))


def update(learner: PolicyLearner, head: ValueHead, step: Step) -> UpdateReport:
    groups, signals, credits = step
    return learner.update(groups, credits, auxiliary=ValueLoss(head, signals))


def change(model: Any, **options: Any) -> torch.Tensor:
    """The gradient of one update."""
    learner, head = made(model, **options)
    step, before = prepared(head), weights(model)
    update(learner, head, step)
    assert head.head.weight.grad is None
    return before - weights(model)


def value_gradient(model: Any, head: ValueHead, step: Step) -> torch.Tensor:
    """Of the mean of (V - T)^2 / 2 over all sampled tokens, with respect to the policy, float64."""
    groups, _, credits = step
    model = copy.deepcopy(model).double()
    layer = copy.deepcopy(head.head).double()
    losses = []
    for member in (m for group in groups for m in group.graded):
        ids = torch.tensor(member.tokens.ids)
        hidden = model.get_decoder()(input_ids=ids[None]).last_hidden_state[0]
        for place in np.flatnonzero(member.tokens.mask):
            target = float(credits.value_targets[member.id][place])
            losses.append(0.5 * (layer(hidden[place - 1])[0] - target) ** 2)
    torch.stack(losses).mean().backward()
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]
    return torch.cat([gradient.flatten() for gradient in gradients])


@pytest.mark.long
@pytest.mark.parametrize("micro", [64, 8192])
def test_value_gradients_reach_the_body(micro: int) -> None:
    """By the coefficient, beside the policy's gradient, whatever the micro-batches."""
    _, head = made(load_model())
    expected = value_gradient(load_model(), head, prepared(head))
    found = change(load_model(), micro=micro, body_coefficient=0.3)
    alone = change(load_model(), micro=micro, body_coefficient=0.0)
    assert expected.norm() > 1e-3
    torch.testing.assert_close((found - alone) / 0.3, expected, rtol=1e-3, atol=2e-5)


def test_with_coefficient_zero_the_policy_is_updated_as_without_a_head() -> None:
    model = load_model()
    learner, head = made(model)
    groups, _, credits = prepared(head)
    learner.update(groups, credits)
    with_head = load_model()
    change(with_head, body_coefficient=0.0)
    assert torch.equal(weights(model), weights(with_head))


@pytest.mark.long
def test_it_learns_alone_and_leaves_the_body_where_it_is() -> None:
    """As in pre-training: returns are explained, and not a bit of the policy has moved."""
    model = load_model()
    _, head = made(model, clip=10.0, learning_rate=3e-2)
    torch.nn.init.zeros_(head.head.weight)
    before = weights(model)
    first = head.update(*prepared(head))
    for _ in range(80):
        last = head.update(*prepared(head))
    assert first["critic/explained_variance"] == 0
    assert last["critic/explained_variance"] > 0.5
    assert last["critic/loss"] < first["critic/loss"] / 2
    assert torch.equal(weights(model), before)


def test_values_are_read_off_the_policy_as_it_is() -> None:
    model = load_model()
    _, head = made(model)
    torch.nn.init.zeros_(model.get_decoder().norm.weight)
    groups, signals, _ = prepared(head)
    assert signals.of(groups[0].trajectories[2]).values is None
    for member in (m for group in groups for m in group.graded):
        values = signals.of(member).values
        np.testing.assert_array_equal(np.isnan(values), ~member.tokens.mask)
        assert not values[member.tokens.mask].any()


@pytest.mark.long
def test_what_it_saves_is_the_head_and_it_resumes_exactly() -> None:
    heads = []
    for _ in range(2):
        _, head = made(load_model())
        head.update(*prepared(head))
        heads.append(head)
    whole, stopped = heads
    assert set(whole.state()["weights"]) == {"head.weight", "head.bias"}
    _, resumed = made(load_model())
    resumed.load_state(copy.deepcopy(stopped.state()))
    for head in (whole, resumed):
        head.update(*prepared(head))
    assert torch.equal(whole.head.weight, resumed.head.weight)
    assert torch.equal(whole.head.bias, resumed.head.bias)


def test_of_an_adapted_model_the_adapters_alone_get_gradients() -> None:
    adapters = LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(load_model(), adapters)
    learner, head = made(model)
    names = {name for name, p in model.named_parameters() if p.requires_grad}
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    assert head.add_body_gradient(*prepared(head)) == ""
    assert {name for name, p in model.named_parameters() if p.grad is not None} == names
    learner.optimizer.apply()
    moved = {n for n, p in model.named_parameters() if not torch.equal(p, before[n])}
    assert moved
    assert moved <= names


def test_of_a_bfloat16_body_the_head_is_float32() -> None:
    model = load_model().to(torch.bfloat16)
    learner, head = made(model)
    step = prepared(head)
    assert head.head.weight.dtype == torch.float32
    assert update(learner, head, step).problems == []
    assert np.isfinite(head.update(*step)["critic/loss"])


def test_a_value_that_is_no_number_changes_nothing() -> None:
    model = load_model()
    learner, head = made(model)
    step, before = prepared(head), weights(model)
    torch.nn.init.constant_(head.head.bias, float("nan"))
    (problem,) = update(learner, head, step).problems
    assert problem == "the value loss is nan"
    assert torch.equal(weights(model), before)


def test_values_alone_make_no_update_of_the_policy() -> None:
    model = load_model()
    learner, head = made(model)
    (groups, signals, credits), before = prepared(head), weights(model)
    nothing = {name: np.zeros_like(own) for name, own in credits.advantages.items()}
    step = groups, signals, Credits(nothing, credits.trained, credits.value_targets)
    assert update(learner, head, step).metrics["policy/updates"] == 0
    assert torch.equal(weights(model), before)
