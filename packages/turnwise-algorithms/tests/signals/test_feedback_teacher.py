"""The feedback teacher: the turn that it teaches, the reply that it reads, and its gradient against
float64."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.learning import building
from turnwise.algorithms import make_algorithm
from turnwise.config import LearningConfig, SelfTeacherConfig
from turnwise.learning.credits import estimate
from turnwise.learning.signals.base import Signals
from turnwise.tokens import Segment, Source, Tokens
from turnwise.types import (
    Action,
    Group,
    Observation,
    Outcome,
    Step,
    Task,
    ToolCall,
    ToolResult,
    Trajectory,
    Turn,
    Verdict,
)
from turnwise_algorithms.signals.feedback_teacher import FeedbackTeacher, FeedbackTeacherMaker
from turnwise_algorithms.signals.self_teacher import Lesson, with_shown

HERO = make_algorithm("hero", {"feedback_teacher_coefficient": 0.5})
REWARDS = [[1.0, 0.0, None, 0.0], [0.0, 1.0], [1.0, 1.0]]
SEARCH = ToolCall("search", {})


class Telling:
    """A word that opens a message, what is said, and two words that close it."""

    def extend(self, observation: Observation) -> Sequence[Segment]:
        word = 30 if observation.content.startswith("An attempt") else 31
        closed = Segment([4], Source.TEMPLATE), Segment([6], Source.TEMPLATE)
        return [Segment([3], Source.TEMPLATE), Segment([word], Source.USER), *closed]


WORDS = FeedbackTeacherMaker().words(Telling())


def acted(*oks: bool, error: str | None = None) -> Turn:
    results = tuple(ToolResult(SEARCH, "", ok) for ok in oks)
    return Turn(Action("", calls=(SEARCH,), error=error), Step(results=results))


def three_turns(*turns: Turn, reward: float | None = 0.0) -> Trajectory:
    """A search with two messages in reply, a turn with a correction, an answer without a reply."""
    tokens = Tokens.empty().with_segments([Segment([1, 2], Source.USER)], 0)
    tokens = tokens.with_sampled([10, 11], [-1.0, -1.0], version=0, turn=0)
    framed = [Segment([20], Source.TOOL), Segment([5], Source.TEMPLATE), Segment([21], Source.USER)]
    tokens = tokens.with_segments([Segment([5], Source.TEMPLATE), *framed], 0)
    tokens = tokens.with_sampled([12, 13, 14], [-1.0] * 3, version=0, turn=1)
    tokens = tokens.with_segments([Segment([22], Source.ENVIRONMENT)], 1)
    tokens = tokens.with_sampled([15], [-1.0], version=0, turn=2)
    verdict = None if reward is None else Verdict(reward, reward > 0)
    outcome = Outcome.GRADER_ERROR if reward is None else Outcome.SUCCESS
    return Trajectory(Task("a", "?"), "g", 0, 0, tokens, turns, outcome, verdict)


def taught(*members: Trajectory) -> list[Lesson]:
    return FeedbackTeacher.lessons([Group("g", members)])


def test_the_teacher_reads_the_reply_before_the_turn_and_nothing_after_it() -> None:
    """The last turn of those that were replied to; the words are one message with the reply."""
    (lesson,) = taught(three_turns(acted(True), acted(True), acted()))
    before, turn = [1, 2, 10, 11, 5, 20, 5, 21], [12, 13, 14]
    ids, wanted = lesson.own
    assert (ids.tolist(), ids[wanted].tolist()) == ([*before, *turn], turn)
    ids, wanted = with_shown(lesson, WORDS)
    assert ids.tolist() == [*before, 3, 30, 22, 31, 4, 6, *turn]
    assert np.flatnonzero(wanted).tolist() == [14, 15, 16]


@pytest.mark.parametrize("wrong", [acted(True, False), acted(error="Malformed")])
def test_the_first_turn_that_went_wrong_is_taught(wrong: Turn) -> None:
    """Its reply is read without the scaffold's words between messages."""
    (lesson,) = taught(three_turns(wrong, acted(False), acted()))
    ids, wanted = with_shown(lesson, WORDS)
    assert ids.tolist() == [1, 2, 3, 30, 20, 21, 31, 4, 6, 10, 11]
    assert ids[wanted].tolist() == [10, 11]


def test_only_failures_with_a_reply_are_taught() -> None:
    answered = Tokens.empty().with_segments([Segment([1, 2], Source.USER)], 0)
    answered = answered.with_sampled([10], [-1.0], version=0, turn=0)
    alone = replace(three_turns(), tokens=answered)
    assert taught(three_turns(reward=1.0), three_turns(reward=None), alone) == []


def made(model: Any, micro: int) -> FeedbackTeacher:
    """A teacher whose average is not the policy."""
    learning = LearningConfig(tokens_per_micro_batch=micro)
    config = SelfTeacherConfig(cap=1.5, alpha=0.3)
    teacher = FeedbackTeacher(model, WORDS, config, learning, 0.5, 0.7)
    average = {name: 0.9 * weight for name, weight in teacher.state()["average"].items()}
    teacher.load_state({"average": average})
    return teacher


def by_hand(model: Any, teacher: FeedbackTeacher, groups: list[Group]) -> tuple[int, torch.Tensor]:
    """Number of taught tokens, and the gradient of the mean of weight times divergence, of each
    failure's last turn, in float64."""
    model, told = copy.deepcopy(model).double(), copy.deepcopy(teacher.model).double()
    losses = []
    for member in building.members_of(groups):
        if member.reward:
            continue
        ids, tokens = member.tokens.ids.tolist(), member.tokens
        last = np.flatnonzero(tokens.mask & (tokens.turn == tokens.turn.max())).tolist()
        shown = [3, 30, *ids[last[-1] + 1 :], 31, 4, 6]
        text = ids[: last[0]] + shown + ids[last[0] : last[-1] + 1]
        mine = model(input_ids=torch.tensor([ids[: last[-1] + 1]])).logits[0] / 0.7
        theirs = told(input_ids=torch.tensor([text])).logits[0].detach() / 0.7
        for place in last:
            p, q = mine[place - 1].softmax(-1), theirs[place + len(shown) - 1].softmax(-1)
            m = 0.7 * p + 0.3 * q
            divergence = 0.7 * (p * (p / m).log()).sum() + 0.3 * (q * (q / m).log()).sum()
            ratio = p[ids[place]].item() / np.exp(float(tokens.logprob[place]))
            losses.append(min(ratio, 1.5) * divergence)
    torch.stack(losses).mean().backward()
    return len(losses), torch.cat([p.grad.flatten() for p in model.parameters()])


@pytest.mark.parametrize("micro", [64, 8192])
def test_its_gradient_is_that_of_the_turns_own_tokens(micro: int) -> None:
    """Neither replies nor other turns are in the loss."""
    groups = building.make_groups(REWARDS)
    learner = building.learner(HERO, "llama", 0.7, tokens_per_micro_batch=micro)
    teacher = made(learner.model, micro)
    tokens, expected = by_hand(learner.model, teacher, groups)
    found = building.change(learner, groups, (), teacher)
    torch.testing.assert_close(found, 0.5 * expected, rtol=1e-3, atol=1e-5)
    assert teacher.measure(groups) == Signals({}, {"self_teacher/taught": pytest.approx(3 / 7)})
    metrics = teacher.update(groups, Signals(), estimate(groups, Signals(), HERO))
    assert metrics["self_teacher/tokens"] == tokens
