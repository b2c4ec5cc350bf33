"""The measured noise of a gradient is that of its groups, and measuring changes no update."""

import math

import numpy as np
import torch

from tests.learning.building import GRPO, load_model, make_groups
from turnwise.config import LearningConfig
from turnwise.learning.credits import estimate
from turnwise.learning.metric_sums import GradientNoise
from turnwise.learning.policy import PolicyLearner
from turnwise.learning.signals.base import Signals


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


def test_one_group_says_nothing() -> None:
    assert measured(np.ones((1, 5)), 1) == {}
    assert measured(np.ones((0, 5)), 4) == {}


def test_measuring_changes_no_update() -> None:
    """The gradient is summed in another order, and is the same."""
    weights, metrics = [], []
    for measure in (False, True):
        groups = make_groups([[1.0, 0.0, 0.0], [0.5, 1.0], [0.0, 1.0, 0.2]])
        credits = estimate(groups, Signals(), GRPO)
        config = LearningConfig(learning_rate=1e-2, tokens_per_micro_batch=64)
        learner = PolicyLearner(load_model("qwen3"), None, config, GRPO)
        metrics.append(learner.update(groups, credits, measure_variance=measure).metrics)
        weights.append(torch.cat([p.detach().flatten() for p in learner.model.parameters()]))
    assert torch.allclose(weights[0], weights[1], atol=1e-5)
    added = set(metrics[1]) - set(metrics[0])
    assert added == {"policy/gradient_variance", "policy/gradient_signal"}
    total = metrics[1]["policy/gradient_variance"] + metrics[1]["policy/gradient_signal"]
    assert math.isclose(total, metrics[1]["policy/gradient_norm"] ** 2, rel_tol=1e-3)
    assert metrics[1]["policy/gradient_variance"] > 0
