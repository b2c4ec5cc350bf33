"""Parts of conduct, counted by hand."""

from dataclasses import replace

import pytest

from tests.rewards.episodes import answer, call, episode, sampled
from tests.rewards.episodes import malformed as broken
from turnwise.types import Action, ToolCall, Turn
from turnwise_environments.rewards.conduct import (
    budget,
    calls,
    form,
    length,
    malformed,
    needless_calls,
    repetition,
)

UNANSWERED = Turn(Action("<search>x</search>", calls=(ToolCall("search", {}),)))
MIXED = episode(call("search", "Rome"), broken(), call("search", ok=False), answer("Rome"))


def test_turns_that_are_malformed() -> None:
    assert malformed(MIXED) == [0.0, 1.0, 1.0, 0.0]
    assert malformed(episode(UNANSWERED)) == [0.0]
    assert calls(MIXED) == [1.0, 0.0, 1.0, 0.0]
    assert malformed(episode()) == calls(episode()) == []


def test_form_is_a_share_or_all_or_nothing() -> None:
    assert (form(MIXED), form(MIXED, strict=True)) == (0.75, 0.0)
    assert (form(episode(answer("a")), strict=True), form(episode())) == (1.0, 0.0)


def written(*texts: str) -> Turn:
    return Turn(Action(" ".join(texts)))


def test_repetition_counts_ngrams_that_were_there_before() -> None:
    """a b a b a has the pairs ab ba ab ba: two of four were there before."""
    assert repetition(episode(written("a b a b a")), n=2) == 0.5
    assert repetition(episode(written("a b"), written("a b")), n=2) == 0.5  # ab, ab
    assert repetition(episode(written("a b"), written("c d")), n=2) == 0.0  # bc is none
    assert repetition(episode(written("a b c")), n=4) == 0.0
    assert repetition(episode(written("a a a a")), n=1) == 0.75


def test_length_is_a_share_of_a_budget() -> None:
    one = replace(episode(answer("a b", "c d e")), tokens=sampled(-1.0, -1.0, -1.0))
    assert length(one, budget=12) == 0.25  # the prompt's token is not counted
    assert length(one, budget=2) == 1.0
    assert length(one, budget=4, of="words") == 0.5
    assert length(one, budget=4, of="thoughts") == 0.75


@pytest.mark.parametrize(
    ("turns", "most", "share"), [(8, 8, 0.5), (4, 8, 1.0), (2, 8, 1.0), (8, 2, 1.0)]
)
def test_budget_is_the_larger_share(turns: int, most: int, share: float) -> None:
    assert budget(MIXED, turns=turns, calls=most) == share  # four turns, two calls


SEARCHES = (
    call("search", "[1] Rome is in Italy.", query="Rome"),
    call("search", "[1] Rome is in Italy.", query="Rome"),  # again
    call("search", "[1] Paris.", query="Paris"),
    answer("Italy"),
)


def test_needless_calls() -> None:
    seen = episode(*SEARCHES, secret={"answers": ["Italy"]})
    assert needless_calls(seen) == 0.5
    assert needless_calls(seen, after_answer=False) == 0.25
    assert needless_calls(seen, repeated=False) == 0.5
    unseen = episode(*SEARCHES, secret={"answers": ["France", None]})
    assert needless_calls(unseen) == 0.25
    assert needless_calls(episode(*SEARCHES)) == 0.25
    assert needless_calls(episode(answer("a"))) == 0.0
    assert needless_calls(seen, budget=1) == 1.0
    more = episode(*(call("search", query=str(n)) for n in range(9)), *SEARCHES[:2])
    assert needless_calls(more) == 0.25  # useful ones do not make up for it


def test_calls_of_the_turn_that_finds_the_answer_are_needed() -> None:
    """Both calls were made before anything was seen."""
    both = tuple(ToolCall("search", {"query": query}) for query in ("a", "b"))
    turn = call("search", "Italy")
    turn = replace(turn, action=replace(turn.action, calls=both))
    assert needless_calls(episode(turn, secret={"answers": ["Italy"]})) == 0.0
