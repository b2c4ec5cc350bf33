"""Signals: measured without a trace in the trajectories, merged with one owner for each array."""

import pickle
from dataclasses import fields

import numpy as np
import pytest

from tests.learning.building import load_model, make_groups
from turnwise.algorithms import make_algorithm
from turnwise.config import CriticConfig, LearningConfig
from turnwise.learning.scoring import scored_by
from turnwise.learning.signals.base import SignalArrays, Signals, by_trajectory, measure, merged
from turnwise.learning.signals.critic import Critic
from turnwise.learning.signals.reward_terms import KLReward, Penalty
from turnwise.types import TrajectoryId

ONE, OTHER = TrajectoryId("g0", 0), TrajectoryId("g0", 1)


@pytest.mark.wing("algorithms")
def test_measuring_leaves_the_groups_equal() -> None:
    """Every array that is known of a trajectory is measured here, but those that a scaffold is
    needed for."""
    from turnwise_algorithms.signals.score_norms import ScoreNorms
    from turnwise_algorithms.signals.teacher import Teacher

    model, learning = load_model(), LearningConfig()
    signals = [
        Penalty(make_algorithm("grpo", {"reward_shaping": "overlong"}), 12),
        Critic(model, CriticConfig(), learning),
        Teacher(load_model("llama"), learning, 1.0),
        ScoreNorms(scored_by(model, learning, 1.0)),
        KLReward(lambda members: [np.zeros(len(member.tokens)) for member in members], 0.1),
    ]
    groups = make_groups([[1.0, 0.0, None], [0.5]])
    before = pickle.dumps(groups)
    found = measure(signals, groups)
    assert pickle.dumps(groups) == before
    graded = [member for group in groups for member in group.graded]
    assert set(found.by_trajectory) == {member.id for member in graded}
    names = {one.name for one in fields(SignalArrays)} - {"hindsight_logprobs", "information_gains"}
    for member in graded:
        own = found.of(member)
        assert {name for name in vars(own) if getattr(own, name) is not None} == names
    assert found.of(groups[0].trajectories[2]) == SignalArrays()
    assert set(found.metrics) == {"reward/penalty", "teacher/reverse_kl", "policy/kl_reference"}


def test_two_signals_cannot_own_one_array() -> None:
    penalised = Signals({ONE: SignalArrays(penalty=0.5)})
    with pytest.raises(ValueError, match="two signals have penalty of g0 episode 0"):
        merged([penalised, Signals({ONE: SignalArrays(penalty=0.5)})])
    with pytest.raises(ValueError, match="two signals have the metric a/b"):
        merged([Signals({}, {"a/b": 1.0}), Signals({}, {"a/b": 1.0})])
    values = np.zeros(2, np.float32)
    found = merged([penalised, Signals({ONE: SignalArrays(values=values)}, {"a/b": 1.0})])
    assert found.by_trajectory == {ONE: SignalArrays(penalty=0.5, values=values)}
    assert found.metrics == {"a/b": 1.0}
    apart = merged([penalised, Signals({OTHER: SignalArrays(penalty=0.1)})])
    assert [apart.by_trajectory[name].penalty for name in (ONE, OTHER)] == [0.5, 0.1]


def test_two_trajectories_of_one_name_are_a_bug() -> None:
    (member, other) = make_groups([[1.0, 0.0]])[0].trajectories
    with pytest.raises(ValueError, match="two trajectories g0 episode 0"):
        by_trajectory([member, other, member], [SignalArrays()] * 3)
