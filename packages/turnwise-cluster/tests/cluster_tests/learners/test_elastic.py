"""Promises 6 and 7 with other numbers of processes: an update is that of one, and what two have
written four go on from, and one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from cluster_tests.learners.comparing import (
    ALGORITHMS,
    REWARDS,
    WITH_REFERENCE,
    assert_same_critics,
    assert_same_update,
    assert_same_updates,
    gone_on,
    pair,
    recipe_of,
    save,
    sliced,
    updated,
)
from turnwise.types import Group
from turnwise_cluster.learners.team import Team

pytestmark = [pytest.mark.numbers, pytest.mark.slow]
MakeGroups = Callable[..., list[Group]]


@contextmanager
def ranks(count: int, logs: Path, replicas: int = 1) -> Iterator[Team]:
    """Processes of this test alone: a process is in one team at a time."""
    team = Team(count, torch.device("cpu"), 1, 120.0, logs, replicas=replicas)
    try:
        yield team
    finally:
        team.close()


def test_four_go_on_from_two_and_one_from_four(
    model_folders: dict[str, Path], make_groups: MakeGroups, tokenizer: Any, tmp_path: Path
) -> None:
    """Of the smallest weights some of the four have no part."""
    recipe = recipe_of(model_folders["qwen3"], WITH_REFERENCE)
    with ranks(2, tmp_path / "two") as team:
        two = updated(pair(team, recipe)[1], recipe, make_groups(REWARDS, 1))
        folder = save(two, tmp_path, tokenizer)
    one = updated(gone_on(folder, recipe, None), recipe, make_groups(REWARDS, 2))
    with ranks(4, tmp_path / "four") as team:
        four = updated(gone_on(folder, recipe, team), recipe, make_groups(REWARDS, 2))
        later = save(four, tmp_path, tokenizer, 2)
    assert_same_updates(one, gone_on(later, recipe, None), [make_groups(REWARDS, 3)])


def test_two_replicas_of_two_parts_make_the_update_of_one(
    model_folders: dict[str, Path], make_groups: MakeGroups, tokenizer: Any, tmp_path: Path
) -> None:
    """And one process goes on from what they have written, each part once."""
    recipe = recipe_of(model_folders["gemma2"], WITH_REFERENCE)
    with ranks(4, tmp_path / "logs", replicas=2) as team:
        one, four = pair(team, recipe)
        assert_same_updates(one, four, [make_groups(REWARDS, seed) for seed in range(2)])
        folder = save(four, tmp_path, tokenizer)
    shards = sum(file.stat().st_size for file in (folder / "learner").iterdir())
    weights = sum(weight.numel() for weight in one.model.parameters())
    assert shards < 1.5 * 8 * weights + 100_000
    assert_same_updates(one, gone_on(folder, recipe, None), [make_groups(REWARDS, 2)])


@pytest.mark.parametrize("count", [3, 4])
def test_three_and_four_ranks_make_the_update_of_one(
    model_folders: dict[str, Path], make_groups: MakeGroups, tmp_path: Path, count: int
) -> None:
    """Dense, layer by layer, with adapters, with a critic; a KL term in all of them."""
    made = [make_groups(REWARDS, seed) for seed in range(2)]
    with ranks(count, tmp_path) as team:
        assert_same_updates(*pair(team, recipe_of(model_folders["qwen3"], ALGORITHMS[1])), made)
        assert_same_updates(*pair(team, recipe_of(model_folders["gemma2"], ALGORITHMS[1])), made)
        adapters = recipe_of(model_folders["gemma2"], ALGORITHMS[1], lora_rank=2)
        assert_same_updates(*pair(team, adapters), made)
        ppo = recipe_of(model_folders["llama"], {"name": "ppo", "kl_coefficient": 0.1})
        one, two = pair(team, ppo)
        credits = assert_same_critics(one, two, made)
        for groups, own in zip(made, credits, strict=True):
            assert_same_update(one, two, groups, own)


@pytest.mark.parametrize("slices", [2, 4])
def test_slices_make_the_update_of_one(
    model_folders: dict[str, Path], make_groups: MakeGroups, tmp_path: Path, slices: int
) -> None:
    """Two pairs; then four slices for two heads of keys, which are repeated for them."""
    recipe = sliced(recipe_of(model_folders["llama"], ALGORITHMS[1]), 4, slices)
    with ranks(4, tmp_path) as team:
        assert_same_updates(*pair(team, recipe), [make_groups(REWARDS, seed) for seed in range(2)])
