"""Shares of repeated n-grams, actions and episodes, against counting by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.graded import graded
from turnwise.monitor.repetition import NGRAM, repetition_metrics
from turnwise.tokens import Segment, Source, Tokens
from turnwise.types import Action, Group, ToolCall, Trajectory, Turn


def episode(*actions: Action, judged: bool = True) -> Trajectory:
    return graded(False if judged else None, turns=tuple(Turn(action) for action in actions))


def search(query: str, **more: str) -> Action:
    return Action("", calls=(ToolCall("search", {"query": query, **more}),))


def share(name: str, *members: Trajectory) -> float | None:
    return repetition_metrics([Group("g", tuple(members))]).get(f"repetition/{name}")


def by_hand(member: Trajectory) -> float | None:
    """N-grams one by one, in runs of sampled tokens of one turn."""
    tokens, seen, repeated, total = member.tokens, set(), 0, 0
    for start in range(len(tokens) - NGRAM + 1):
        places = range(start, start + NGRAM)
        if not all(tokens.source[i] == Source.MODEL for i in places):
            continue
        if len({int(tokens.turn[i]) for i in places}) > 1:
            continue
        gram = tuple(int(tokens.ids[i]) for i in places)
        repeated += gram in seen
        total += 1
        seen.add(gram)
    return repeated / total if total else None


@given(st.integers(0, 2**32))
def test_ngrams_are_counted_within_what_one_turn_sampled(seed: int) -> None:
    generator = np.random.default_rng(seed)
    members = []
    for _ in range(3):
        tokens = Tokens.empty()
        for turn in range(int(generator.integers(0, 4))):
            sampled = generator.integers(0, 2, generator.integers(0, 9)).tolist()
            tokens = tokens.with_sampled(sampled, [-1.0] * len(sampled), version=0, turn=turn)
            tool = generator.integers(0, 2, generator.integers(0, 3)).tolist()
            tokens = tokens.with_segments([Segment(tool, Source.TOOL)], turn)
        members.append(replace(episode(), tokens=tokens))
    expected = [by_hand(member) for member in members]
    known = [value for value in expected if value is not None]
    found = share("ngrams", *members)
    assert found == (pytest.approx(np.mean(known)) if known else None)
    assert found == share("ngrams", *reversed(members))


def test_what_a_tool_repeats_is_not_the_agents() -> None:
    tokens = Tokens.empty().with_segments([Segment([1] * 50, Source.TOOL)], 0)
    tokens = tokens.with_sampled([1, 2, 3, 4, 5], [-1.0] * 5, version=0, turn=0)
    assert share("ngrams", replace(episode(), tokens=tokens)) == 0.0
    tokens = tokens.with_sampled([1, 2, 3, 4], [-1.0] * 4, version=0, turn=1)
    assert share("ngrams", replace(episode(), tokens=tokens)) == pytest.approx(1 / 3)


def test_actions_are_the_same_by_name_and_arguments_or_by_text() -> None:
    two = Action("", calls=(ToolCall("a", {"x": 1, "y": 2}), ToolCall("a", {"y": 2, "x": 1})))
    assert share("actions", episode(two)) == 0.5
    assert share("actions", episode(search("a"), search("a"), search("b"), search("a"))) == 0.5
    lookup = Action("", calls=(ToolCall("lookup", {"query": "a"}),))
    assert share("actions", episode(search("a"), lookup, Action("", answer="a"))) == 0.0
    assert share("actions", episode(Action("x", error="?"), Action("x", error="?"))) == 0.5
    assert share("actions", episode(Action("x", error="?"), Action("y", error="?"))) == 0.0
    assert share("actions", episode(search("a"), search("a")), episode()) == 0.5


def test_episodes_are_alike_when_they_do_the_same_in_the_same_order() -> None:
    one, same = episode(search("a"), search("b")), episode(search("a"), search("b"))
    other = episode(search("b"), search("a"))
    assert share("episodes", one, same, other) == pytest.approx(2 / 3)
    assert share("episodes", other, one, same) == pytest.approx(2 / 3)
    assert share("episodes", one, other) == 0.0
    assert share("episodes", one, same) == 1.0


def test_the_ungraded_and_those_without_company_are_left_out() -> None:
    one, lost = episode(search("a"), search("a")), episode(search("a"), search("a"), judged=False)
    assert share("episodes", one, lost) is None
    assert share("actions", one, lost) == share("actions", one)
    assert repetition_metrics([Group("g", (lost,)), Group("h", ())]) == {}
