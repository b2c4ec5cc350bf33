"""A reward of parts: its arithmetic by hand, its range, its gates, and all that can go wrong."""

import asyncio
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graded import graded
from turnwise.config import RewardConfig
from turnwise.errors import ConfigError
from turnwise.rewards.composition import Reward, make_reward
from turnwise.rewards.measuring import PartError
from turnwise.rewards.parts import RewardPart, Scope, reward_part
from turnwise.types import Action, Group, Outcome, Step, Trajectory, Turn, Verdict

REPORTED = {
    "form": RewardPart(0, 1),
    "f1": RewardPart(0, 1),
    "gain": RewardPart(0, 1, scope=Scope.TURNS, total=(0, 1)),
    "noise": RewardPart(-1, 1, scope=Scope.TURNS),
}


def trajectory(success: bool = True, turns: int = 2, **parts: Any) -> Trajectory:
    of_turns = {name: value for name, value in parts.items() if isinstance(value, tuple)}
    others = {name: value for name, value in parts.items() if name not in of_turns}
    verdict = Verdict(float(success), success, others, turn_parts=of_turns)
    played = (Turn(Action("x"), Step(reward=0.25)),) * turns
    return graded(success, turns=played, verdict=verdict)


def reward(parts: Mapping[str, Any], turns: int = 4, **settings: Any) -> Reward:
    config = RewardConfig.model_validate({"parts": parts, **settings})
    return make_reward(config, REPORTED, turns)


def judged(parts: Mapping[str, Any], member: Trajectory, step: int = 0, **settings: Any) -> Verdict:
    made = reward(parts, dominance=False, **settings)
    return asyncio.run(made.judge(member, made.weights(step)))


def test_it_is_the_weighted_sum_of_open_parts() -> None:
    parts = {
        "form": 0.2,
        "f1": {"weight": 0.5, "gate": "failure"},
        "again": {"use": "f1", "weight": -0.1, "gate": "form"},
    }
    right = judged(parts, trajectory(form=1.0, f1=0.5))
    assert right.reward == pytest.approx(1 + 0.2 - 0.1 * 0.5)
    assert right.parts == {"form": 1.0, "f1": 0.5, "again": 0.5}
    wrong = judged(parts, trajectory(False, form=0.0, f1=0.5), failure=-1)
    assert wrong.reward == pytest.approx(-1 + 0.5 * 0.5)
    assert right.turn_rewards == ()
    assert replace(trajectory(), verdict=right).turn_rewards is None  # the steps' do not count


def test_noise_grades_a_share_of_the_episodes_wrongly_and_reports_the_truth() -> None:
    parts = {"f1": {"weight": 0.5, "gate": "failure"}}
    members = [
        replace(trajectory(success, f1=1.0), seed=seed)
        for seed in range(400)
        for success in (True, False)
    ]
    made = reward(parts, dominance=False, noise=0.25)

    async def judge() -> list[Verdict]:
        return [await made.judge(member, made.weights(0)) for member in members]

    verdicts = asyncio.run(judge())
    assert [one.success for one in verdicts] == [True, False] * 400
    assert {one.reward for one in verdicts} == {1.0, 0.5}  # the gate goes by the grade too
    wrong = [(one.reward < 1) == one.success for one in verdicts]
    assert 0.2 < sum(wrong) / len(wrong) < 0.3
    assert verdicts == asyncio.run(judge())


def test_turns_have_the_rewards_of_their_parts() -> None:
    parts = {"gain": 0.5, "noise": {"weight": 0.1, "gate": "success"}, "steps": {"weight": 2}}
    member = trajectory(gain=(1.0, 0.0), noise=(-1.0, 1.0))
    verdict = judged(parts, member)
    assert verdict.reward == 1.0
    assert verdict.turn_rewards == pytest.approx((0.5 - 0.1 + 0.5, 0.1 + 0.5))
    assert verdict.turn_parts["steps"] == (0.25, 0.25)
    found = replace(member, verdict=verdict)
    assert found.reward == pytest.approx(1.0 + 0.9 + 0.6)
    failed = judged(parts, trajectory(False, gain=(1.0, 0.0), noise=(-1.0, 1.0)))
    assert failed.turn_rewards == pytest.approx((1.0, 0.5))


def test_a_weight_moves_between_two_steps() -> None:
    schedule = {"weight": 0.0, "from_step": 10, "to_step": 20}
    parts = {"form": {"weight": 0.4, "schedule": schedule}}
    found = [judged(parts, trajectory(form=1.0), step).reward for step in (0, 10, 15, 20, 99)]
    assert found == pytest.approx([1.4, 1.4, 1.2, 1.0, 1.0])
    at_once = {"weight": 0.0, "from_step": 3, "to_step": 3}
    parts = {"form": {"weight": 0.4, "schedule": at_once}}
    found = [judged(parts, trajectory(form=1.0), step).reward for step in (2, 3)]
    assert found == pytest.approx([1.4, 1.0])


WEIGHTS = st.floats(-1, 1, allow_subnormal=False)
GATES = st.sampled_from(["always", "success", "failure"])


@settings(max_examples=30)
@given(
    st.tuples(WEIGHTS, GATES),
    st.tuples(WEIGHTS, GATES),
    st.tuples(WEIGHTS, GATES),
    st.integers(0, 9),
)
def test_no_reward_is_outside_of_its_bounds(
    form: tuple[float, str], gain: tuple[float, str], noise: tuple[float, str], step: int
) -> None:
    """Both bounds are reached, but for the sum of a turn's part, which may be less than so many."""
    schedule = {"weight": 0.5, "to_step": 5}
    parts = {
        "form": {"weight": form[0], "gate": form[1], "schedule": schedule},
        "f1": {"use": "f1", "gate": "form", "weight": gain[0]},
        "noise": {"weight": noise[0], "gate": noise[1]},
    }
    made = reward(parts, turns=2, dominance=False)
    for success in (True, False):
        rewards = []
        for one, other, *own in itertools.product([0.0, 1.0], [0.0, 1.0], [-1.0, 1.0], [-1.0, 1.0]):
            member = trajectory(success, form=one, f1=other, noise=tuple(own))
            verdict = asyncio.run(made.judge(member, made.weights(step)))
            rewards.append(replace(member, verdict=verdict).reward)
        low, high = made.bounds(success, step)
        assert low - 1e-9 <= min(found for found in rewards if found is not None)
        assert high + 1e-9 >= max(found for found in rewards if found is not None)


def test_success_dominates_or_the_error_says_by_how_much_it_does_not() -> None:
    reward({"form": 0.2, "f1": {"weight": 0.7, "gate": "failure"}, "gain": 0.05})
    reward({"gain": 0.9})  # the sum of all turns is 1 at most
    with pytest.raises(ConfigError, match=r"reward of 1.2 and a success one of 1: .* by 0.2\."):
        reward({"f1": 1.2})
    with pytest.raises(ConfigError, match=r"Raise reward.outcome above 1.2, .* of f1 "):
        reward({"f1": 1.2})
    with pytest.raises(ConfigError, match=r"reward of 0\.8 and a success one of 0.2"):
        reward({"noise": 0.2})  # four turns
    late = {"form": {"weight": 0.1, "schedule": {"weight": 3, "to_step": 30}}}
    with pytest.raises(ConfigError, match="at step 30"):
        reward(late)
    reward(late, dominance=False)
    with pytest.raises(ConfigError, match=r"range of reward\.parts\.steps"):
        reward({"steps": 0.1})
    reward({"steps": {"weight": 0.1, "range": (0, 1)}})
    reward({"steps": 0.0})  # it is only measured


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"from": 1.0}, "unknown reward part 'from': did you mean 'form'"),
        ({"form": {"gate": "f2"}}, r"gate is 'f2': give always, success, failure, .* \(there is"),
        ({"form": {"gate": "form"}}, "gate is 'form'"),
        ({"form": {"use": "f1"}}, "the environment reports another part of this name"),
        ({"form": {"options": {"a": 1}}}, "is what the environment reports, and has none"),
        ({"form": {"range": (1, 0)}}, "the range of a part is 1 to 0"),
        ({"mine": {"use": "gone.py:brevity"}}, "gone.py: there is no such file"),
    ],
)
def test_mistakes_are_a_line(parts: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        reward(parts)


OWN = """
from turnwise.rewards.parts import Scope, reward_part

def undeclared(trajectory, words=3):
    return len(trajectory.written) / words

@reward_part("brevity", 0, 1)
def brevity(trajectory, words: int = 10):
    return 1 - len(trajectory.written) / words

@reward_part("rank", 0, 1, Scope.GROUP)
def rank(group):
    return [n / len(group.graded) for n in range(len(group.graded))]
"""


def test_ones_own_are_named_by_file(tmp_path: Any) -> None:
    file = tmp_path / "mine.py"
    file.write_text(OWN)
    parts = {
        "short": {"use": f"{file}:brevity", "weight": 0.5, "options": {"words": 4}},
        "long": {"use": f"{file}:undeclared", "range": (0, 1), "weight": 0.1},
    }
    made = reward(parts)
    assert asyncio.run(made.judge(trajectory(), made.weights(0))).parts == pytest.approx(
        {"short": 0.5, "long": 2 / 3}
    )
    with pytest.raises(ConfigError, match="unknown option 'word': did you mean 'words'"):
        reward({"short": {"use": f"{file}:brevity", "options": {"word": 4}}})
    with pytest.raises(ConfigError, match=r"reward.parts.short.options|option 'words' is 'x'"):
        reward({"short": {"use": f"{file}:brevity", "options": {"words": "x"}}})


def test_what_is_reported_and_not_declared_needs_a_range() -> None:
    parts = {"doors": {"weight": -0.1, "range": (0, 5)}}
    assert judged(parts, trajectory(doors=2.0)).reward == pytest.approx(0.8)
    with pytest.raises(PartError, match="the environment's verdict is without it; its parts: form"):
        judged(parts, trajectory(form=1.0))


def test_two_numbers_of_one_name_are_none() -> None:
    parts = {"environment": {"weight": 0.1}}
    with pytest.raises(
        PartError, match="reward part environment: the verdict has one of this name too"
    ):
        judged(parts, trajectory(environment=1.0))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"outcome": float("nan")}, "finite"),
        ({"parts": {"form": float("inf")}}, "finite"),
        ({"parts": {"form": True}}, "form"),
        ({"parts": {"success": 0.1}}, "a part is called success, which is a gate"),
        ({"parts": {"form": 1}, "costs": {"form": {"limit": 1}}}, "are both called form"),
        ({"costs": {"form": {"limit": 1, "multiplier": 2}}}, "begins at 2, above highest = 1"),
        (
            {"parts": {"form": {"schedule": {"weight": 1, "from_step": 3, "to_step": 1}}}},
            "ends at to_step = 1, before from_step = 3",
        ),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RewardConfig.model_validate(settings)


BAD: dict[str, Any] = {
    "huge": (10**400, "it is too large for a number"),
    "nan": (float("nan"), "nan is not a finite number"),
    "infinite": (float("inf"), "is not a finite number"),
    "text": ("1", "'1' instead of a number"),
    "bool": (True, "True instead of a number"),
    "none": (None, "None instead of a number"),
    "list": ([1.0], "instead of a number"),
    "outside": (1.5, "1.5 is outside of its range, 0 to 1"),
}


def measuring(function: Callable[..., Any], scope: Scope) -> Reward:
    """A reward whose one part, from 0 to 1, is what the function gives."""
    config = RewardConfig.model_validate({"parts": {"x": {}}, "dominance": False})
    return make_reward(config, {}, 4, {"x": RewardPart(0, 1, scope=scope, function=function)})


def returning(value: Any, scope: Scope = Scope.TRAJECTORY) -> Reward:
    def function(subject: Any) -> Any:
        if isinstance(value, BaseException):
            raise value
        return value

    return measuring(function, scope)


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_number_leaves_the_episode_ungraded(name: str) -> None:
    value, message = BAD[name]
    with pytest.raises(PartError, match=f"^reward part x: .*{message}"):
        asyncio.run(returning(value).judge(trajectory(), {"x": 1.0}))
    if name != "list":
        with pytest.raises(PartError, match=message):
            asyncio.run(returning([value, 0.5], Scope.TURNS).judge(trajectory(), {"x": 1.0}))


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), StopIteration()])
def test_a_function_may_raise_anything(error: BaseException) -> None:
    with pytest.raises(PartError, match=f"reward part x: .*{type(error).__name__}"):
        asyncio.run(returning(error).judge(trajectory(), {"x": 1.0}))


@pytest.mark.parametrize(
    "value", [[1.0], [1.0] * 3, "ab", {0: 1.0, 1: 1.0}, 1.0, None, np.array(1.0), np.ones((2, 2))]
)
def test_another_shape_is_no_number(value: Any) -> None:
    with pytest.raises(PartError, match="reward part x"):
        asyncio.run(returning(value, Scope.TURNS).judge(trajectory(), {"x": 1.0}))


@pytest.mark.parametrize("value", [[1, 0], (0.5, 1), np.array([0.5, 1], np.float32)])
def test_numbers_of_any_kind_are_taken(value: Any) -> None:
    verdict = asyncio.run(returning(value, Scope.TURNS).judge(trajectory(), {"x": 1.0}))
    assert verdict.turn_parts["x"] == tuple(map(float, value))


def members(*successes: bool) -> Group:
    return Group("g", tuple(replace(trajectory(one), episode=n) for n, one in enumerate(successes)))


def judged_group(made: Reward, group: Group, weights: Mapping[str, float], seconds: float) -> Group:
    return asyncio.run(made.judge_groups([group], weights, seconds))[0]


def test_parts_of_groups_are_added() -> None:
    made = returning([0.25, 0.75], Scope.GROUP)
    ungraded = replace(trajectory(), episode=2, outcome=Outcome.GRADER_ERROR, verdict=None)
    group = members(True, False)
    group = replace(group, trajectories=(group.trajectories[0], ungraded, group.trajectories[1]))
    found = judged_group(made, group, {"x": 1.0}, 5.0)
    assert [member.reward for member in found.trajectories] == [1.75, None, 1.25]
    assert found.trajectories[0].verdict.parts == {"x": 0.25}


def test_gates_of_parts_of_groups_go_by_the_grade() -> None:
    part = RewardPart(0, 1, scope=Scope.GROUP, function=lambda group: [0.5] * len(group.graded))
    parts = {"x": {"gate": "success"}}
    config = RewardConfig.model_validate({"parts": parts, "noise": 1.0})
    made = make_reward(config, {}, 4, {"x": part})
    found = judged_group(made, members(True, False), {"x": 1.0}, 5.0)
    assert [member.outcome_reward for member in found.trajectories] == [1.0, 0.5]
    assert [member.outcome for member in found.trajectories] == [Outcome.SUCCESS, Outcome.FAILURE]


def test_a_member_without_a_number_is_ungraded_and_the_others_are_not() -> None:
    made = returning([0.25, None, 0.75], Scope.GROUP)
    found = judged_group(made, members(True, True, False), made.weights(0), 5.0)
    assert [member.reward for member in found.trajectories] == [1.75, None, 1.25]
    assert found.trajectories[1].outcome == Outcome.GRADER_ERROR
    assert found.trajectories[1].problem == "reward part x: no number for this episode"


@pytest.mark.parametrize("value", [[0.5], [0.5, float("nan")], ValueError("no"), None])
def test_a_group_without_numbers_is_ungraded(value: Any) -> None:
    found = judged_group(returning(value, Scope.GROUP), members(True, False), {"x": 1.0}, 5.0)
    assert [member.outcome for member in found.trajectories] == [Outcome.GRADER_ERROR] * 2
    assert all(member.problem.startswith("reward part x: ") for member in found.trajectories)
    assert found.graded == []


def test_what_hangs_is_not_waited_for() -> None:
    def hang(group: Group) -> Sequence[float]:
        time.sleep(600)
        return []

    start = time.monotonic()
    found = judged_group(measuring(hang, Scope.GROUP), members(True), {"x": 1.0}, 0.05)
    assert found.trajectories[0].outcome == Outcome.GRADER_TIMEOUT
    assert time.monotonic() - start < 60


def named(*names: str) -> list[Group]:
    return [replace(members(True), id=name) for name in names]


def test_groups_are_judged_at_once_and_stay_in_order() -> None:
    begun: list[str] = []
    both, ends = asyncio.Event(), asyncio.Event()

    async def slow(group: Group) -> Sequence[float]:
        begun.append(group.id)
        if len(begun) == 2:
            both.set()
        await both.wait()  # in vain, were they judged one after the other
        if group.id == "a":
            await ends.wait()  # the first to begin ends last
        else:
            ends.set()
        return [0.25 if group.id == "a" else 0.75]

    made = measuring(slow, Scope.GROUP)
    found = asyncio.run(made.judge_groups(named("a", "b"), {"x": 1.0}, 5.0))
    assert [group.id for group in found] == ["a", "b"]
    assert [group.trajectories[0].reward for group in found] == [1.75, 2.25]


def test_a_group_that_hangs_is_ungraded_and_the_others_are_not() -> None:
    async def hangs(group: Group) -> Sequence[float]:
        if group.id == "a":
            await asyncio.Event().wait()
        return [0.5]

    made = measuring(hangs, Scope.GROUP)
    found = asyncio.run(made.judge_groups(named("a", "b"), {"x": 1.0}, 0.05))
    assert [group.trajectories[0].reward for group in found] == [None, 2.0]
    assert found[0].trajectories[0].outcome == Outcome.GRADER_TIMEOUT


def test_a_declared_part_must_have_a_range() -> None:
    with pytest.raises(ConfigError, match="has to be the higher one"):
        reward_part("x", 1, 1)(len)
