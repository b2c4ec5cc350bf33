"""Reward models: what they read, their losses, that they learn, and that their state is whole."""

import asyncio
import copy
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.learning.building import load_model, make_groups
from turnwise.config import LearningConfig
from turnwise.rewards.deadlines import deadline
from turnwise.rewards.measuring import PartError
from turnwise.types import Action, Trajectory, Turn
from turnwise_judges.reward_model.model import FORMS, RewardModel
from turnwise_judges.settings import LEARNED_PARTS, RewardModelConfig

pytestmark = pytest.mark.numbers

REWARDS = [[1.0, 0.0, None, 0.0], [0.0, 1.0]]


def made(form: str = "outcome", micro: int = 8192) -> Any:
    """A model of a form whose head is random, so that its numbers differ."""
    config = RewardModelConfig(form=form, data=("data",), learning_rate=1e-2)
    learning = LearningConfig(tokens_per_micro_batch=micro, warmup_steps=1)
    model = FORMS[form](load_model(), config, learning)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        torch.nn.init.normal_(model.head.weight)
    return model


def score(model: RewardModel, member: Trajectory) -> Any:
    return asyncio.run(model.part_of(member))


def with_turns(member: Trajectory) -> Trajectory:
    return replace(member, turns=(Turn(Action("x")),) * (int(member.tokens.turn[-1]) + 1))


def number_after(model: RewardModel, member: Trajectory, place: int) -> float:
    ids = torch.tensor(member.tokens.ids[None, : place + 1])
    with torch.no_grad():
        return float(model.head(model.model.model(input_ids=ids).last_hidden_state[0, -1]))


def sigmoid(number: float) -> float:
    return 1 / (1 + math.exp(-number))


def test_an_outcome_is_read_after_the_last_token() -> None:
    model = made()
    member = make_groups(REWARDS)[0].trajectories[0]
    with pytest.raises(PartError, match="not trained"):
        score(model, member)
    model.finish([])
    expected = sigmoid(number_after(model, member, len(member.tokens) - 1))
    assert score(model, member) == pytest.approx(expected, abs=1e-5)


async def test_an_episode_does_not_pay_for_the_time_that_others_have_the_model() -> None:
    model = made()
    model.finish([])
    member = make_groups(REWARDS)[0].trajectories[0]

    async with deadline(30.0):
        model._busy.acquire()
        waiting = asyncio.create_task(model.part_of(member))
        await asyncio.sleep(0.03)
        assert not waiting.done()  # an update goes on
        model._busy.release()
        assert await waiting == await model.part_of(member)


def test_turns_are_rewarded_by_the_change_of_the_chance() -> None:
    model = made("process")
    model.finish([])
    member = with_turns(make_groups([[1.0] * 8])[0].trajectories[1])
    assert len(member.turns) > 1
    begins = [
        int(np.flatnonzero(member.tokens.mask & (member.tokens.turn == turn))[0]) - 1
        for turn in range(len(member.turns))
    ]
    places = [*begins, len(member.tokens) - 1]
    chances = [sigmoid(number_after(model, member, place)) for place in places]
    assert score(model, member) == pytest.approx(np.diff(chances), abs=1e-5)


def test_a_turn_without_a_token_changes_nothing() -> None:
    model = made("process")
    model.finish([])
    member = with_turns(make_groups([[1.0]])[0].trajectories[0])
    longer = replace(member, turns=(*member.turns, member.turns[0]))
    assert score(model, longer) == pytest.approx([*score(model, member), 0.0], abs=1e-6)


def test_losses_are_those_of_the_papers() -> None:
    groups = make_groups(REWARDS)
    graded = [member for group in groups for member in group.graded]
    model = made()
    ends = [number_after(model, member, len(member.tokens) - 1) for member in graded]
    labels = [member.reward == 1.0 for member in graded]
    chances = [sigmoid(end if label else -end) for end, label in zip(ends, labels, strict=True)]
    metrics = model.update(model.lessons(groups))
    assert metrics["reward_model/loss"] == pytest.approx(-np.mean(np.log(chances)), rel=1e-4)
    right = [(end > 0) == label for end, label in zip(ends, labels, strict=True)]
    assert metrics["reward_model/accuracy"] == pytest.approx(np.mean(right))

    model = made("pairs")
    (one, two) = lessons = model.lessons(groups)
    assert [lesson.task for lesson in lessons] == ["g0", "g1"]
    assert one.readings[0].tokens is groups[0].trajectories[0].tokens, "the better one is first"
    assert two.readings[0].tokens is groups[1].trajectories[1].tokens
    margins = model.margins(lessons)
    metrics = model.update(lessons)
    expected = np.mean([-math.log(sigmoid(margin)) for margin in margins])
    assert metrics["reward_model/loss"] == pytest.approx(expected, rel=1e-4)


def test_members_of_equal_reward_are_no_pair() -> None:
    model = made("pairs")
    assert model.lessons(make_groups([[1.0, 1.0], [0.5], [None, 1.0]])) == []
    (group,) = make_groups([[0.1, 0.4, 0.2, 0.3, 0.25]])
    pairs = [[reading.tokens for reading in lesson.readings] for lesson in model.lessons([group])]
    places = {id(member.tokens): member.episode for member in group.trajectories}
    assert [[places[id(one)] for one in pair] for pair in pairs] == [[1, 0], [3, 2]]


def test_beside_the_policy_its_own_number_makes_no_pair() -> None:
    model = made("pairs")
    assert model.lessons_of_step(make_groups([[0.1, 0.4]])) == [], "both succeed"
    (lesson,) = model.lessons_of_step(make_groups([[0.0, 1.0, 0.4]]))
    assert lesson.task == "g0"
    outcome = made()
    groups = make_groups(REWARDS)
    assert len(outcome.lessons_of_step(groups)) == len(outcome.lessons(groups))


@pytest.mark.parametrize("form", list(FORMS))
def test_the_first_update_moves_the_body(form: str) -> None:
    config = RewardModelConfig(form=form, data=("data",))
    model = FORMS[form](load_model(), config, LearningConfig())
    assert model.update(model.lessons(make_groups(REWARDS)))["reward_model/weights_changed"] > 0.5


@pytest.mark.long
@pytest.mark.parametrize("form", list(FORMS))
def test_it_learns_to_tell_success_from_failure(form: str) -> None:
    model, groups = made(form), make_groups(REWARDS)
    lessons = model.lessons(groups)
    losses = [model.update(lessons)["reward_model/loss"] for _ in range(12)]
    assert losses[-1] < 0.3 * losses[0]
    model.finish(lessons)
    signs = [margin > 0 for margin in model.margins(lessons)]
    assert signs == [lesson.success for lesson in lessons]
    scores = [score(model, with_turns(m)) for m in groups[0].graded]
    low, high = LEARNED_PARTS[form].low, LEARNED_PARTS[form].high
    numbers = [n for one in scores for n in (one if isinstance(one, list) else [one])]
    assert all(low <= number <= high for number in numbers)


@pytest.mark.long
@pytest.mark.parametrize("form", list(FORMS))
def test_micro_batches_change_nothing(form: str) -> None:
    groups = make_groups(REWARDS)
    whole, cut = made(form), made(form, micro=64)
    metrics = [model.update(model.lessons(groups)) for model in (whole, cut)]
    assert metrics[1] == pytest.approx(metrics[0], rel=1e-3, abs=1e-5)
    torch.testing.assert_close(whole.head.weight, cut.head.weight, rtol=1e-3, atol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("form", list(FORMS))
def test_a_saved_model_goes_on_exactly(form: str) -> None:
    groups = make_groups(REWARDS)
    whole = made(form)
    lessons = whole.lessons(groups)
    whole.update(lessons)
    whole.finish(lessons)
    again = made(form)
    again.load_state(copy.deepcopy(whole.state()))
    member = with_turns(groups[0].trajectories[0])
    assert score(again, member) == score(whole, member)
    assert again.update(lessons) == whole.update(lessons)
    assert score(again, member) == score(whole, member)


def test_the_policy_does_not_move() -> None:
    policy = load_model()
    before = copy.deepcopy(policy.state_dict())
    config = RewardModelConfig(data=("data",), learning_rate=1e-2)
    model = RewardModel(policy, config, LearningConfig())
    model.update(model.lessons(make_groups(REWARDS)))
    torch.testing.assert_close(policy.state_dict(), before, rtol=0, atol=0)


def test_a_loss_that_is_not_finite_changes_nothing() -> None:
    model = made()
    with torch.no_grad():
        model.head.bias.fill_(math.inf)
    before = model.head.weight.detach().clone()
    assert model.update(model.lessons(make_groups(REWARDS)))["reward_model/skipped_updates"] == 1
    torch.testing.assert_close(model.head.weight, before, rtol=0, atol=0)
    assert model.update([]) == {}


def test_numbers_are_read_in_the_context_of_their_turn() -> None:
    """After a window was compacted a turn is read with what the policy read before it."""
    model = made("process")
    model.finish([])
    member = make_groups([[1.0]], seed=3)[0].trajectories[0]
    tokens = member.tokens.with_context(np.arange(2))
    turn = int(member.tokens.turn[-1]) + 1
    start = tokens.spans[1].start
    tokens = tokens.with_sampled([3, 4], [-1.0, -1.0], 0, turn)
    two = with_turns(replace(member, tokens=tokens))
    before = torch.tensor(tokens.ids[None, start : start + 2])
    ended = torch.tensor(tokens.ids[None, start:])
    with torch.no_grad():
        numbers = [
            float(model.head(model.model.model(input_ids=ids).last_hidden_state[0, -1]))
            for ids in (before, ended)
        ]
    expected = sigmoid(numbers[1]) - sigmoid(numbers[0])
    assert score(model, two)[-1] == pytest.approx(expected, abs=1e-5)
