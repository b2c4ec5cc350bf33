"""What enters a batch: facts of trajectories, and what a filter takes out of the loss."""

from typing import Any

import numpy as np
import pytest
import torch

from tests.learning.building import (
    GRPO,
    changed,
    each,
    learner,
    make_groups,
    put,
    update,
    weights,
    with_one,
)
from turnwise.algorithms import make_algorithm
from turnwise.algorithms.filters import TurnFacts
from turnwise.learning.batch import policy_examples
from turnwise.learning.credits import estimate
from turnwise.learning.selection import facts, kept_groups, kept_members, selection_metrics
from turnwise.learning.signals.base import Signals
from turnwise.tokens import Source
from turnwise.types import (
    Action,
    Group,
    Observation,
    Outcome,
    Step,
    ToolCall,
    ToolResult,
    Turn,
    Verdict,
)

FINISHED = make_algorithm("grpo", {"trajectory_filter": "overlong"})
ACTED = TurnFacts(acted=True)


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


def judged(*turns: Turn) -> list[TurnFacts]:
    (group,) = with_one(make_groups([[1.0]]), 0, 0, turns=turns)
    return list(facts(group.trajectories[0]).turns)


def test_a_turn_acts_by_a_call_or_an_answer() -> None:
    silent = Turn(Action("only text"), Step(Observation("?")))
    found = judged(tool_turn(("a", "1", True)), MALFORMED, silent, CUT_OFF, ANSWER)
    assert [turn.acted for turn in found] == [True, False, False, True, True]
    assert not any(turn.failed or turn.repeated for turn in found)


def test_a_turn_failed_where_every_call_did() -> None:
    both, one = [("a", "1", False), ("b", "2", False)], [("c", "1", False), ("d", "2", True)]
    assert [t.failed for t in judged(tool_turn(*both), tool_turn(*one))] == [True, False]


def test_a_turn_is_repeated_where_the_same_calls_give_the_same_again() -> None:
    """Not where the world has changed, nor where something is new, nor within one turn."""
    found = judged(
        tool_turn(("a", "1", True), ("a", "1", True)),
        tool_turn(("a", "1", True)),
        tool_turn(("a", "2", True)),
        tool_turn(("a", "1", True), ("b", "1", True)),
        tool_turn(("b", "1", True), ("a", "2", True)),
    )
    assert [turn.repeated for turn in found] == [False, True, False, False, True]


@pytest.mark.parametrize("outcome", Outcome)
def test_every_budget_truncates(outcome: Outcome) -> None:
    (group,) = with_one(make_groups([[1.0]]), 0, 0, outcome=outcome)
    assert facts(group.trajectories[0]).truncated is outcome.value.startswith("truncated")


def test_a_filtered_member_stays_in_the_baseline_and_leaves_loss_and_denominators() -> None:
    groups = with_one(make_groups([[1.0, 0.0, 0.4, None]]), 0, 1, outcome=Outcome.TRUNCATED_TOKENS)
    credits = estimate(groups, Signals(), FINISHED)
    assert [m.episode for m in kept_members(groups[0], FINISHED)] == [0, 2]
    left = policy_examples(groups, credits, FINISHED, True)
    assert [example.name for example in left] == ["g0 episode 0", "g0 episode 2"]
    assert sum(e.weight * e.trained.sum() for e in left) == pytest.approx(1.0)
    everyone = policy_examples(groups, estimate(groups, Signals(), GRPO), GRPO, True)
    assert len(everyone) == 3
    rewards = np.array([1.0, 0.0, 0.4])  # of all three, whatever the filter
    expected = (rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-6)
    assert [e.advantage[e.trained][0] for e in left] == pytest.approx(expected[[0, 2]], abs=1e-5)
    assert selection_metrics(groups, FINISHED) == {"batch/left_out": pytest.approx(1 / 3)}


def updated(groups: list[Group], **options: Any) -> torch.Tensor:
    trained = learner(FINISHED, **options)
    assert update(trained, groups).metrics["policy/updates"] == 1
    return weights(trained.model)


def test_the_gradient_knows_of_a_filtered_member_by_its_reward_alone() -> None:
    groups = make_groups([[1.0, 0.0, 0.4], [0.0, 1.0]])
    groups = with_one(groups, 0, 1, outcome=Outcome.TRUNCATED_TURNS)
    result = updated(groups)
    tokens = groups[0].trajectories[1].tokens
    sevens, source = np.full(len(tokens), 7), put(tokens.source, -1, Source.MODEL)
    other = with_one(groups, 0, 1, ids=sevens, source=source)
    assert torch.equal(updated(other), result)
    other = with_one(groups, 0, 1, verdict=Verdict(0.9, True))
    assert not torch.equal(updated(other), result)
    split = updated(groups, tokens_per_micro_batch=64)
    torch.testing.assert_close(split, result, rtol=0, atol=1e-6)


def test_a_batch_of_which_nothing_is_left_makes_no_update() -> None:
    groups = each(
        make_groups([[1.0, 0.0]]), lambda member: changed(member, outcome=Outcome.TRUNCATED_TIME)
    )
    assert update(learner(FINISHED), groups).metrics["policy/updates"] == 0
    assert kept_groups(groups, FINISHED) == []
    assert selection_metrics(groups, FINISHED) == {"batch/left_out": 1.0}


def test_an_algorithm_without_a_filter_reports_nothing() -> None:
    assert selection_metrics(make_groups([[1.0, 0.0]]), GRPO) == {}
    assert selection_metrics(make_groups([[None]]), FINISHED) == {}
