"""The study of the majority's reward: its arms can run, and its votes are counted as in it."""

import pytest
from majority import ARMS, STUDIES, judged, markdown, vote

from turnwise.config import load_recipe
from turnwise.rewards.composition import make_reward

RIGHT = {"answer": "The Socket", "success": True}
WRONG = {"answer": "ssl", "success": False}
NONE = {"answer": None, "success": False}


@pytest.mark.parametrize("cold", STUDIES)
@pytest.mark.parametrize("arm", ARMS)
def test_an_arm_measures_the_majority_and_may_be_paid_for_it_alone(cold: str, arm: str) -> None:
    recipe = load_recipe("demo", STUDIES[cold].settings(arm))
    assert recipe.reward is not None
    reward = make_reward(recipe.reward, {}, recipe.rollout.max_turns)
    assert reward.of_groups
    expected = (0.0, 1.0) if arm == "majority" else (1.0, 1.0)
    assert reward.bounds(success=True, step=0) == expected


@pytest.mark.parametrize("cold", STUDIES)
def test_cold_starts_differ_in_their_demonstrations(cold: str) -> None:
    recipe = load_recipe("demo", [*STUDIES[cold].common, *STUDIES[cold].cold_start])
    shares = recipe.sft.demonstrations.behaviours
    assert sum(shares.values()) == pytest.approx(1)
    assert (shares["faithful"] > shares["mistaken"]) == (cold == "mostly faithful")


def test_the_first_of_equally_many_votes_wins_and_no_answer_is_no_vote() -> None:
    assert vote([NONE, NONE, NONE, RIGHT, WRONG]).right
    assert not vote([WRONG, RIGHT, NONE, NONE]).right
    votes = vote([WRONG, {**RIGHT, "answer": "socket"}, RIGHT, NONE])
    assert (votes.right, votes.agreement, votes.answers, votes.successes) == (True, 0.5, 2, 2)
    assert not vote([NONE]).right


def test_tasks_are_split_by_the_majority_before_training() -> None:
    before = {"easy": vote([RIGHT, RIGHT, WRONG]), "hard": vote([WRONG, WRONG, RIGHT])}
    after = {"easy": vote([WRONG] * 4), "hard": vote([RIGHT, RIGHT, RIGHT, WRONG])}
    figures = judged(before, [after, before])
    assert [rate for rate, _, _ in figures["majority was wrong"]] == [0.75, pytest.approx(1 / 3)]
    assert figures["majority was right"][0][0] == 0
    assert figures["agreement where it was wrong"][0] == 0.75
    assert "| 38% (" in markdown([{"cold start": "c", "arm": "a", **figures}])
