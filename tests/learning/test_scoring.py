"""Log-probabilities of given tokens against a float64 softmax, one sequence at a time."""

from typing import Any

import numpy as np
import pytest
import torch

from turnwise.algorithms import make_algorithm
from turnwise.config import LearningConfig
from turnwise.learning.credits import estimate
from turnwise.learning.logprobs import score_norms
from turnwise.learning.scoring import sampled_logprobs, score
from turnwise.learning.signals.score_norms import ScoreNorms

TEMPERATURE = 0.7


@pytest.mark.parametrize("budget", [64, 10_000])
def test_they_are_the_models_own_in_any_micro_batches(load_model: Any, budget: int) -> None:
    """Sequences of which nothing, a first token, or a token in the middle is wanted among them."""
    model = load_model("qwen3").eval()
    generator = np.random.default_rng(0)
    sequences = []
    for length in (1, 30, 7, 50, 30):
        ids = generator.integers(0, 50, length)
        sequences.append((ids, generator.random(length) < 0.5))
    sequences[0][1][:] = True
    sequences[1][1][:] = False
    sequences[2][1][:] = [True, False, False, True, False, False, False]
    found = score(model, sequences, LearningConfig(tokens_per_micro_batch=budget), TEMPERATURE)
    for (ids, wanted), row in zip(sequences, found, strict=True):
        with torch.no_grad():
            logits = model(input_ids=torch.from_numpy(ids)[None]).logits[0].double()
        logprobs = torch.log_softmax(logits / TEMPERATURE, dim=-1)
        expected = np.full(len(ids), np.nan)
        for place in np.flatnonzero(wanted):
            if place > 0:
                expected[place] = logprobs[place - 1, ids[place]].item()
        assert row.dtype == np.float32
        np.testing.assert_allclose(row, expected, atol=1e-4)


def test_those_of_a_trajectory_are_at_its_sampled_tokens(load_model: Any, make_groups: Any) -> None:
    members = make_groups([[1.0, 0.0]])[0].trajectories
    found = sampled_logprobs(load_model("qwen3").eval(), members, LearningConfig(), TEMPERATURE)
    for member, row in zip(members, found, strict=True):
        assert row.dtype == np.float64
        assert (np.isfinite(row) == member.tokens.mask).all()
    assert sampled_logprobs(load_model("qwen3"), [], LearningConfig(), TEMPERATURE) == []


@pytest.mark.parametrize("budget", [64, 10_000])
def test_score_norms_are_the_squared_gradients_of_log_probabilities(
    load_model: Any, make_groups: Any, budget: int
) -> None:
    """By autograd through float64 logits of a model that bounds them; nothing for the ungraded."""
    model, groups = load_model("gemma2").eval(), make_groups([[1.0, None, 0.0]])
    config = LearningConfig(tokens_per_micro_batch=budget)
    signals = ScoreNorms(model, TEMPERATURE, config).measure(groups)
    assert signals.of(groups[0].trajectories[1]).score_norms is None
    for member in groups[0].graded:
        ids, mask = torch.tensor(member.tokens.ids), member.tokens.mask
        with torch.no_grad():
            logits = model(input_ids=ids[None]).logits[0].double() / TEMPERATURE
        norms = signals.of(member).score_norms
        assert norms.dtype == np.float32
        assert (np.isfinite(norms) == mask).all()
        for place in np.flatnonzero(mask):
            before = logits[place - 1].clone().requires_grad_()
            (slope,) = torch.autograd.grad(before.log_softmax(-1)[ids[place]], before)
            assert norms[place] == pytest.approx(float(slope @ slope), abs=1e-5)
    credits = estimate(groups, signals, make_algorithm("otb", {}))
    assert any(own.any() for own in credits.advantages.values())


def test_chunks_change_no_score_norm_and_certainty_has_none(load_model: Any) -> None:
    model, ids = load_model("llama").eval(), torch.arange(1, 13)[None]
    selected = torch.ones(1, 11, dtype=torch.bool)
    arguments = (model, ids[:, :-1], selected, ids[0, 1:], 1.0, False)
    whole = score_norms(*arguments)
    torch.testing.assert_close(score_norms(*arguments, logits_per_chunk=100), whole)
    assert ((whole >= 0) & (whole <= 2)).all()
    sure = model(input_ids=ids[:, :-1]).logits[0].argmax(-1)
    cold = (model, ids[:, :-1], selected, sure, 1e-4, False)
    assert score_norms(*cold).abs().max() < 1e-6
