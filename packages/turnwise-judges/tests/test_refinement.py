"""Requests with known answers: which episodes they are about, and which replies are right."""

import json
from dataclasses import replace

from judging_library import asker, episode
from turnwise.types import Group
from turnwise_judges.pairwise import Better, PairwiseJudge
from turnwise_judges.pointwise import PointwiseJudge
from turnwise_judges.refining import KnownQuestion, grade, known_questions
from turnwise_judges.scripted_model import example_reply

PAIRWISE = PairwiseJudge(asker(example_reply))
POINTWISE = PointwiseJudge(asker(example_reply), low=0, high=10)


def of(name: str, *rewards: float | None) -> Group:
    """A group of episodes that succeeded where their reward is 1."""
    members = [
        replace(episode(f"{name} {n}", number=n, reward=reward), group=name)
        for n, reward in enumerate(rewards)
    ]
    return Group(name, tuple(members))


def asked(question: KnownQuestion, seed: int = 0) -> str:
    return question.request.messages(seed)[-1]["content"]


def reply(question: KnownQuestion, seed: int = 0, **values: object) -> str:
    return json.dumps(json.loads(asked(question, seed).splitlines()[-1]) | values)


def answers(question: KnownQuestion) -> list[str]:
    data = question.request.data
    return [data["first"]["answer"], data["second"]["answer"]]


def test_one_of_a_pair_succeeded_and_each_place_is_right_in_half() -> None:
    groups = [of("a", 1, 0, 0), of("b", 1, 1, 1), of("c", 1, None, 0), of("d", None, 1)]
    questions = known_questions(PAIRWISE, groups, 9, seed=3)
    assert sorted(sorted(answers(q)) for q in questions) == [
        ["a 0", "a 1"],
        ["a 0", "a 2"],
        ["c 0", "c 2"],
    ]
    for question in questions:
        right = "first" if answers(question)[0].endswith("0") else "second"
        assert question.truth == right
        for word in Better:
            graded = grade(question, reply(question, better=str(word)), seed=0)
            assert graded.right is (word == right)
            assert not graded.malformed
    many = known_questions(PAIRWISE, [of("a", 1, 1, 0, 0), of("b", 1, 1, 0, 0)], 6, seed=3)
    assert [q.truth for q in many].count("first") == 3


def test_every_group_is_asked_about_before_one_is_asked_about_again() -> None:
    groups = [of(name, 1, 0, 0) for name in "abc"]
    for seed in range(5):
        questions = known_questions(PAIRWISE, groups, 3, seed)
        assert {answers(q)[0][0] for q in questions} == set("abc")


def test_the_seed_decides() -> None:
    groups = [of(name, 1, 0, 1, 0) for name in "abc"]
    for judge in (PAIRWISE, POINTWISE):
        drawn = [[asked(q) for q in known_questions(judge, groups, 4, seed)] for seed in (1, 1, 2)]
        assert drawn[0] == drawn[1] != drawn[2]


def test_a_score_is_right_on_the_side_of_success() -> None:
    groups = [of("a", 1, 1, 1, 0), of("b", 1, 0, None)]
    questions = known_questions(POINTWISE, groups, 9, seed=0)
    assert [q.truth for q in questions].count("above 5") == 2
    assert len(questions) == 4, "as many successes as failures"
    for question in questions:
        above = question.truth == "above 5"
        for score, high in ((0, False), (5, False), (5.5, True), (10, True)):
            assert grade(question, reply(question, score=score), seed=0).right is (above is high)
    alone = {known_questions(POINTWISE, groups, 1, seed)[0].truth for seed in range(9)}
    assert alone == {"above 5", "not above 5"}


def test_nothing_is_asked_where_nothing_differs() -> None:
    for judge in (PAIRWISE, POINTWISE):
        assert known_questions(judge, [of("a", 1, 1), of("b", None, 1)], 4, seed=0) == []
        assert known_questions(judge, [of("a", 0, 0)], 4, seed=0) == []
    assert known_questions(PAIRWISE, [of("a", 1), of("b", 0)], 4, seed=0) == [], "of other tasks"


def test_a_malformed_reply_is_wrong_and_another_mark_is_malformed() -> None:
    (question, *_) = known_questions(PAIRWISE, [of("a", 1, 0)], 1, seed=0)
    right = reply(question, better=question.truth)
    assert grade(question, right, seed=0).right
    for text in ("", "first", right + "\n{}", reply(question, better="both"), right[:-1]):
        graded = grade(question, text, seed=0)
        assert graded.malformed
        assert not graded.right
        assert graded.place is None
    assert grade(question, right, seed=1).malformed
    places = [grade(question, reply(question, better=str(word)), 0).place for word in Better]
    assert places == [1.0, -1.0, 0.0]
