"""Log-probabilities of given tokens against a float64 softmax, one sequence at a time."""

import numpy as np
import pytest
import torch

from tests.learning.building import load_model, make_groups
from turnwise.config import LearningConfig
from turnwise.forward.logprobs import score_norms
from turnwise.learning.scoring import sampled_logprobs, score

TEMPERATURE = 0.7


@pytest.mark.parametrize("budget", [64, 10_000])
def test_they_are_the_models_own_in_any_micro_batches(budget: int) -> None:
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


def test_those_of_a_trajectory_are_at_its_sampled_tokens() -> None:
    members = make_groups([[1.0, 0.0]])[0].trajectories
    found = sampled_logprobs(load_model("qwen3").eval(), members, LearningConfig(), TEMPERATURE)
    for member, row in zip(members, found, strict=True):
        assert row.dtype == np.float64
        assert (np.isfinite(row) == member.tokens.mask).all()
    assert sampled_logprobs(load_model("qwen3"), [], LearningConfig(), TEMPERATURE) == []


def test_chunks_change_no_score_norm_and_certainty_has_none() -> None:
    model, ids = load_model("llama").eval(), torch.arange(1, 13)[None]
    selected = torch.ones(1, 11, dtype=torch.bool)
    arguments = (model, ids[:, :-1], selected, ids[0, 1:], 1.0, False)
    whole = score_norms(*arguments)
    torch.testing.assert_close(score_norms(*arguments, logits_per_chunk=100), whole)
    assert ((whole >= 0) & (whole <= 2)).all()
    sure = model(input_ids=ids[:, :-1]).logits[0].argmax(-1)
    cold = (model, ids[:, :-1], selected, sure, 1e-4, False)
    assert score_norms(*cold).abs().max() < 1e-6
