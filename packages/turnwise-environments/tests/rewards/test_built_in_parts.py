"""Built-in parts of conduct and of agreement in a group, by hand, and a run that has them."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from tests.rewards.episodes import answer, call, episode, group, sampled
from tests.rewards.episodes import malformed as broken
from tests.small_runs import train, write_recipe
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.trajectory_rows import read_rows
from turnwise.types import Action, Outcome, ToolCall, Turn
from turnwise_environments.rewards.conduct import (
    budget,
    calls,
    form,
    length,
    malformed,
    needless_calls,
    repetition,
)
from turnwise_environments.rewards.unsupervised import clusters, confidence, majority

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


VOTES: list[tuple[list[str | None], list[float], list[float]]] = [
    (["4", "4.0", "5", None], [1, 1, 0, 0], [0.5, 0.5, 0.25, 0]),
    (["The Rome", "rome.", "Paris"], [1, 1, 0], [2 / 3, 2 / 3, 1 / 3]),
    (["b", "a", "a", "b"], [1, 0, 0, 1], [0.5] * 4),  # equally many: the first
    ([None, None, None, "a"], [0, 0, 0, 1], [0, 0, 0, 0.25]),  # no answer has no vote
    ([None, "", " "], [0, 0, 0], [0, 0, 0]),
    (["1/2", "0.5", r"\frac{1}{2}", "0.5 kg"], [1, 1, 1, 0], [0.75] * 3 + [0.25]),
]


@pytest.mark.parametrize(("answers", "votes", "shares"), VOTES)
def test_majority_and_clusters(
    answers: list[str | None], votes: list[float], shares: list[float]
) -> None:
    assert majority(group(answers)) == votes
    assert clusters(group(answers)) == shares


def test_ungraded_members_have_no_vote() -> None:
    found = group(["a", "a", "b"])
    ungraded = replace(found.trajectories[0], outcome=Outcome.GRADER_ERROR, verdict=None)
    found = replace(found, trajectories=(ungraded, *found.trajectories[1:]))
    assert majority(found) == [1.0, 0.0]
    assert clusters(found) == [0.5, 0.5]


def test_confidence_is_of_the_sampled_tokens() -> None:
    one = replace(episode(), tokens=sampled(math.log(0.5), math.log(0.125)))
    assert confidence(one) == pytest.approx(0.25)
    assert confidence(episode()) == 0.0
    assert confidence(replace(episode(), tokens=sampled(0.0))) == 1.0


WEIGHTS = {
    "format": 0.1,
    "repetition": -0.1,
    "length": -0.2,
    "budget": -0.05,
    "needless_calls": -0.1,
    "confidence": 0.1,
    "majority": 0.2,
    "clusters": 0.1,
}
TABLES = f"""
engine.max_sequences = 8
rollout = {{ max_turns = 2, max_turn_tokens = 8, max_tokens = 400 }}
reward.outcome = 3.0
reward.parts.malformed = -0.25
{"".join(f"reward.parts.{name} = {weight}{chr(10)}" for name, weight in WEIGHTS.items())}
algorithm.name = "turn_rloo"
train = {{ steps = 1, tasks_per_step = 2, group_size = 4 }}
evaluation.tasks = 2
"""


@pytest.mark.long
def test_a_run_with_built_in_parts(tmp_path: Path) -> None:
    folder = RunFolder.new(tmp_path / "run")
    train(write_recipe(tmp_path, "Reporting", TABLES), folder)
    rows = read_rows(folder.path / "trajectories" / "step-000001.parquet")
    assert len(rows) == 8
    for row in rows:
        parts, broken = json.loads(row["parts"]), json.loads(row["turn_parts"])["malformed"]
        assert WEIGHTS.keys() <= parts.keys()
        assert 0 < parts["confidence"] < 1
        assert 0 < parts["length"] < 1
        assert len(broken) == len(row["turn_rewards"])
        wanted = sum(weight * parts[name] for name, weight in WEIGHTS.items())
        wanted += 3.0 * row["success"] + -0.25 * sum(broken)
        assert row["reward"] == pytest.approx(wanted, abs=1e-6)
