"""What enters a batch: facts of trajectories, penalties, what a filter takes out of the loss."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from turnwise.algorithms import make_algorithm
from turnwise.algorithms.filters import TurnFacts
from turnwise.config import LearningConfig
from turnwise.learning.batch import assign_advantages, policy_examples
from turnwise.learning.policy import PolicyLearner
from turnwise.learning.selection import (
    assign_penalties,
    facts,
    kept_groups,
    kept_members,
    selection_metrics,
)
from turnwise.types import (
    Action,
    Group,
    Observation,
    Outcome,
    Source,
    Step,
    ToolCall,
    ToolResult,
    Trajectory,
    Turn,
    Verdict,
)

GRPO = make_algorithm("grpo", {})
FINISHED = make_algorithm("grpo", {"trajectory_filter": "overlong"})
SHAPED = make_algorithm("grpo", {"reward_shaping": "overlong", "overlong_band": 0.5})
ACTED = TurnFacts(acted=True)
BUDGET = 12

MakeGroups = Callable[..., list[Group]]


def tool_turn(*results: tuple[str, str, bool]) -> Turn:
    """Queries, what each gave, and whether it worked."""
    calls = tuple(
        ToolCall("search", {"query": query}, str(n)) for n, (query, *_) in enumerate(results)
    )
    given = tuple(
        ToolResult(call, content, ok) for call, (_, content, ok) in zip(calls, results, strict=True)
    )
    return Turn(Action("", calls=calls), Step(Observation("seen"), given))


ANSWER = Turn(Action("", answer="x"), Step(done=True))
MALFORMED = Turn(Action("", error="Malformed"), Step(Observation("Malformed")))
CUT_OFF = Turn(Action("", calls=(ToolCall("search", {"query": "a"}),)))


def judged(make_groups: MakeGroups, *turns: Turn) -> list[TurnFacts]:
    (group,) = make_groups([[1.0]])
    group.trajectories[0].turns = list(turns)
    return list(facts(group.trajectories[0]).turns)


def test_a_turn_acts_by_a_call_or_an_answer(make_groups: MakeGroups) -> None:
    silent = Turn(Action("only text"), Step(Observation("?")))
    found = judged(make_groups, tool_turn(("a", "1", True)), MALFORMED, silent, CUT_OFF, ANSWER)
    assert [turn.acted for turn in found] == [True, False, False, True, True]
    assert not any(turn.failed or turn.repeated for turn in found)


def test_a_turn_failed_where_every_call_did(make_groups: MakeGroups) -> None:
    both, one = [("a", "1", False), ("b", "2", False)], [("c", "1", False), ("d", "2", True)]
    assert [t.failed for t in judged(make_groups, tool_turn(*both), tool_turn(*one))] == [
        True,
        False,
    ]


def test_a_turn_is_repeated_where_the_same_calls_give_the_same_again(
    make_groups: MakeGroups,
) -> None:
    """Not where the world has changed, nor where something is new, nor within one turn."""
    found = judged(
        make_groups,
        tool_turn(("a", "1", True), ("a", "1", True)),
        tool_turn(("a", "1", True)),
        tool_turn(("a", "2", True)),
        tool_turn(("a", "1", True), ("b", "1", True)),
        tool_turn(("b", "1", True), ("a", "2", True)),
    )
    assert [turn.repeated for turn in found] == [False, True, False, False, True]


@pytest.mark.parametrize("outcome", Outcome)
def test_every_budget_truncates(make_groups: MakeGroups, outcome: Outcome) -> None:
    (group,) = make_groups([[1.0]])
    group.trajectories[0].outcome = outcome
    assert facts(group.trajectories[0]).truncated is outcome.value.startswith("truncated")


def test_a_filtered_member_stays_in_the_baseline_and_leaves_loss_and_denominators(
    make_groups: MakeGroups,
) -> None:
    plain, filtered = make_groups([[1.0, 0.0, 0.4, None]]), make_groups([[1.0, 0.0, 0.4, None]])
    for groups in (plain, filtered):
        groups[0].trajectories[1].outcome = Outcome.TRUNCATED_TOKENS
        assign_advantages(groups, FINISHED)
    assert [m.episode for m in kept_members(filtered[0], FINISHED)] == [0, 2]
    left = policy_examples(filtered, FINISHED, True)
    assert [example.name for example in left] == ["g0 episode 0", "g0 episode 2"]
    assert sum(e.weight * e.trained.sum() for e in left) == pytest.approx(1.0)
    everyone = policy_examples(plain, GRPO, True)
    assert len(everyone) == 3
    rewards = np.array([1.0, 0.0, 0.4])  # of all three, whatever the filter
    expected = (rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-6)
    assert [e.advantage[e.trained][0] for e in left] == pytest.approx(expected[[0, 2]], abs=1e-5)
    assert selection_metrics(filtered, FINISHED) == {"batch/left_out": pytest.approx(1 / 3)}


def updated(load_model: Any, groups: list[Group], **options: Any) -> torch.Tensor:
    model = load_model()
    assign_advantages(groups, FINISHED)
    learner = PolicyLearner(model, None, LearningConfig(**options), FINISHED)
    assert learner.update(groups).metrics["policy/updates"] == 1
    return torch.cat([p.detach().flatten() for p in model.parameters()]).double()


def test_the_gradient_knows_of_a_filtered_member_by_its_reward_alone(
    load_model: Any, make_groups: MakeGroups
) -> None:
    groups = make_groups([[1.0, 0.0, 0.4], [0.0, 1.0]])
    groups[0].trajectories[1].outcome = Outcome.TRUNCATED_TURNS
    result = updated(load_model, groups)
    other = copy.deepcopy(groups)
    other[0].trajectories[1].tokens.ids[:] = 7
    other[0].trajectories[1].tokens.source[-1] = Source.MODEL
    assert torch.equal(updated(load_model, other), result)
    other[0].trajectories[1].verdict = Verdict(0.9, True)
    assert not torch.equal(updated(load_model, other), result)
    split = updated(load_model, copy.deepcopy(groups), tokens_per_micro_batch=64)
    torch.testing.assert_close(split, result, rtol=0, atol=1e-6)


def test_a_batch_of_which_nothing_is_left_makes_no_update(
    load_model: Any, make_groups: MakeGroups
) -> None:
    groups = make_groups([[1.0, 0.0]])
    for member in groups[0].trajectories:
        member.outcome = Outcome.TRUNCATED_TIME
    assign_advantages(groups, FINISHED)
    report = PolicyLearner(load_model(), None, LearningConfig(), FINISHED).update(groups)
    assert report.metrics["policy/updates"] == 0
    assert kept_groups(groups, FINISHED) == []
    assert selection_metrics(groups, FINISHED) == {"batch/left_out": 1.0}


def lengths(member: Trajectory) -> int:
    return int(member.tokens.mask.sum())


def test_the_penalty_counts_what_the_policy_sampled_and_the_reward_stays(
    make_groups: MakeGroups,
) -> None:
    groups = make_groups([[1.0, 1.0, 0.0, None], [0.5, None]])
    members = groups[0].graded
    assert len({lengths(m) for m in members}) > 1
    assign_penalties(groups, SHAPED, BUDGET)
    expected = [np.clip((lengths(m) - 6) / 6, 0, 1) for m in members]
    assert max(expected) > 0
    assert [m.penalty for m in members] == pytest.approx(expected)
    assert [m.reward for m in groups[0].trajectories] == [1.0, 1.0, 0.0, None]
    assert groups[0].trajectories[3].penalty == 0.0
    assign_advantages(groups, SHAPED)
    shaped = np.array([1.0, 1.0, 0.0]) - expected
    advantages = (shaped - shaped.mean()) / (shaped.std(ddof=1) + 1e-6)
    for member, advantage in zip(members, advantages, strict=True):
        assert member.advantage is not None
        np.testing.assert_allclose(
            member.advantage, np.where(member.tokens.mask, advantage, 0), atol=1e-5
        )
    single = groups[1].trajectories[0]
    assert selection_metrics(groups, SHAPED) == {
        "reward/penalty": pytest.approx((sum(expected) + single.penalty) / 4)
    }


def test_what_was_sampled_before_a_branch_is_of_the_response(make_groups: MakeGroups) -> None:
    groups = make_groups([[1.0]])
    (member,) = groups[0].trajectories
    assign_penalties(groups, SHAPED, 10)
    whole = member.penalty
    assert whole > 0
    first_turn = member.tokens.turn == 0
    member.tokens.source[first_turn & member.tokens.mask] = Source.INHERITED
    assign_penalties(groups, SHAPED, 10)
    assert member.penalty == whole


def test_groups_are_filtered_by_the_task_s_reward(make_groups: MakeGroups) -> None:
    """Dynamic sampling asks whether a task is solved always or never; lengths are no answer."""
    dapo = make_algorithm("dapo", {"reward_shaping": "overlong", "overlong_band": 1.0})
    groups = make_groups([[1.0, 1.0, 1.0], [1.0, 0.0]])
    assign_penalties(groups, dapo, BUDGET)
    assert len({member.penalty for member in groups[0].trajectories}) > 1
    assert [group.id for group in kept_groups(groups, dapo)] == ["g1"]


def test_an_algorithm_that_does_neither_reports_nothing(make_groups: MakeGroups) -> None:
    groups = make_groups([[1.0, 0.0]])
    assign_penalties(groups, GRPO, 1)
    assert [member.penalty for member in groups[0].trajectories] == [0.0, 0.0]
    assert selection_metrics(groups, GRPO) == {}
    assert selection_metrics(make_groups([[None]]), SHAPED) == {}


@pytest.mark.parametrize("dropped", ["group_filter", "trajectory_filter"])
def test_whitening_counts_what_is_trained_alone(make_groups: MakeGroups, dropped: str) -> None:
    """With a group, or with trajectories, that a filter drops: as without them."""
    part = {"group_filter": "all_equal", "trajectory_filter": "overlong"}[dropped]
    algorithm = make_algorithm("reinforce_pp", {dropped: part})
    rewards = [[1.0, 0.0, 0.3], [5.0, 5.0]] if dropped == "group_filter" else [[1.0, 0.0, 0.3, 5.0]]
    groups = make_groups(rewards)
    if dropped == "trajectory_filter":
        groups[0].trajectories[3].outcome = Outcome.TRUNCATED_TOKENS
    assign_advantages(groups, algorithm)
    kept = make_groups([[1.0, 0.0, 0.3]])
    assign_advantages(kept, make_algorithm("reinforce_pp", {}))
    for member, other in zip(groups[0].trajectories[:3], kept[0].trajectories, strict=True):
        np.testing.assert_array_equal(member.advantage, other.advantage)
    sampled = [m.advantage[m.tokens.mask] for m in groups[0].trajectories[:3]]
    assert np.concatenate(sampled).mean() == pytest.approx(0, abs=1e-6)
    assert np.concatenate(sampled).std() == pytest.approx(1, abs=1e-6)
