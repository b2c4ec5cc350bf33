"""MIPU: the gap against the formula, what an undone update leaves, and a state that goes on."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from tests.learning.building import REWARDS, load_model, make_groups, weights
from turnwise.algorithms import make_algorithm
from turnwise.config import LearningConfig
from turnwise.learning.credits import estimate
from turnwise.learning.learner import UpdateReport
from turnwise.learning.policy import PolicyLearner
from turnwise.learning.signals.base import Signals
from turnwise.types import Group
from turnwise_algorithms.acceptance import tolerance_at
from turnwise_algorithms.signals.acceptance import Acceptance

STRICT, LENIENT = {"tolerance": 0.0, "last_tolerance": 0.0}, {"tolerance": 9.0}


def mipu(numbers: dict[str, float], dtype: torch.dtype = torch.float32) -> PolicyLearner:
    algorithm, config = make_algorithm("mipu", numbers), LearningConfig(learning_rate=1e-2)
    return PolicyLearner(load_model(dtype=dtype), None, config, algorithm)


def step(trained: PolicyLearner, test: Acceptance, groups: list[Group]) -> tuple[Any, UpdateReport]:
    """A step of a run: what the test measured, and the report of the update."""
    signals = test.measure(groups)
    credits = estimate(groups, signals, trained.algorithm)
    report = trained.update(groups, credits, auxiliary=test.auxiliary_loss(signals))
    test.update(groups, signals, credits)
    return signals.metrics, report


def gap_by_hand(model: Any, groups: list[Group]) -> float:
    """-mean rho A, one text at a time in float64, A the reward's z-score in its group."""
    terms = []
    for group in groups:
        rewards = np.array([member.reward for member in group.graded])
        for member in group.graded:
            tokens = member.tokens
            ids, places = torch.tensor(tokens.ids), np.flatnonzero(tokens.mask)
            with torch.no_grad():
                logprobs = model(ids[None]).logits[0].double().log_softmax(-1)
            own = logprobs[places - 1, ids[places]].numpy()
            rho = math.exp(float(np.mean(own - tokens.logprob[places])))
            terms.append(rho * (member.reward - rewards.mean()) / (rewards.std(ddof=1) + 1e-6))
    return -float(np.mean(terms))


def failing(model: Any) -> list[Group]:
    """Groups whose gap is below 0 under a model."""
    candidates = (make_groups(REWARDS, seed) for seed in range(1, 50))
    return next(groups for groups in candidates if gap_by_hand(model, groups) < -0.05)


def test_the_gap_is_that_of_the_formula() -> None:
    trained = mipu(LENIENT)
    test, groups = Acceptance(trained), make_groups(REWARDS)
    metrics, report = step(trained, test, groups)
    assert metrics == {}
    assert report.metrics["policy/updates"] == 1
    expected = gap_by_hand(trained.model, groups)
    metrics, report = step(trained, test, groups)
    assert metrics == {"acceptance/gap": pytest.approx(expected, abs=1e-4), "acceptance/undone": 0}
    assert report.metrics["policy/updates"] == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_update_that_fails_is_undone(dtype: torch.dtype) -> None:
    """Weights, rounded ones with their masters, and optimizer are those of before it, the step that
    undoes it makes none, and the next one is what it would be without both."""
    trained, other = mipu(STRICT, dtype), mipu(STRICT, dtype)
    test, alone = Acceptance(trained), Acceptance(other)
    groups, before = make_groups(REWARDS), weights(trained.model)
    step(trained, test, groups)
    assert not torch.equal(before, weights(trained.model))
    metrics, report = step(trained, test, failing(trained.model))
    assert metrics["acceptance/undone"] == 1
    assert report.metrics["policy/updates"] == 0
    assert "the last update is undone" in report.problems[0]
    assert torch.equal(before, weights(trained.model))
    assert trained.optimizer.updates == 0
    # The sampler has the old weights again: there is nothing to test.
    assert step(trained, test, groups)[0] == {}
    step(other, alone, groups)
    assert torch.equal(weights(trained.model), weights(other.model))
    masters = [one.optimizer.state()["masters"] for one in (trained, other)]
    assert all(torch.equal(own, masters[1][name]) for name, own in masters[0].items())


def test_a_state_goes_on(tmp_path: Any) -> None:
    """Of a test that is due, of weights that are gone."""
    trained = mipu(STRICT)
    test = Acceptance(trained)
    before = weights(trained.model)
    step(trained, test, make_groups(REWARDS))
    torch.save([test.state(), trained.state(), trained.model.state_dict()], tmp_path / "state")
    own, learned, model = torch.load(tmp_path / "state", weights_only=False)
    again = mipu(STRICT)
    again.model.load_state_dict(model)
    again.load_state(learned)
    resumed = Acceptance(again)
    resumed.load_state(own)
    found = [step(*pair, failing(trained.model)) for pair in ((again, resumed), (trained, test))]
    assert found[0][0] == found[1][0]
    assert found[0][0]["acceptance/undone"] == 1
    assert torch.equal(before, weights(again.model))


def test_a_step_is_tested_once() -> None:
    """The replies of a judge that is trained are measured after the episodes."""
    trained = mipu(LENIENT)
    test, groups = Acceptance(trained), make_groups(REWARDS)
    step(trained, test, groups)
    assert test.measure([]) == Signals()
    assert test.measure(groups).metrics
    assert test.measure(groups) == Signals()


def test_the_tolerance_falls_to_the_last() -> None:
    found = [tolerance_at(step, 4e-3, 1e-3, 100) for step in (0, 50, 100, 900)]
    assert found == pytest.approx([4e-3, 2.5e-3, 1e-3, 1e-3])
