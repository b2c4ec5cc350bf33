"""The sampler of score centering: its gradient on a whole model against float64, token by token."""

import copy

import numpy as np
import pytest
import torch

from tests.learning.building import load_model, make_groups, members_of
from turnwise.algorithms import make_algorithm
from turnwise.config import LearningConfig
from turnwise.learning.credits import estimate
from turnwise.learning.signals.base import Signals
from turnwise_algorithms.signals.sampler import Sampler


def test_the_gradient_is_the_expectation_of_every_trained_token() -> None:
    algorithm, model = make_algorithm("score_centering", {}), load_model("llama")
    groups = make_groups([[1.0, 0.0, None, 0.5], [0.0, 0.0], [0.0, 1.0]])
    credits = estimate(groups, Signals(), algorithm)
    sampler = Sampler(
        model, algorithm, LearningConfig(), 0.7, lambda own: {k: 0.9 * v for k, v in own.items()}
    )
    sampler.measure(groups)
    with torch.no_grad():  # an update since
        for parameter in model.parameters():
            parameter *= 1.1
    model.zero_grad()
    assert sampler.add_gradient(groups, credits) == ""
    found = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    policy, told = copy.deepcopy(model).double(), copy.deepcopy(sampler.model).double()
    policy.zero_grad()
    total, count = torch.zeros((), dtype=torch.float64), 0
    for member in members_of(groups):
        ids = torch.tensor(member.tokens.ids)[None]
        own = (policy(input_ids=ids).logits[0] / 0.7).log_softmax(-1)
        theirs = (told(input_ids=ids).logits[0] / 0.7).softmax(-1).detach()
        for place in np.flatnonzero(member.tokens.mask):
            advantage = float(credits.advantages[member.id][place])
            total = total + advantage * (theirs[place - 1] * own[place - 1]).sum()
            count += 1
    (total / count).backward()
    wanted = torch.cat([p.grad.flatten() for p in policy.parameters() if p.grad is not None])
    assert found.abs().max().item() > 1e-4
    assert found.double().tolist() == pytest.approx(wanted.tolist(), abs=1e-5, rel=1e-3)
