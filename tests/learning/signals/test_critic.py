"""The critic: what it is trained on, and that it learns."""

import copy
from typing import Any

import numpy as np
import pytest
import torch

from tests.learning.building import Step, credited, load_model, make_groups
from turnwise.config import CriticConfig, LearningConfig
from turnwise.learning.signals.critic import Critic

pytestmark = pytest.mark.numbers


def critic(**options: Any) -> Critic:
    learning = LearningConfig(tokens_per_micro_batch=options.pop("micro", 8192))
    return Critic(load_model(), CriticConfig(**{"learning_rate": 1e-2, **options}), learning)


def prepared(made: Critic) -> Step:
    return credited(made, make_groups([[1.0, 0.0, None], [0.5, 1.0]]))


def test_values_stand_at_sampled_tokens_of_graded_trajectories() -> None:
    made = critic()
    torch.nn.init.normal_(made.head.weight)
    groups, signals, _ = prepared(made)
    assert signals.of(groups[0].trajectories[2]).values is None
    for member in groups[0].graded + groups[1].graded:
        values = signals.of(member).values
        np.testing.assert_array_equal(np.isnan(values), ~member.tokens.mask)
        position = int(np.flatnonzero(member.tokens.mask)[-1])
        ids = torch.tensor(member.tokens.ids[None, :position])
        hidden = made.body(input_ids=ids).last_hidden_state[0, -1]
        assert values[position] == pytest.approx(made.head(hidden).item(), abs=1e-5)


@pytest.mark.long
def test_it_learns_what_to_expect() -> None:
    """The same trajectories again and again: the loss falls, and the values explain returns."""
    made = critic(clip=10.0)
    first = made.update(*prepared(made))
    for _ in range(40):
        last = made.update(*prepared(made))
    assert last["critic/loss"] < first["critic/loss"] / 10
    assert first["critic/explained_variance"] == 0
    assert last["critic/explained_variance"] > 0.9


def test_the_split_into_micro_batches_changes_nothing() -> None:
    found = []
    for micro in (64, 8192):
        made = critic(micro=micro)
        metrics = made.update(*prepared(made))
        found.append((metrics["critic/loss"], metrics["critic/gradient_norm"]))
    assert found[0] == pytest.approx(found[1], rel=1e-5)


def test_a_value_beyond_the_clip_has_no_gradient() -> None:
    """Targets of 1 and old values of 0: a value that has come 0.6 of the way is left alone."""
    made = critic(clip=0.5)
    groups = make_groups([[1.0, 1.0]])
    step = credited(made, groups)
    torch.nn.init.constant_(made.head.bias, 0.6)
    before = copy.deepcopy(made.state_dict())
    metrics = made.update(*step)
    assert metrics["critic/loss"] == pytest.approx(0.5 * 0.5**2)
    assert metrics["critic/gradient_norm"] == 0
    assert all(torch.equal(before[key], value) for key, value in made.state_dict().items())


def moved(clip: float, updates: int) -> Critic:
    """A critic after one step in which two groups of the same rewards are learned from."""
    learning = LearningConfig(updates_per_step=updates)
    made = Critic(load_model(), CriticConfig(learning_rate=0.1, clip=clip), learning)
    groups = make_groups([[1.0, 1.0], [1.0, 1.0]])
    made.update(*credited(made, groups))
    return made


def test_epochs_are_passes_over_the_same_targets() -> None:
    twice = Critic(load_model(), CriticConfig(), LearningConfig(epochs=2))
    once = Critic(load_model(), CriticConfig(), LearningConfig())
    step = credited(once, make_groups([[1.0, 0.0]]))
    twice.update(*step)
    once.update(*step)
    assert not torch.equal(once.head.weight, twice.head.weight)
    once.update(*step)
    assert torch.equal(once.head.weight, twice.head.weight)


def test_the_clip_acts_from_the_second_update_of_a_step_on() -> None:
    """A first update finds the old values; by the second they have moved beyond a narrow clip."""
    for updates in (1, 2):
        narrow, wide = (moved(clip, updates) for clip in (1e-6, 100.0))
        assert torch.equal(narrow.head.weight, wide.head.weight) is (updates == 1)
        assert narrow.optimizer.updates == updates


def test_a_share_without_a_target_makes_no_update() -> None:
    made = Critic(load_model(), CriticConfig(), LearningConfig(updates_per_step=2))
    assert made.update(*credited(made, make_groups([[None]]))) == {}
    assert made.optimizer.updates == 0
    step = credited(made, make_groups([[None, None], [1.0, 0.0]]))
    assert made.update(*step)["critic/skipped_updates"] == 0
    assert made.optimizer.updates == 1
