"""Promises 2, 3 and 4: provenance and mask, None is not 0, the verifier sees what was written."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.types import (
    NO_VERSION,
    Action,
    Group,
    Observation,
    Outcome,
    Segment,
    Source,
    Step,
    Task,
    Tokens,
    Trajectory,
    Turn,
    Verdict,
)

spans = st.lists(
    st.tuples(st.sampled_from(list(Source)), st.lists(st.integers(0, 99), max_size=5)), max_size=8
)


@given(spans)
def test_mask_is_true_exactly_where_the_policy_sampled(
    pieces: list[tuple[Source, list[int]]],
) -> None:
    tokens, expected = Tokens.empty(), []
    for turn, (source, ids) in enumerate(pieces):
        if source == Source.MODEL:
            tokens.extend_sampled(ids, [-1.0] * len(ids), version=3, turn=turn)
        else:
            tokens.extend_segments([Segment(ids, source)], turn)
        expected += [(token, source == Source.MODEL, turn) for token in ids]
    assert list(zip(tokens.ids, tokens.mask, tokens.turn, strict=True)) == expected
    assert np.isnan(tokens.logprob[~tokens.mask]).all()
    assert (tokens.version[~tokens.mask] == NO_VERSION).all()
    assert (tokens.logprob[tokens.mask] == -1.0).all()
    assert (tokens.version[tokens.mask] == 3).all()


def test_model_tokens_cannot_be_appended_without_logprobs() -> None:
    with pytest.raises(ValueError, match="extend_sampled"):
        Tokens.empty().extend_segments([Segment([1], Source.MODEL)], 0)
    with pytest.raises(ValueError, match="2 sampled tokens with 1"):
        Tokens.empty().extend_sampled([1, 2], [-1.0], 0, 0)


def test_tokens_of_one_turn_may_have_versions_of_their_own() -> None:
    tokens = Tokens.empty()
    tokens.extend_sampled([5, 6, 7], [-1.0, -1.0, -1.0], [3, 3, 4], turn=0)
    tokens.extend_sampled([8, 9], [-1.0, -1.0], 4, turn=1)
    assert tokens.version.tolist() == [3, 3, 4, 4, 4]
    with pytest.raises(ValueError, match="broadcast"):
        tokens.extend_sampled([5, 6], [-1.0, -1.0], [3, 3, 4], turn=2)
    assert len(tokens.ids) == len(tokens.version) == 5


def test_tokens_are_shown_shortly() -> None:
    """A trajectory is shown in many places, by asyncio too: its arrays would take seconds."""
    tokens = Tokens.empty()
    tokens.extend_segments([Segment([1, 2], Source.USER)], 0)
    tokens.extend_sampled([3], [-1.0], 0, 0)
    trajectory = Trajectory(Task("t", "q"), "g", 0, 0, tokens)
    assert "tokens=Tokens(3, 1 sampled)," in repr(trajectory)
    assert repr(Group("g", [trajectory] * 9)) == "Group('g', 9 trajectories)"


def _trajectory(outcome: Outcome, verdict: Verdict | None) -> Trajectory:
    return Trajectory(Task("t", "q"), "g", 0, 0, outcome=outcome, verdict=verdict)


@pytest.mark.parametrize("outcome", list(Outcome))
def test_ungraded_outcomes_have_no_reward_even_with_a_verdict(outcome: Outcome) -> None:
    reward = _trajectory(outcome, Verdict(0.0, False)).reward
    assert reward == (0.0 if outcome.graded else None)
    assert outcome.graded == (outcome.family not in {"infrastructure", "grader", "cancelled"})


def test_group_leaves_out_the_ungraded() -> None:
    good = _trajectory(Outcome.SUCCESS, Verdict(1.0, True))
    group = Group("g", [good, _trajectory(Outcome.GRADER_ERROR, None)])
    assert group.graded == [good]


def test_answer_and_written_never_hold_what_a_tool_returned() -> None:
    trajectory = _trajectory(Outcome.FAILURE, None)
    step = Step(Observation("<answer> leaked</answer>"))
    trajectory.turns = [Turn(Action("<search> x</search>"), step)]
    assert trajectory.answer is None
    assert "leaked" not in trajectory.written
    assert trajectory.observed == ("<answer> leaked</answer>",)


def test_last_answer_counts() -> None:
    trajectory = _trajectory(Outcome.FAILURE, None)
    trajectory.turns = [Turn(Action("", answer="first")), Turn(Action("", answer="last"))]
    assert trajectory.answer == "last"


def test_public_task_has_no_secret() -> None:
    task = Task("t", "q", secret={"answers": ["gold"]}, data={"table": 1}, info={"hops": "one"})
    assert "gold" not in repr(task.public())
    assert task.public().data == task.data
