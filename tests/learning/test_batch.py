"""Masks, denominators and the shift by one."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.learning.building import GRPO, make_groups, worked_example
from turnwise.algorithms import make_algorithm
from turnwise.algorithms.aggregation import token_mean
from turnwise.learning.batch import (
    Example,
    collate,
    loss_mask,
    pack,
    policy_examples,
    supervised_examples,
    weigh,
)
from turnwise.learning.credits import Credits, estimate
from turnwise.learning.signals.base import Signals
from turnwise.tokens import Segment, Source, Tokens
from turnwise.types import Group, Outcome, Task, Trajectory, TrajectoryId, Verdict

CPU = torch.device("cpu")


def test_the_mask_comes_from_provenance() -> None:
    tokens = worked_example()
    assert loss_mask(tokens, True).astype(int).tolist() == [0, 0, 1, 1, 0, 0, 1, 0]
    assert loss_mask(tokens, False).astype(int).tolist() == [0, 0, 1, 1, 1, 0, 1, 1]


def test_position_t_predicts_token_t_plus_one() -> None:
    """Rows are padded on the right, and flat tensors follow them."""
    short = Tokens.empty().with_segments([Segment([12], Source.USER)], 0)
    short = short.with_sampled([23], [-1.0], version=0, turn=0)
    examples = [*supervised_examples(worked_example(), "0"), *supervised_examples(short, "1")]
    batch = collate(weigh(examples, token_mean), CPU)
    # What follows the last trained token is cut off, and the last token predicts nothing.
    assert batch.inputs.tolist() == [[10, 11, 20, 21, 30, 31], [12, 0, 0, 0, 0, 0]]
    assert batch.selected.int().tolist() == [[0, 1, 1, 0, 0, 1], [1, 0, 0, 0, 0, 0]]
    assert batch.targets.tolist() == [20, 21, 22, 23]
    assert batch.sequence.tolist() == [0, 0, 0, 1]
    assert batch.behaviour_logprob.tolist() == pytest.approx([-0.1, -2.0, -0.3, -1.0])
    assert batch.weight.tolist() == pytest.approx([1 / 4] * 4)


def test_what_nothing_predicts_is_in_no_example() -> None:
    """A sampled token that stands first, and records in which nothing was sampled."""
    sampled = Tokens.empty().with_sampled([5, 6], [-1.0, -1.0], version=0, turn=0)
    told = Tokens.empty().with_segments([Segment([1, 2], Source.USER)], 0)
    (example,), (empty,) = (supervised_examples(one, "x") for one in (sampled, told))
    assert example.trained.tolist() == [False, True]
    assert len(empty.ids) == 0
    assert list(pack([empty], 64)) == []


def plain(length: int) -> Example:
    trained = np.ones(length, np.bool_)
    trained[0] = False
    values = np.zeros(length, np.float32)
    return Example("x", "x", np.arange(length), trained, trained, values, values, values)


@given(lengths=st.lists(st.integers(2, 90), max_size=30), budget=st.integers(10, 200))
def test_packing_keeps_everything_within_the_budget(lengths: list[int], budget: int) -> None:
    packed = list(pack([plain(length) for length in lengths], budget))
    assert sorted(len(e.ids) for members in packed for e in members) == sorted(lengths)
    for members in packed:
        padded = len(members) * (max(len(e.ids) for e in members) - 1)
        assert padded <= budget or len(members) == 1


def test_ungraded_members_are_in_no_baseline_and_no_batch() -> None:
    with_ungraded = make_groups([[1.0, None, 0.0, None]])
    credits = estimate(with_ungraded, Signals(), GRPO)
    members = with_ungraded[0].trajectories
    assert members[1].id not in credits.advantages
    # mean 0.5, std (n-1) 0.7071: the two graded ones alone
    assert credits.advantages[members[0].id].max() == pytest.approx(math.sqrt(0.5), rel=1e-5)
    examples = policy_examples(with_ungraded, credits, GRPO, mask_observations=True)
    assert [e.name for e in examples] == ["g0 episode 0", "g0 episode 2"]
    assert sum(e.weight * e.trained.sum() for e in examples) == pytest.approx(1.0)


def all_of(groups: list[Group]) -> frozenset[TrajectoryId]:
    return frozenset(member.id for group in groups for member in group.graded)


def test_a_trajectory_without_advantage_is_a_bug() -> None:
    groups = make_groups([[1.0, 0.0]])
    with pytest.raises(KeyError, match="g0"):
        policy_examples(groups, Credits({}, all_of(groups)), GRPO, mask_observations=True)


def test_all_equal_groups_stay_in_denominators_unless_filtered() -> None:
    groups = make_groups([[1.0, 0.0], [1.0, 1.0]])
    credits = estimate(groups, Signals(), GRPO)
    kept = policy_examples(groups, credits, GRPO, mask_observations=True)
    dapo = make_algorithm("dapo", {})
    filtered = policy_examples(
        groups, estimate(groups, Signals(), dapo), dapo, mask_observations=True
    )
    assert len(kept) == 4
    assert len(filtered) == 2
    assert kept[0].weight * kept[0].trained.sum() == pytest.approx(1 / 4)
    assert filtered[0].weight == pytest.approx(1 / sum(e.trained.sum() for e in filtered))


def test_unmasked_observations_get_the_advantage_of_the_action_before_them() -> None:
    tokens = worked_example()
    judged = {"outcome": Outcome.SUCCESS, "verdict": Verdict(1.0, True)}
    member = Trajectory(Task("t", "q"), "g", 0, 0, tokens, **judged)
    group = Group("g", (member,))
    advantages = np.array([0, 0, 1, 2, 0, 0, 3, 0], np.float32)
    credits = Credits({member.id: advantages}, all_of([group]))
    (example,) = policy_examples([group], credits, GRPO, mask_observations=False)
    assert example.advantage[example.trained].tolist() == [1, 2, 2, 3, 3]
    assert np.isnan(example.behaviour_logprob[example.trained & ~example.sampled]).all()
