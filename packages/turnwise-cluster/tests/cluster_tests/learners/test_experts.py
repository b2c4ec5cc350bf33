"""Promise 6 for mixtures of experts: two ranks make the update of one."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedTokenizerFast,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from cluster_tests.learners.test_learner import (
    ALGORITHMS,
    REWARDS,
    assert_same_critics,
    assert_same_updates,
    pair,
    recipe_of,
)
from cluster_tests.learners.test_saving import WITH_REFERENCE, gone_on, names_in, save, updated
from tests.learning.building import VOCABULARY, changed, each
from turnwise.config import Recipe
from turnwise.learning.credits import estimate
from turnwise.learning.signals.base import Signals
from turnwise.types import Group, Trajectory
from turnwise_cluster.learners.team import Team

pytestmark = pytest.mark.numbers

MakeGroups = Callable[..., list[Group]]
KINDS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "qwen3_moe": (Qwen3MoeConfig, Qwen3MoeForCausalLM, {"num_experts": 4}),
    "mixtral": (MixtralConfig, MixtralForCausalLM, {"num_local_experts": 4}),
}


@pytest.fixture(scope="module")
def expert_folders(
    tmp_path_factory: pytest.TempPathFactory, tokenizer: PreTrainedTokenizerFast
) -> dict[str, Path]:
    """A random model of each kind on disk; no weight has more numbers than are looked at to see
    which have changed."""
    folders = {}
    for kind, (config_class, model_class, options) in KINDS.items():
        config = config_class(
            vocab_size=VOCABULARY,
            hidden_size=32,
            intermediate_size=16,
            moe_intermediate_size=16,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            num_experts_per_tok=2,
            max_position_embeddings=256,
            initializer_range=0.2,
            **options,
        )
        with torch.random.fork_rng():
            torch.manual_seed(1)
            model = model_class(config)
        folders[kind] = tmp_path_factory.mktemp(kind)
        model.save_pretrained(folders[kind])
        tokenizer.save_pretrained(folders[kind])
    return folders


@pytest.mark.long
@pytest.mark.parametrize("kind", ["qwen3_moe", pytest.param("mixtral", marks=pytest.mark.slow)])
def test_two_ranks_make_the_update_of_one(
    team: Team, expert_folders: dict[str, Path], make_groups: MakeGroups, kind: str
) -> None:
    """With a KL term and entropies; experts that few tokens reach, and none on one of the ranks."""
    recipe = recipe_of(expert_folders[kind], ALGORITHMS[1], updates_per_step=2)
    assert_same_updates(*pair(team, recipe), [make_groups(REWARDS, seed) for seed in range(2)])


@pytest.mark.long
@pytest.mark.parametrize("kind", ["qwen3_moe", pytest.param("mixtral", marks=pytest.mark.slow)])
@pytest.mark.parametrize("slices", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_tokens_go_to_experts(
    team: Team,
    expert_folders: dict[str, Path],
    make_groups: MakeGroups,
    kind: str,
    slices: int,
) -> None:
    """In place of weights that are gathered; alone, and with rows that ranks compute together."""
    recipe = recipe_of(expert_folders[kind], ALGORITHMS[1], updates_per_step=2)
    recipe = kept_apart(recipe, slices)
    one, other = pair(team, recipe)
    experts = team.parts.learner.model.model.layers[0].mlp.experts
    assert experts.down_proj.to_local().shape[0] == experts.num_experts == 2
    assert_same_updates(one, other, [make_groups(REWARDS, seed) for seed in range(2)])


@pytest.mark.long
@pytest.mark.parametrize("apart", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_experts_are_replayed_on_ranks(
    team: Team, expert_folders: dict[str, Path], make_groups: MakeGroups, apart: bool
) -> None:
    """Where weights are gathered, and where tokens go to experts."""
    recipe = recipe_of(expert_folders["qwen3_moe"], ALGORITHMS[1])
    one, other = pair(team, kept_apart(recipe) if apart else recipe)
    groups = each(make_groups(REWARDS, 1), _with_experts)
    assert_same_updates(one, other, [groups])
    algorithm = one.algorithm
    report = one.update(groups, estimate(groups, Signals({}), algorithm))
    assert 0.5 < report.metrics["policy/routing_changed"] < 1


def _with_experts(member: Trajectory) -> Trajectory:
    """Two of the four experts of each token, in both layers, by chance."""
    generator = np.random.default_rng(member.episode)
    size = (len(member.tokens), 2, 4)
    experts = generator.random(size).argsort(-1)[..., :2].astype(np.int16)
    return changed(member, tokens=replace(member.tokens, experts=experts))


def kept_apart(recipe: Recipe, slices: int = 1) -> Recipe:
    """With tokens that go to experts, in place of weights that are gathered."""
    update = {"learners": 2, "sequence_ranks": slices, "expert_parallel": True}
    return recipe.model_copy(update={"cluster": recipe.cluster.model_copy(update=update)})


@pytest.mark.slow
def test_one_process_goes_on_from_the_experts_of_two(
    team: Team,
    expert_folders: dict[str, Path],
    make_groups: MakeGroups,
    tokenizer: PreTrainedTokenizerFast,
    tmp_path: Path,
) -> None:
    recipe = kept_apart(recipe_of(expert_folders["qwen3_moe"], WITH_REFERENCE))
    two = updated(pair(team, recipe)[1], recipe, make_groups(REWARDS, 1))
    folder = save(two, tmp_path, tokenizer)
    assert names_in(folder) == names_in(expert_folders["qwen3_moe"])
    again = gone_on(folder, recipe, None), gone_on(folder, recipe, team)
    assert_same_updates(*again, [make_groups(REWARDS, 2)])


@pytest.mark.slow
def test_a_critic_with_experts(
    team: Team, expert_folders: dict[str, Path], make_groups: MakeGroups
) -> None:
    recipe = recipe_of(expert_folders["qwen3_moe"], {"name": "ppo"})
    learners = pair(team, recipe)
    assert_same_critics(*learners, [make_groups(REWARDS, seed) for seed in range(2)])
