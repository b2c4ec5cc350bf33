"""Score norms: by autograd, whatever the micro-batches."""

from typing import Any

import numpy as np
import pytest
import torch

from turnwise.algorithms import make_algorithm
from turnwise.config import LearningConfig
from turnwise.learning.credits import estimate
from turnwise.learning.scoring import scored_by
from turnwise_algorithms.signals.score_norms import ScoreNorms

TEMPERATURE = 0.7


@pytest.mark.parametrize("budget", [64, 10_000])
def test_score_norms_are_the_squared_gradients_of_log_probabilities(
    load_model: Any, make_groups: Any, budget: int
) -> None:
    """By autograd through float64 logits of a model that bounds them; nothing for the ungraded."""
    model, groups = load_model("gemma2").eval(), make_groups([[1.0, None, 0.0]])
    config = LearningConfig(tokens_per_micro_batch=budget)
    signals = ScoreNorms(scored_by(model, config, TEMPERATURE)).measure(groups)
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
