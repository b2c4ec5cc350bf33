"""The self-teacher: whom it teaches, its gradient against float64, how it follows the policy."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model

from tests.learning.building import (
    change,
    descend_plainly,
    load_model,
    make_groups,
    weights,
    with_one,
)
from turnwise.algorithms import Algorithm, make_algorithm
from turnwise.config import LearningConfig, SelfTeacherConfig
from turnwise.errors import ConfigError
from turnwise.learning.credits import Credits, estimate
from turnwise.learning.policy import PolicyLearner
from turnwise.learning.signals.base import Signals
from turnwise.tokens import Segment, Source, Tokens
from turnwise.types import Group, Observation, Outcome
from turnwise_algorithms.signals.self_teacher import (
    SelfTeacher,
    check_room,
    with_shown,
    words_around,
)

SDPO = make_algorithm("sdpo", {})
REWARDS = [[1.0, 0.0, None, 0.5], [0.0, 0.0], [0.0, 1.0]]
"""A trajectory with a reward above 0 is a success here."""


class Telling:
    """One word for each message."""

    def extend(self, observation: Observation) -> Sequence[Segment]:
        word = 3 if observation.content.startswith("A success") else 4
        return [Segment([word], Source.TEMPLATE), Segment([5], Source.USER)]


def made(
    model: Any, algorithm: Algorithm = SDPO, micro: int = 8192, **options: Any
) -> tuple[PolicyLearner, SelfTeacher]:
    """A learner that descends plainly, so that its gradient can be read off; a teacher whose
    average is not the policy."""
    learning = LearningConfig(tokens_per_micro_batch=micro)
    learner = PolicyLearner(model, None, learning, algorithm, temperature=0.7)
    descend_plainly(learner)
    config, coefficient = SelfTeacherConfig(**options), algorithm.self_teacher_coefficient
    teacher = SelfTeacher(model, words_around(Telling()), config, learning, coefficient, 0.7)
    with torch.no_grad():
        for average in teacher._average.values():
            average *= 0.9
    teacher.load_state(copy.deepcopy(teacher.state()))
    return learner, teacher


def taught(groups: list[Group]) -> list[tuple[int, int, int]]:
    """Group, episode, and the episode that its teacher is shown."""
    return [
        (number, lesson.member.episode, other.episode)
        for number, group in enumerate(groups)
        for lesson in SelfTeacher.lessons([group])
        for other in group.trajectories
        if np.array_equal(lesson.shown, after_prompt(other.tokens))
    ]


def after_prompt(tokens: Tokens) -> np.ndarray:
    return tokens.ids[int(np.argmax(tokens.mask)) :]


def test_who_has_a_successful_sibling_is_taught_by_it() -> None:
    """Nobody by themselves, by the ungraded or by a failure, and the ungraded not at all."""
    groups = make_groups(REWARDS)
    expected = [(0, 0, 3), (0, 1, 0), (0, 3, 0), (2, 0, 1)]
    assert taught(groups) == expected
    groups = [replace(group, trajectories=group.trajectories[::-1]) for group in groups]
    assert sorted(taught(groups)) == expected
    groups = make_groups([[1.0, 1.0], [1.0], [None, 1.0]])
    assert taught(groups) == [(0, 0, 1), (0, 1, 0)]
    seen = np.full(len(groups[0].trajectories[1].tokens), Source.TOOL, np.uint8)
    groups = with_one(groups, 0, 1, source=seen)
    assert taught(groups) == []


def test_the_teacher_reads_prompt_sibling_and_the_trajectory_itself() -> None:
    for lesson in SelfTeacher.lessons(make_groups(REWARDS)):
        own = lesson.member.tokens
        start = int(np.argmax(own.mask))
        expected = [*own.ids[:start], 3, 5, *lesson.shown, 4, 5, *own.ids[start:]]
        ids, wanted = with_shown(lesson, words_around(Telling()))
        assert ids.tolist() == expected
        np.testing.assert_array_equal(ids[wanted], own.ids[own.mask])
        assert not wanted[: len(expected) - (len(own) - start)].any()


def by_hand(
    model: Any, teacher: SelfTeacher, groups: list[Group], cap: float, alpha: float
) -> tuple[float, torch.Tensor]:
    """Mean divergence, and the gradient of the mean of weight times divergence, in float64."""
    model, told = copy.deepcopy(model).double(), copy.deepcopy(teacher.model).double()
    divergences, weighted, clipped = [], [], 0
    for lesson in SelfTeacher.lessons(groups):
        tokens = lesson.member.tokens
        ids, wanted = with_shown(lesson, words_around(Telling()))
        mine = model(input_ids=torch.tensor(tokens.ids)[None]).logits[0] / 0.7
        theirs = told(input_ids=torch.from_numpy(ids)[None]).logits[0] / 0.7
        places = zip(np.flatnonzero(tokens.mask), np.flatnonzero(wanted), strict=True)
        for place, shown in places:
            p, q = mine[place - 1].softmax(-1), theirs[shown - 1].softmax(-1).detach()
            m = (1 - alpha) * p + alpha * q
            divergence = (1 - alpha) * (p * (p / m).log()).sum() + alpha * (q * (q / m).log()).sum()
            ratio = p[tokens.ids[place]].item() / np.exp(float(tokens.logprob[place]))
            clipped += ratio > cap
            divergences.append(divergence.item())
            weighted.append(min(ratio, cap) * divergence)
    assert 0 < clipped < len(weighted)
    torch.stack(weighted).mean().backward()
    gradient = torch.cat([p.grad.flatten() for p in model.parameters()])
    return float(np.mean(divergences)), gradient


@pytest.mark.long
@pytest.mark.parametrize("micro", [64, 8192])
def test_its_gradient_is_that_of_the_weighted_divergence(micro: int) -> None:
    model, groups = load_model("llama"), make_groups(REWARDS)
    options = {"cap": 1.5, "alpha": 0.3, "rate": 0.25}
    algorithm = make_algorithm("sdpo", {"self_teacher_coefficient": 0.5})
    learner, teacher = made(model, algorithm, micro, **options)
    divergence, expected = by_hand(model, teacher, groups, 1.5, 0.3)
    signals = teacher.measure(groups)
    assert signals == Signals({}, {"self_teacher/taught": pytest.approx(4 / 7)})
    found = change(learner, groups, (), teacher)
    torch.testing.assert_close(found, 0.5 * expected, rtol=1e-3, atol=1e-5)
    metrics = teacher.update(groups, Signals(), estimate(groups, signals, algorithm))
    assert metrics["self_teacher/divergence"] == pytest.approx(divergence, rel=1e-4)
    tokens = sum(int(lesson.member.tokens.mask.sum()) for lesson in SelfTeacher.lessons(groups))
    assert metrics["self_teacher/tokens"] == tokens


@pytest.mark.long
def test_it_adds_to_a_policy_loss() -> None:
    """The gradient beside GRPO's is the sum of the two."""
    changes = []
    for name, with_teacher in (("grpo", False), ("sdpo", True), ("grpo", True)):
        algorithm = make_algorithm(name, {"self_teacher_coefficient": 0.5})
        learner, teacher = made(load_model("llama"), algorithm)
        given = ((), teacher) if with_teacher else ()
        changes.append(change(learner, make_groups(REWARDS), *given))
    torch.testing.assert_close(changes[2], changes[0] + changes[1], rtol=1e-3, atol=1e-5)


def test_groups_that_a_filter_drops_teach_nothing() -> None:
    """Nor do groups without a success: no update at all."""
    for rewards, filtered in (([[1.0, 1.0]], "all_equal"), ([[0.0, 0.0], [1.0, None]], "none")):
        model, groups = load_model(), make_groups(rewards)
        algorithm = make_algorithm("sdpo", {"group_filter": filtered})
        learner, teacher = made(model, algorithm)
        before = weights(model)
        credits = estimate(groups, Signals(), algorithm)
        assert learner.update(groups, credits, auxiliary=teacher).metrics["policy/updates"] == 0
        assert torch.equal(weights(model), before)
        assert "self_teacher/divergence" not in teacher.update(groups, Signals(), credits)


def test_who_is_left_out_of_the_loss_may_still_teach() -> None:
    groups = with_one(make_groups(REWARDS), 0, 0, outcome=Outcome.TRUNCATED_TURNS)
    second = groups[0].trajectories[1]
    algorithm = make_algorithm("sdpo", {"trajectory_filter": "overlong"})
    learner, teacher = made(load_model(), algorithm)
    credits = estimate(groups, Signals(), algorithm)
    learner.update(groups, credits, auxiliary=teacher)
    expected = [second, groups[0].trajectories[3], groups[2].trajectories[0]]
    assert teacher.update(groups, Signals(), credits)["self_teacher/tokens"] == sum(
        m.tokens.mask.sum() for m in expected
    )
    assert (0, 1, 0) in taught(groups)


def test_a_loss_that_is_no_number_changes_nothing() -> None:
    model, groups = load_model(), make_groups(REWARDS)
    learner, teacher = made(model)
    credits = estimate(groups, Signals(), SDPO)
    (taught_first, *_) = SelfTeacher.lessons(groups)
    unknown = np.full(len(taught_first.member.tokens), np.nan, np.float32)
    groups = with_one(groups, 0, taught_first.member.episode, logprob=unknown)
    before = weights(model)
    (problem,) = learner.update(groups, credits, auxiliary=teacher).problems
    assert problem == "the self-teacher's loss is nan"
    assert torch.equal(weights(model), before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_average_follows_the_policy(dtype: torch.dtype) -> None:
    """(1 - rate) average + rate policy each step; in float32, where bfloat16 would stand still."""
    model = load_model().to(dtype)
    learning = LearningConfig()
    config = SelfTeacherConfig(rate=0.001)
    teacher = SelfTeacher(model, words_around(Telling()), config, learning, 1.0)
    start = weights(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 1
    assert torch.equal(weights(teacher.model), start)
    for _ in range(50):
        teacher.update([], Signals(), Credits({}, frozenset()))
    share = 1 - 0.999**50
    expected = start + share * (weights(model) - start)
    found = torch.cat([average.flatten() for average in teacher._average.values()]).double()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    coarse = {"rtol": 1e-2, "atol": 1e-2} if dtype == torch.bfloat16 else {"rtol": 0, "atol": 1e-5}
    torch.testing.assert_close(weights(teacher.model), expected, **coarse)


@pytest.mark.long
def test_it_resumes_exactly() -> None:
    """The average alone is saved; the policy comes from its own checkpoint."""
    model, groups = load_model(), make_groups(REWARDS)
    learner, whole = made(model)
    credits = estimate(groups, Signals(), SDPO)
    learner.update(groups, credits, auxiliary=whole)
    whole.update(groups, Signals(), credits)
    _, resumed = made(copy.deepcopy(model))
    resumed.load_state(copy.deepcopy(whole.state()))
    for _ in range(2):
        assert torch.equal(weights(resumed.model), weights(whole.model))
        for teacher in (whole, resumed):
            teacher.update([], Signals(), Credits({}, frozenset()))
    assert not torch.equal(weights(resumed.model), weights(model))


def test_of_an_adapted_model_the_adapters_alone_are_averaged() -> None:
    adapters = LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(load_model(), adapters)
    learner, teacher = made(model)
    names = {name for name, p in model.named_parameters() if p.requires_grad}
    assert set(teacher.state()["average"]) == names
    groups = make_groups(REWARDS)
    credits = estimate(groups, Signals(), SDPO)
    assert learner.update(groups, credits, auxiliary=teacher).metrics["policy/updates"] == 1


def test_two_episodes_must_have_room() -> None:
    words = words_around(Telling())
    check_room(words, 2, 126, 256)
    check_room(words, 1, 252, 256)
    check_room(words, 2, 999, None)
    with pytest.raises(ConfigError, match=r"2 times that and 4 tokens .* to 126"):
        check_room(words, 2, 127, 256)
