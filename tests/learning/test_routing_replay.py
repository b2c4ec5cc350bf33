"""Routing replay: the learner sends tokens to the experts that they were sampled with."""

import copy
from dataclasses import replace
from types import MethodType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.fakes import byte_tokenizer, small_mixture, small_model
from tests.forward.test_routers import moe
from tests.learning.sampling import groups_of, played, updated
from turnwise.algorithms import make_algorithm
from turnwise.config import ImplicitRewardConfig, LearningConfig
from turnwise.errors import ConfigError, NotSupportedError
from turnwise.forward.logprobs import token_logprobs
from turnwise.forward.routing import Replay, check_routing, recorded_experts, routers_in
from turnwise.learning.batch import shifted
from turnwise.learning.credits import Credits
from turnwise.learning.policy import PolicyLearner
from turnwise.tokens import NO_EXPERT, Tokens

pytestmark = pytest.mark.numbers

NEAR = 1e-5
"""The relative distance of the routers of two experts that take each other's place."""


def mixture() -> Any:
    """Experts in pairs whose routers are almost the same, of which three are chosen: so of one pair
    one alone is, and rounding decides which."""
    model: Any = small_mixture(byte_tokenizer())
    for router in routers_in(model):
        router.weight.data[1::2] = router.weight.data[::2] * (1 + NEAR)
    return model


def nudged(model: Any) -> Any:
    """A copy in which the routers of each pair have changed places."""
    other = copy.deepcopy(model)
    for router in routers_in(other):
        router.weight.data = router.weight.data.view(-1, 2, 32).flip(1).reshape(-1, 32)
    return other


def sampled(model: Any, deterministic: bool = True, turns: int = 2) -> list[Tokens]:
    return played(model, deterministic, turns, experts=True)


def without(played: list[Tokens]) -> list[Tokens]:
    return [replace(tokens, experts=None) for tokens in played]


@pytest.mark.long
@pytest.mark.parametrize("deterministic", [True, False], ids=["lockstep", "as they come"])
def test_what_the_engine_recorded_is_what_the_model_chooses(deterministic: bool) -> None:
    model = mixture()
    for tokens in sampled(model, deterministic):
        with recorded_experts(routers_in(model)) as found, torch.no_grad():
            model(input_ids=torch.from_numpy(tokens.ids[None].copy()), use_cache=False)
        own = torch.stack(found, 1).sort(-1).values.numpy()
        recorded = np.sort(tokens.experts, -1)
        assert (recorded[-1] == NO_EXPERT).all()
        pairs = recorded[:-1] // 2, own[:-1] // 2  # which of a pair is rounding's choice
        assert np.array_equal(*(np.sort(one, -1) for one in pairs))
        assert tokens.routed == len(tokens) - 1


@pytest.mark.long
def test_the_learner_gives_what_was_sampled_though_its_routers_choose_otherwise() -> None:
    model = mixture()
    tokens = sampled(model)
    same = updated(nudged(model), tokens)
    assert same["policy/logprob_gap"] < 1e-4
    assert same["policy/routing_changed"] == 1
    other = updated(nudged(model), without(tokens))
    assert other["policy/logprob_gap"] > 1e-2
    assert "policy/routing_changed" not in other


@pytest.mark.long
def test_one_wrong_expert_is_seen() -> None:
    """Experts are not in pairs here: of those rounding chooses one, and the learner's rounds as the
    processor has it. The wrong one is of the last token's last router, since what an earlier one
    does differently reaches the choices of those after it."""
    model = small_mixture(byte_tokenizer())
    tokens = sampled(model)
    right = updated(model, tokens)
    assert right["policy/logprob_gap"] < 1e-5
    assert right["policy/routing_changed"] == 0
    experts = tokens[0].experts
    wrong = experts.copy()
    wrong[-2, -1] = (wrong[-2, -1] + 1) % 8
    metrics = updated(model, [replace(tokens[0], experts=wrong), *tokens[1:]])
    assert metrics["policy/logprob_gap"] > 1e-3
    assert metrics["policy/routing_changed"] == pytest.approx(1 / sum(len(t) - 1 for t in tokens))


@pytest.mark.wing("algorithms")
@pytest.mark.long
def test_a_reward_of_tokens_is_measured_as_the_model_routes() -> None:
    """And so is what is compared with it."""
    model = nudged(mixture())
    tokens = sampled(mixture())
    moved = [_rewarded(model, rows) for rows in (tokens, without(tokens))]
    assert all(torch.equal(*both) for both in zip(*moved, strict=True))


def _rewarded(model: Any, played: list[Tokens]) -> list[Tensor]:
    """The weights of a model of token rewards after an update."""
    from turnwise_algorithms.signals.implicit_reward import ImplicitReward

    groups = groups_of(played)
    policy = PolicyLearner(
        copy.deepcopy(model),
        copy.deepcopy(model),
        LearningConfig(),
        make_algorithm("grpo", {"kl_coefficient": 0.1}),
    )
    reward = ImplicitReward(
        model, policy.reference_logprobs, ImplicitRewardConfig(), LearningConfig()
    )
    reward.update(groups, reward.measure(groups), Credits({}, set()))
    return list(reward.model.parameters())


def _by_hand(router: Any, recorded: Tensor) -> None:
    """A softmax over the recorded experts alone (R3, arXiv 2510.11370)."""

    def forward(self: Any, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits = hidden.reshape(-1, 32) @ self.weight.T
        return logits, logits.gather(1, recorded).softmax(-1), recorded

    router.forward = MethodType(forward, router)


@pytest.mark.long
def test_gates_and_their_gradient_are_those_of_the_paper() -> None:
    tokens = sampled(mixture())[2]
    model, other = nudged(mixture()), nudged(mixture())
    ids = torch.from_numpy(tokens.ids.copy())
    recorded = torch.from_numpy(tokens.experts[:-1].astype(np.int64))
    for number, router in enumerate(routers_in(other)):
        _by_hand(router, recorded[:, number])
    logits = other(input_ids=ids[None, :-1], use_cache=False).logits[0]
    exact = logits.log_softmax(-1).gather(1, ids[1:, None])[:, 0]
    everything = torch.ones(1, len(ids) - 1, dtype=torch.bool)
    replay = Replay(recorded[None])
    arguments = ids[None, :-1], everything, ids[1:], 1.0, False
    found, _ = token_logprobs(model, *arguments, replay=replay)
    assert torch.allclose(found, exact, 1e-5, 1e-5)
    found.sum().backward()
    exact.sum().backward()
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.allclose(one.grad, two.grad, 1e-3, 1e-4)
    assert all(router.weight.grad.abs().max() > 1e-3 for router in routers_in(model))


@pytest.mark.long
@pytest.mark.parametrize("padding", [0, 60], ids=["padded", "in a row"])
def test_texts_together_have_what_each_has_alone(padding: int) -> None:
    model, texts = nudged(mixture()), sampled(mixture())
    longer = sampled(mixture(), turns=2 if not padding else 6)[0]
    rows = [*texts, longer]

    def scored(rows: list[Tokens]) -> tuple[Tensor, Replay]:
        inputs, selected = shifted([(row.ids, row.mask) for row in rows])
        experts = torch.full((*inputs.shape, 2, 3), NO_EXPERT)
        for place, row in zip(experts, rows, strict=True):
            place[: len(row) - 1] = torch.from_numpy(row.experts[:-1].astype(np.int64))
        targets = torch.from_numpy(np.concatenate([row.ids[row.mask] for row in rows]))
        replay = Replay(experts)
        with torch.no_grad():
            found, _ = token_logprobs(model, inputs, selected, targets, 1.0, False, replay=replay)
        return found, replay

    together, replay = scored(rows)
    alone = torch.cat([scored([row])[0] for row in rows])
    assert torch.allclose(together, alone, 1e-4, 1e-4)
    assert replay.tokens == replay.changed == sum(len(row) - 1 for row in rows)


def test_a_model_without_experts_is_refused() -> None:
    dense = small_model(byte_tokenizer())
    with pytest.raises(NotSupportedError, match="Qwen3ForCausalLM is none"):
        check_routing(dense)
    with pytest.raises(ConfigError, match="no routing to record"):
        sampled(dense)


def test_routers_that_leave_the_choice_to_others_are_refused() -> None:
    with pytest.raises(NotSupportedError, match="by one top-k of their own"):
        check_routing(moe("deepseek_v3"))


@pytest.mark.long
def test_another_number_of_routers_is_refused() -> None:
    tokens = sampled(mixture())
    wrong = [replace(one, experts=one.experts[:, :1]) for one in tokens if one.experts is not None]
    with pytest.raises(NotSupportedError, match="sampled with 1 routers"):
        updated(mixture(), wrong)
