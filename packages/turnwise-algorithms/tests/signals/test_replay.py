"""Experience replay: chances against the formula, the gradient by hand, a state that goes on."""

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch

from tests.learning.building import load_model, make_groups
from turnwise.algorithms import make_algorithm
from turnwise.algorithms.algorithm import Algorithm
from turnwise.config import LearningConfig
from turnwise.learning.credits import Credits, estimate
from turnwise.learning.signals.base import Signals
from turnwise_algorithms.experience_replay import freshness
from turnwise_algorithms.signals.replay import Replay

NUMBERS = {"replayed": 2.0, "age_decay": 3.0, "exponent": 0.5, "importance": 1.0}
CHOSEN = NUMBERS | {"estimator": "dr_grpo", "whitening": False}
ALGORITHM = make_algorithm("fresh_replay", CHOSEN)
OF_NEW_ONES = {"correction": "truncated", "token_filter": "clip_cov", "kl_coefficient": 0.1}
"""Choices that are nothing to earlier trajectories."""
SEQUENCE = {"ratio_level": "sequence", "correction": "none"}


def taken_in(model: Any, algorithm: Algorithm = ALGORITHM) -> tuple[Replay, list[Any], Credits]:
    """A replay that knows two steps, with groups and credits of the last."""
    replay = Replay(model, algorithm, LearningConfig(), 0.7, seed=1)
    for rewards in ([[1.0, 0.0, None, 0.5]], [[0.0, 1.0]]):
        groups = make_groups(rewards)
        credits = estimate(groups, Signals(), algorithm)
        replay.update(groups, Signals(), credits)
    return replay, groups, credits


def test_chances_are_of_priority_and_age() -> None:
    weights = [(2 * math.exp(-1 / 3)) ** 0.6, (1 * math.exp(-4 / 3)) ** 0.6, 0.5**0.6]
    found = freshness(np.array([2.0, 1.0, 0.5]), np.array([1.0, 4.0, 0.0]), 3.0, 0.6)
    assert found.tolist() == pytest.approx([one / sum(weights) for one in weights])


@pytest.mark.parametrize("chosen", [{}, OF_NEW_ONES, SEQUENCE], ids=["token", "terms", "sequence"])
def test_the_gradient_is_that_of_the_drawn_ones(chosen: dict[str, Any]) -> None:
    model = load_model("llama")
    replay, groups, credits = taken_in(model, make_algorithm("fresh_replay", CHOSEN | chosen))
    assert [(one.step, round(one.priority, 3)) for one in replay.past] == [
        (0, 1.0),
        (0, 0.0),
        (0, 0.5),
        (1, 0.0),
        (1, 1.0),
    ]
    drawn = replay.drawn(4, groups[0].id)
    model.zero_grad()
    assert replay.add_gradient(groups, credits) == ""
    found = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    chances = freshness(
        np.array([one.priority for one in replay.past]), np.array([2.0, 2, 2, 1, 1]), 3.0, 0.5
    )
    past = [one.example.ids for one in replay.past]
    scales = [1 / chances[next(i for i, ids in enumerate(past) if ids is own.ids)] for own in drawn]
    count = sum(int(own.trained.sum()) for own in drawn)
    policy, total = copy.deepcopy(model).double(), torch.zeros((), dtype=torch.float64)
    policy.zero_grad()
    for own, scale in zip(drawn, scales, strict=True):
        assert own.weight == pytest.approx(scale / max(scales) / count)
        ids = torch.tensor(own.ids)
        logprobs = (policy(input_ids=ids[None]).logits[0] / 0.7).log_softmax(-1)
        places = np.flatnonzero(own.trained)
        moved = logprobs[places - 1, ids[places]] - torch.tensor(own.behaviour_logprob[places])
        if chosen == SEQUENCE:  # the mean, with the gradient of each
            moved = moved.mean().detach() + moved - moved.detach()
        for ratio, advantage in zip(moved.exp(), own.advantage[places].tolist(), strict=True):
            loss = torch.maximum(-ratio * advantage, -ratio.clamp(0.8, 1.2) * advantage)
            total = total + own.weight * loss
    total.backward()
    wanted = torch.cat([p.grad.flatten() for p in policy.parameters() if p.grad is not None])
    assert found.abs().max().item() > 1e-4
    assert found.double().tolist() == pytest.approx(wanted.tolist(), abs=1e-5, rel=1e-3)


def test_an_update_without_new_ones_learns_from_none() -> None:
    """As where no episode of a step has a grade, or updates are more than groups."""
    replay, groups, credits = taken_in(load_model("llama"))
    assert replay.has_update(groups, credits)
    assert not replay.has_update([], credits)
    assert not replay.has_update(make_groups([[None, None]]), Credits({}, frozenset()))


def test_it_goes_on_from_its_state() -> None:
    model = load_model("llama")
    replay, groups, _ = taken_in(model)
    again = Replay(model, ALGORITHM, LearningConfig(), 0.7, seed=1)
    again.load_state(replay.state())
    pairs = zip(replay.drawn(6, groups[0].id), again.drawn(6, groups[0].id), strict=True)
    assert all(a.name == b.name and a.weight == b.weight for a, b in pairs)
