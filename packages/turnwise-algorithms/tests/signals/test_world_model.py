"""PaW: its gradient on a whole model against equations 4 to 11, transition by transition."""

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch

from tests.learning.building import REWARDS, load_model, make_groups, members_of
from turnwise.algorithms import make_algorithm
from turnwise.config import LearningConfig
from turnwise.learning.credits import estimate
from turnwise.learning.signals.base import Signals
from turnwise.tokens import Source
from turnwise_algorithms.signals.world_model import WorldModel

NUMBERS = {"uncertain": 0.6, "confidence": 0.1, "best_return": 2.0}
TEMPERATURE = 0.7


def by_hand(model: Any, groups: list[Any]) -> torch.Tensor:
    """The loss in float64, from the groups' arrays alone."""
    pool = []
    for group in groups:
        for member in group.graded:
            tokens = member.tokens
            for turn in range(int(tokens.turn.max()) + 1):
                acted = (tokens.turn == turn) & (tokens.source == Source.MODEL)
                q = [math.exp(value) for value in tokens.logprob[acted].tolist()]
                places = np.flatnonzero((tokens.turn == turn) & (tokens.source == Source.TOOL))
                pool.append((-sum(p * math.log(p) for p in q) / len(q), group, tokens, places))
    pool.sort(key=lambda entry: -entry[0])
    kept = pool[: math.ceil(0.6 * len(pool))]
    total = torch.zeros((), dtype=torch.float64)
    for group in groups:
        own = [entry for entry in kept if entry[1] is group]
        rewards = [member.reward for member in group.graded]
        coefficient = 1 - sum(rewards) / len(rewards) / 2
        for _, _, tokens, places in own:
            ids = torch.tensor(tokens.ids)
            chances = (model(input_ids=ids[None]).logits[0] / TEMPERATURE).softmax(-1)
            p = chances[places - 1, ids[places]]
            error = ((p <= 0.1) * (1 - p)).sum() / len(places)
            total = total + coefficient * error / len(own) / len(groups)
    return total


def test_the_gradient_is_that_of_the_equations() -> None:
    algorithm, model = make_algorithm("paw", NUMBERS), load_model("llama")
    groups = make_groups([*REWARDS, [2.0, 2.0], [None, 0.0]])
    credits = estimate(groups, Signals(), algorithm)
    told = WorldModel(model, algorithm, LearningConfig(), TEMPERATURE)
    model.zero_grad()
    assert told.has_update(groups, credits)
    assert told.add_gradient(groups, credits) == ""
    found = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    exact = copy.deepcopy(model).double()
    exact.zero_grad()
    loss = by_hand(exact, groups)
    loss.backward()
    wanted = torch.cat([p.grad.flatten() for p in exact.parameters() if p.grad is not None])
    assert found.abs().max().item() > 1e-3
    assert found.double().tolist() == pytest.approx(wanted.tolist(), abs=1e-6, rel=1e-3)
    metrics = told.update(groups, Signals(), credits)
    assert metrics == {"world_model/loss": pytest.approx(loss.item(), rel=1e-5)}
    assert told.update(groups, Signals(), credits) == {}


def test_where_all_succeed_nothing_is_predicted() -> None:
    algorithm = make_algorithm("paw", {"best_return": 1.0})
    told = WorldModel(load_model("llama"), algorithm, LearningConfig(), 1.0)
    groups = make_groups([[1.0, 1.0], [1.5, 1.0]])
    assert len(members_of(groups)) == 4
    assert not told.has_update(groups, estimate(groups, Signals(), algorithm))
