"""Sampling masks: the learner's probabilities are over the tokens that each was drawn among."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.fakes import byte_tokenizer, small_model
from tests.learning.sampling import groups_of, played, updated
from turnwise.config import ImplicitRewardConfig, LearningConfig, SelfTeacherConfig
from turnwise.learning.scoring import sampled_logprobs
from turnwise.learning.signals.reward_terms import METRIC, KLReward
from turnwise.tokens import KeptTokens, Tokens

pytestmark = pytest.mark.numbers

TRUNCATIONS: list[dict[str, float]] = [
    {"top_p": 0.9},
    {"top_p": 0.9, "top_k": 20},
    {"min_p": 0.2, "temperature": 0.7},
]


def policy() -> Any:
    """A random model that prefers some tokens to others."""
    model = small_model(byte_tokenizer())
    model.lm_head.weight.data *= 20
    return model


def sampled(model: Any, deterministic: bool = True, **options: float) -> list[Tokens]:
    return played(model, deterministic, returns_kept=True, **options)


def without(played: list[Tokens]) -> list[Tokens]:
    return [replace(tokens, kept=None) for tokens in played]


@pytest.mark.long
@pytest.mark.parametrize("options", TRUNCATIONS, ids=str)
@pytest.mark.parametrize("deterministic", [True, False], ids=["lockstep", "as they come"])
def test_the_engine_records_the_tokens_that_are_left(
    options: dict[str, float], deterministic: bool
) -> None:
    """Each sampled token is one of them, and its probability among them is the recorded one."""
    model = policy()
    for tokens in sampled(model, deterministic, **options):
        assert np.array_equal(tokens.kept.counts > 0, tokens.mask)
        with torch.no_grad():
            logits = model(input_ids=torch.from_numpy(tokens.ids[None].copy())).logits[0]
        logits /= options.get("temperature", 1.0)
        for place in np.flatnonzero(tokens.mask):
            left = tokens.kept[place : place + 1].ids
            assert tokens.ids[place] in left
            assert len(left) <= options.get("top_k", 250)
            own = logits[place - 1]
            logprob = own[tokens.ids[place]] - own[torch.from_numpy(left.copy())].logsumexp(0)
            assert logprob == pytest.approx(tokens.logprob[place], abs=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("options", TRUNCATIONS, ids=str)
@pytest.mark.parametrize("shared", [False, True], ids=["rows", "trees"])
def test_the_learner_gives_what_was_sampled(options: dict[str, float], shared: bool) -> None:
    model = policy()
    tokens = sampled(model, **options)
    masked = updated(model, tokens, options, share_prefixes=shared)
    assert masked["policy/logprob_gap"] < 1e-4
    assert masked["policy/ratio_max"] == pytest.approx(1, abs=1e-4)
    whole = updated(model, without(tokens), options, share_prefixes=shared)
    assert whole["policy/logprob_gap"] > 1e-2


def test_one_token_more_is_seen() -> None:
    options = TRUNCATIONS[0]
    model = policy()
    tokens = sampled(model, **options)
    sets = tokens[0].kept
    rows = [sets[place : place + 1].ids for place in range(len(sets))]
    place = int(np.flatnonzero(tokens[0].mask)[2])
    likely = int(tokens[0].ids[place])
    rows[place] = rows[place][rows[place] != (rows[place][0] + (rows[place][0] == likely))]
    rows[place] = np.union1d(rows[place][:1], [likely])
    wrong = [replace(tokens[0], kept=KeptTokens.of(rows)), *tokens[1:]]
    assert updated(model, wrong, options)["policy/logprob_gap"] > 1e-3


@pytest.mark.long
def test_what_is_compared_is_over_the_same_tokens() -> None:
    """The reference and the policy before the update, which are the policy itself here."""
    options = TRUNCATIONS[0]
    model = policy()
    tokens = sampled(model, **options)
    divergence = "policy/kl_reference"
    reference = {"kl_coefficient": 0.1}
    assert updated(model, tokens, options, reference)[divergence] == pytest.approx(0, abs=1e-6)
    before = updated(model, tokens, options, {"correction": "truncated"})
    assert before["correction/weight"] == pytest.approx(1, abs=1e-4)
    loose = updated(model, without(tokens), options, {"correction": "truncated"})
    assert loose["correction/weight"] < 0.99
    members = groups_of(tokens)[0].graded
    for member, found in zip(
        members, sampled_logprobs(model, members, LearningConfig(), 1.0), strict=True
    ):
        assert np.allclose(member.tokens.logprob, found, 0, 1e-4, equal_nan=True)


def test_a_kl_reward_is_over_the_same_tokens() -> None:
    model = policy()
    tokens = sampled(model, **TRUNCATIONS[0])

    def measured(played: list[Tokens]) -> float:
        def reference(members: Any) -> Any:
            return sampled_logprobs(model, members, LearningConfig(), 1.0)

        return KLReward(reference, 0.1).measure(groups_of(played)).metrics[METRIC]

    assert measured(tokens) == pytest.approx(0, abs=1e-5)
    assert measured(without(tokens)) > 1e-2


@pytest.mark.wing("algorithms")
@pytest.mark.long
def test_a_model_of_rewards_reads_the_whole_vocabulary() -> None:
    """It is no policy that anything was drawn from."""
    from turnwise_algorithms.signals.implicit_reward import ImplicitReward

    model = policy()
    tokens = sampled(model, **TRUNCATIONS[0])

    def rewards(played: list[Tokens]) -> list[Any]:
        def reference(members: Any) -> Any:
            return sampled_logprobs(policy_of_reference, members, LearningConfig(), 1.0)

        made = ImplicitReward(model, reference, ImplicitRewardConfig(), LearningConfig())
        groups = groups_of(played)
        return [made.measure(groups).of(member).token_rewards for member in groups[0].graded]

    policy_of_reference = small_model(byte_tokenizer(), seed=1)
    for one, other in zip(rewards(tokens), rewards(without(tokens)), strict=True):
        assert np.array_equal(one, other)


@pytest.mark.wing("algorithms")
def test_a_self_teachers_weights_are_ratios_over_the_same_tokens() -> None:
    from turnwise_algorithms.signals.self_teacher import SelfTeacher

    model = policy()
    words = np.array([1, 2]), np.array([3])

    def weights(played: list[Tokens]) -> torch.Tensor:
        teacher = SelfTeacher(model, words, SelfTeacherConfig(), LearningConfig(), 1.0)
        found: torch.Tensor = teacher._divergences(teacher.lessons(groups_of(played)))[1].detach()
        return found

    tokens = sampled(model, **TRUNCATIONS[0])
    assert torch.allclose(weights(tokens), torch.ones(()), 0, 1e-3)
    assert weights(without(tokens)).mean() < 0.99


def test_observations_in_the_loss_are_over_the_whole_vocabulary() -> None:
    options = TRUNCATIONS[0]
    tokens = sampled(policy(), **options)
    metrics = updated(policy(), tokens, options, mask_observations=False)
    assert metrics["policy/logprob_gap"] < 1e-4
    assert np.isfinite(metrics["policy/loss"])
