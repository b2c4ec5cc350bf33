"""Promise 6 for mixtures of experts: two ranks make the update of one."""

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

from cluster_tests.learners.comparing import (
    ALGORITHMS,
    REWARDS,
    WITH_REFERENCE,
    Bench,
    assert_same_critics,
    assert_same_updates,
    gone_on,
    names_in,
    updated,
)
from tests.learning.building import VOCABULARY, changed, each
from turnwise.config import Recipe
from turnwise.learning.credits import estimate
from turnwise.learning.signals.base import Signals
from turnwise.types import Trajectory
from turnwise_cluster.settings import cluster_of

pytestmark = pytest.mark.numbers

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


@pytest.fixture
def bench(bench: Bench, expert_folders: dict[str, Path]) -> Bench:
    return replace(bench, models=expert_folders)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["qwen3_moe", pytest.param("mixtral", marks=pytest.mark.slow)])
def test_two_ranks_make_the_update_of_one(bench: Bench, kind: str) -> None:
    """With a KL term and entropies; experts that few tokens reach, and none on one of the ranks."""
    recipe = bench.recipe(kind, ALGORITHMS[1], updates_per_step=2)
    assert_same_updates(*bench.pair(recipe), bench.made(2))


@pytest.mark.long
@pytest.mark.parametrize("kind", ["qwen3_moe", pytest.param("mixtral", marks=pytest.mark.slow)])
@pytest.mark.parametrize("slices", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_tokens_go_to_experts(bench: Bench, kind: str, slices: int) -> None:
    """In place of weights that are gathered; alone, and with rows that ranks compute together."""
    recipe = bench.recipe(kind, ALGORITHMS[1], updates_per_step=2)
    recipe = kept_apart(recipe, slices)
    one, other = bench.pair(recipe)
    experts = bench.team.parts.learner.model.model.layers[0].mlp.experts
    assert experts.down_proj.to_local().shape[0] == experts.num_experts == 2
    assert_same_updates(one, other, bench.made(2))


@pytest.mark.long
@pytest.mark.parametrize("apart", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_experts_are_replayed_on_ranks(bench: Bench, apart: bool) -> None:
    """Where weights are gathered, and where tokens go to experts."""
    recipe = bench.recipe("qwen3_moe", ALGORITHMS[1])
    one, other = bench.pair(kept_apart(recipe) if apart else recipe)
    groups = each(bench.groups(REWARDS, 1), _with_experts)
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
    return recipe.model_copy(update={"cluster": cluster_of(recipe).model_copy(update=update)})


@pytest.mark.slow
def test_one_process_goes_on_from_the_experts_of_two(bench: Bench) -> None:
    recipe = kept_apart(bench.recipe("qwen3_moe", WITH_REFERENCE))
    two = updated(bench.pair(recipe)[1], recipe, bench.groups(REWARDS, 1))
    folder = bench.save(two)
    assert names_in(folder) == names_in(bench.models["qwen3_moe"])
    again = gone_on(folder, recipe, None), gone_on(folder, recipe, bench.team)
    assert_same_updates(*again, [bench.groups(REWARDS, 2)])


@pytest.mark.slow
def test_a_critic_with_experts(bench: Bench) -> None:
    recipe = bench.recipe("qwen3_moe", {"name": "ppo"})
    learners = bench.pair(recipe)
    assert_same_critics(*learners, bench.made(2))
