"""Signals: measured without a trace in the trajectories, merged with one owner for each array,
those that an algorithm needs, and penalties."""

import pickle
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.learning.building import GRPO, load_model, make_groups, put, with_one
from tests.marked import marked
from turnwise.algorithms import make_algorithm
from turnwise.config import CriticConfig, LearningConfig, check_recipe
from turnwise.learning.credits import estimate
from turnwise.learning.scoring import scored_by
from turnwise.learning.selection import kept_groups
from turnwise.learning.signals.base import SignalArrays, Signals, by_trajectory, measure, merged
from turnwise.learning.signals.critic import Critic
from turnwise.learning.signals.makers import signals_of
from turnwise.learning.signals.reward_terms import KLReward, Penalty
from turnwise.tokens import Source
from turnwise.types import Trajectory, TrajectoryId

ONE, OTHER = TrajectoryId("g0", 0), TrajectoryId("g0", 1)


@pytest.mark.wing("algorithms")
def test_measuring_leaves_the_groups_equal() -> None:
    """Every array that is known of a trajectory is measured here, but those that a scaffold is
    needed for."""
    from turnwise_algorithms.signals.score_norms import ScoreNorms
    from turnwise_algorithms.signals.teacher import Teachers

    model, learning = load_model(), LearningConfig()
    tables = {"environment": {"name": "search"}, "algorithm": {"teacher": {"model": "one"}}}
    taught = check_recipe({"name": "x", **tables}, "test")
    signals = [
        Penalty(make_algorithm("grpo", {"reward_shaping": "overlong"}), 12),
        Critic(model, CriticConfig(), learning),
        Teachers(taught, {"one": load_model("llama")}),
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
    assert found.by_trajectory.keys() == {ONE}
    (own,) = found.by_trajectory.values()
    assert (own.penalty, own.values is values) == (0.5, True)
    assert found.metrics == {"a/b": 1.0}
    apart = merged([penalised, Signals({OTHER: SignalArrays(penalty=0.1)})])
    assert [apart.by_trajectory[name].penalty for name in (ONE, OTHER)] == [0.5, 0.1]


def test_two_trajectories_of_one_name_are_a_bug() -> None:
    (member, other) = make_groups([[1.0, 0.0]])[0].trajectories
    with pytest.raises(ValueError, match="two trajectories g0 episode 0"):
        by_trajectory([member, other, member], [SignalArrays()] * 3)


RECIPE = check_recipe({"name": "r", "environment": {"name": "e"}}, "test")
TEXTS = SimpleNamespace(max_position_embeddings=64)
LEARNER: Any = SimpleNamespace(
    model=SimpleNamespace(config=SimpleNamespace(get_text_config=lambda: TEXTS)),
    kl_coefficient=0.25,
    score=lambda sequences: [],
    reference_logprobs=lambda members: [],
)


class Learned:
    """What a model of the run measures."""

    def measure(self, groups: Any) -> Signals:
        """Nothing."""
        return Signals()


@pytest.mark.parametrize(
    ("name", "overrides", "kinds"),
    marked(
        [
            ("grpo", {}, ["Penalty"]),
            ("hca", {}, ["Penalty", "Hindsight"]),
            ("igpo", {}, ["Penalty", "InformationGain"]),
            ("grpo", {"estimator": "otb"}, ["Penalty", "ScoreNorms"]),
            ("dr_grpo", {"kl_reward_coefficient": 0.1}, ["Penalty", "KLReward"]),
        ]
    ),
)
def test_an_algorithm_gets_what_it_asks_for(
    name: str, overrides: dict[str, Any], kinds: list[str]
) -> None:
    algorithm = make_algorithm(name, overrides)
    scaffold: Any = object()
    made = signals_of(RECIPE, algorithm, LEARNER, scaffold, lambda task: [], (None, None))
    assert [type(signal).__name__ for signal in made] == kinds
    for signal in made:
        if isinstance(signal, KLReward):
            assert signal.coefficient == 0.25  # the learner's, as it is now
        elif not isinstance(signal, Penalty):
            assert vars(signal)["scored"] is LEARNER.score
        if "context" in vars(signal):
            assert vars(signal)["context"] == 64


def test_models_of_the_run_are_asked_too() -> None:
    model, scaffold = Learned(), object()
    algorithm = make_algorithm("grpo", {})
    made = signals_of(RECIPE, algorithm, LEARNER, scaffold, lambda task: [], (None, model))
    assert model in made


SHAPED = make_algorithm("grpo", {"reward_shaping": "overlong", "overlong_band": 0.5})
BUDGET = 12


def lengths(member: Trajectory) -> int:
    return int(member.tokens.mask.sum())


def test_the_penalty_counts_what_the_policy_sampled_and_the_reward_stays() -> None:
    groups = make_groups([[1.0, 1.0, 0.0, None], [0.5, None]])
    members = groups[0].graded
    assert len({lengths(m) for m in members}) > 1
    signals = Penalty(SHAPED, BUDGET).measure(groups)
    expected = [np.clip((lengths(m) - 6) / 6, 0, 1) for m in members]
    assert max(expected) > 0
    assert [signals.of(m).penalty for m in members] == pytest.approx(expected)
    assert [m.reward for m in groups[0].trajectories] == [1.0, 1.0, 0.0, None]
    assert signals.of(groups[0].trajectories[3]).penalty is None
    credits = estimate(groups, signals, SHAPED)
    shaped = np.array([1.0, 1.0, 0.0]) - expected
    advantages = (shaped - shaped.mean()) / (shaped.std(ddof=1) + 1e-6)
    for member, advantage in zip(members, advantages, strict=True):
        spread = np.where(member.tokens.mask, advantage, 0)
        np.testing.assert_allclose(credits.advantages[member.id], spread, atol=1e-5)
    single = signals.of(groups[1].trajectories[0]).penalty
    assert signals.metrics == {"reward/penalty": pytest.approx((sum(expected) + single) / 4)}


def test_what_was_sampled_before_a_branch_is_of_the_response() -> None:
    groups = make_groups([[1.0]])
    (member,) = groups[0].trajectories
    whole = Penalty(SHAPED, 10).measure(groups).of(member).penalty
    assert whole > 0
    sampled_first = (member.tokens.turn == 0) & member.tokens.mask
    branched = with_one(
        groups, 0, 0, source=put(member.tokens.source, sampled_first, Source.INHERITED)
    )
    assert Penalty(SHAPED, 10).measure(branched).of(member).penalty == whole


def test_groups_are_filtered_by_the_task_s_reward() -> None:
    """Dynamic sampling asks whether a task is solved always or never; lengths are no answer."""
    dapo = make_algorithm("dapo", {"overlong_band": 1.0})
    groups = make_groups([[1.0, 1.0, 1.0], [1.0, 0.0]])
    signals = Penalty(dapo, BUDGET).measure(groups)
    assert len({signals.of(member).penalty for member in groups[0].trajectories}) > 1
    assert [group.id for group in kept_groups(groups, dapo)] == ["g1"]


def test_an_algorithm_without_shaping_reports_nothing() -> None:
    groups = make_groups([[1.0, 0.0]])
    signals = Penalty(GRPO, 1).measure(groups)
    assert [signals.of(member).penalty for member in groups[0].trajectories] == [0.0, 0.0]
    assert signals.metrics == {}
    assert Penalty(SHAPED, 1).measure(make_groups([[None]])).metrics == {}
