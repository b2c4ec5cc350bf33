"""Distillation: its advantages, and that in the mean they are the reverse divergence's gradient."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.algorithms.declared import functions
from turnwise.algorithms import make_algorithm
from turnwise.algorithms.estimators import EstimatorInput
from turnwise_algorithms.distillation import distillation

ESTIMATORS = functions("estimator")


def episode(mask: list[bool], policy: list[float], teacher: list[float]) -> EstimatorInput:
    return EstimatorInput(
        shaped_reward=1.0,
        turn=np.zeros(len(mask), np.int32),
        mask=np.array(mask),
        logprobs=np.array(policy),
        teacher_logprobs=np.array(teacher),
    )


def test_by_hand() -> None:
    """An observation, and a first token, which the teacher did not score."""
    nan = np.nan
    given_episode = episode(
        [True, True, False, True], [-1.0, -2.0, nan, -0.5], [nan, -0.5, nan, -3.0]
    )
    assert distillation(given_episode).tolist() == [0.0, 1.5, 0.0, -2.5]
    ((credit,),) = ESTIMATORS["distillation"]([[given_episode]])
    assert credit.advantages.tolist() == [0.0, 1.5, 0.0, -2.5]
    assert distillation(episode([False], [nan], [nan])).tolist() == [0.0]


@given(logits=st.lists(st.tuples(st.floats(-3, 3), st.floats(-3, 3)), min_size=2, max_size=6))
def test_its_mean_is_the_gradient_of_the_reverse_divergence(
    logits: list[tuple[float, float]],
) -> None:
    """Every token that can be sampled, with its probability."""
    columns = torch.tensor(logits, dtype=torch.float64)
    mine = columns[:, 0].clone().requires_grad_()
    policy, teacher = mine.log_softmax(-1), columns[:, 1].log_softmax(-1)
    (divergence,) = torch.autograd.grad((policy.exp() * (policy - teacher)).sum(), mine)
    size = len(logits)
    advantages = distillation(
        episode([True] * size, policy.detach().tolist(), teacher.detach().tolist())
    )
    surrogate = (policy.detach().exp() * torch.from_numpy(advantages) * mine.log_softmax(-1)).sum()
    (gradient,) = torch.autograd.grad(surrogate, mine)
    torch.testing.assert_close(gradient, -divergence, rtol=1e-9, atol=1e-12)


def test_without_a_teacher_it_says_so() -> None:
    lacking = EstimatorInput(1.0, np.zeros(1, np.int32), np.array([True]), logprobs=np.zeros(1))
    with pytest.raises(ValueError, match="teacher"):
        distillation(lacking)
    assert make_algorithm("distillation", {}).needs == {"teacher"}
