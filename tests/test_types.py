"""Promises 2, 3 and 4: provenance and mask, None is not 0, the verifier sees what was written."""

from dataclasses import FrozenInstanceError, fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.tokens import NO_VERSION, Segment, Source, Tokens
from turnwise.types import (
    Action,
    Group,
    Observation,
    Outcome,
    Step,
    Task,
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
            tokens = tokens.with_sampled(ids, [-1.0] * len(ids), version=3, turn=turn)
        else:
            tokens = tokens.with_segments([Segment(ids, source)], turn)
        expected += [(token, source == Source.MODEL, turn) for token in ids]
    assert list(zip(tokens.ids, tokens.mask, tokens.turn, strict=True)) == expected
    assert np.isnan(tokens.logprob[~tokens.mask]).all()
    assert (tokens.version[~tokens.mask] == NO_VERSION).all()
    assert (tokens.logprob[tokens.mask] == -1.0).all()
    assert (tokens.version[tokens.mask] == 3).all()


def test_model_tokens_cannot_be_appended_without_logprobs() -> None:
    with pytest.raises(ValueError, match="with_sampled"):
        Tokens.empty().with_segments([Segment([1], Source.MODEL)], 0)
    with pytest.raises(ValueError, match="2 sampled tokens with 1"):
        Tokens.empty().with_sampled([1, 2], [-1.0], 0, 0)


def test_tokens_of_one_turn_may_have_versions_of_their_own() -> None:
    tokens = Tokens.empty().with_sampled([5, 6, 7], [-1.0, -1.0, -1.0], [3, 3, 4], turn=0)
    tokens = tokens.with_sampled([8, 9], [-1.0, -1.0], 4, turn=1)
    assert tokens.version.tolist() == [3, 3, 4, 4, 4]
    with pytest.raises(ValueError, match="broadcast"):
        tokens = tokens.with_sampled([5, 6], [-1.0, -1.0], [3, 3, 4], turn=2)
    assert len(tokens.ids) == len(tokens.version) == 5


def test_tokens_are_shown_shortly() -> None:
    """A trajectory is shown in many places, by asyncio too: its arrays would take seconds."""
    tokens = Tokens.empty().with_segments([Segment([1, 2], Source.USER)], 0)
    tokens = tokens.with_sampled([3], [-1.0], 0, 0)
    trajectory = Trajectory(Task("t", "q"), "g", 0, 0, tokens)
    assert "tokens=Tokens(3, 1 sampled)," in repr(trajectory)
    assert repr(Group("g", (trajectory,) * 9)) == "Group('g', 9 trajectories)"


def _trajectory(outcome: Outcome, verdict: Verdict | None) -> Trajectory:
    return Trajectory(Task("t", "q"), "g", 0, 0, outcome=outcome, verdict=verdict)


@pytest.mark.parametrize("outcome", list(Outcome))
def test_ungraded_outcomes_have_no_reward_even_with_a_verdict(outcome: Outcome) -> None:
    reward = _trajectory(outcome, Verdict(0.0, False)).reward
    assert reward == (0.0 if outcome.graded else None)
    assert outcome.graded == (outcome.family not in {"infrastructure", "grader", "cancelled"})


def test_a_judged_trajectory_cannot_be_changed() -> None:
    """Neither its fields, nor its turns, nor an array of its tokens; nor its group."""
    tokens = Tokens.empty().with_sampled([5], [-1.0], 3, turn=0)
    judged = replace(_trajectory(Outcome.SUCCESS, Verdict(1.0, True)), tokens=tokens)
    group = Group("g", (judged,))
    for record in (judged, judged.tokens, group):
        for own in fields(record):
            with pytest.raises(FrozenInstanceError):
                setattr(record, own.name, None)
    with pytest.raises(FrozenInstanceError):
        judged.advantage = np.zeros(1)
    for name in ("ids", "source", "turn", "version", "logprob", "contexts"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(judged.tokens, name)[:] = 0
    assert isinstance(judged.turns, tuple)
    assert isinstance(group.trajectories, tuple)


def test_a_longer_record_leaves_the_shorter_one_as_it_was() -> None:
    short = Tokens.empty().with_segments([Segment([1, 2], Source.USER)], 0)
    long = short.with_sampled([3], [-1.0], 0, 0).with_context(np.array([0, 2]))
    assert short.ids.tolist() == [1, 2]
    assert long.ids.tolist() == [1, 2, 3, 1, 3]
    assert long.source[[2, 4]].tolist() == [Source.MODEL, Source.INHERITED]
    assert long.contexts.tolist() == [[0, 0], [3, 5]]


def test_rewards_have_one_meaning_each() -> None:
    steps = [Step(reward=0.25), Step(reward=None), Step(reward=0.5)]
    turns = tuple(Turn(Action(""), step) for step in steps)
    judged = replace(_trajectory(Outcome.FAILURE, Verdict(-1.0, False)), turns=turns)
    assert (judged.outcome_reward, judged.reward) == (-1.0, -0.25)
    assert judged.turn_rewards.tolist() == [0.25, 0.0, 0.5]
    ungraded = replace(judged, outcome=Outcome.GRADER_ERROR)
    assert (ungraded.outcome_reward, ungraded.reward) == (None, None)


def test_answer_and_written_never_hold_what_a_tool_returned() -> None:
    step = Step(Observation("<answer> leaked</answer>"))
    turns = (Turn(Action("<search> x</search>"), step),)
    trajectory = replace(_trajectory(Outcome.FAILURE, None), turns=turns)
    assert trajectory.answer is None
    assert "leaked" not in trajectory.written
    assert trajectory.observed == ("<answer> leaked</answer>",)
    turns = Turn(Action("", answer="first")), Turn(Action("", answer="last"))
    trajectory = replace(_trajectory(Outcome.FAILURE, None), turns=turns)
    assert trajectory.answer == "last"


def test_public_task_has_no_secret() -> None:
    task = Task("t", "q", secret={"answers": ["gold"]}, data={"table": 1}, info={"hops": "one"})
    assert "gold" not in repr(task.public())
    assert task.public().data == task.data
