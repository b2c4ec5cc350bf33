"""Promise 6: an update does not depend on the number of processes that make it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributed.tensor import DTensor

from cluster_tests.learners.comparing import (
    ALGORITHMS,
    REWARDS,
    Bench,
    assert_same_critics,
    assert_same_optimizers,
    assert_same_updates,
    assert_same_weights,
    begun_alike,
    row_by_row,
    same,
)
from tests.learning.building import drawn_among_some, each, put, with_one
from tests.learning.test_shared_prefixes import group
from turnwise.algorithms import make_algorithm
from turnwise.learning.batch import policy_examples
from turnwise.learning.credits import estimate
from turnwise.learning.shared_prefixes import build_prefix_trees
from turnwise.learning.signals.base import Signals
from turnwise.learning.signals.reward_terms import KLReward
from turnwise.storage import checkpoint
from turnwise.storage.tensors import read
from turnwise.types import Group

pytestmark = pytest.mark.numbers

MOST = 64
"""Tokens of a micro-batch: those of one tree."""
TREES: list[list[Group]] = [
    [group("a", [20, 21, 22, 23, 24]), group("b", [30, 31]), group("c", [*range(30, 45)])],
    [group("a", [*range(7, 20)])],
]
"""Groups of two steps: of one a rank has more trees than the other, of the other one has none."""


def name_of(value: Any) -> str:
    return value["name"] if isinstance(value, dict) else str(value)


@pytest.mark.long
@pytest.mark.parametrize(
    ("algorithm", "slices"),
    [
        *((algorithm, 1) for algorithm in ALGORITHMS),
        (ALGORITHMS[1], 2),
        *(pytest.param(algorithm, 2, marks=pytest.mark.slow) for algorithm in ALGORITHMS[2:]),
    ],
    ids=name_of,
)
def test_two_ranks_make_the_update_of_one(
    bench: Bench, algorithm: dict[str, Any], slices: int
) -> None:
    """Two updates in each of two steps. In slices: rows of different lengths, of which one slice
    may have no trained token at all."""
    recipe = bench.recipe("qwen3", algorithm, updates_per_step=2, slices=slices)
    assert_same_updates(*bench.pair(recipe), bench.made(2))


@pytest.mark.long
@pytest.mark.parametrize("family", ["qwen3", "gemma2"])
def test_adapters_are_whole_on_each_rank_and_their_base_divided(bench: Bench, family: str) -> None:
    """The reference is the model without them; what is saved and delivered is of them alone."""
    recipe = bench.recipe(family, {"name": "dapo", "kl_coefficient": 0.1}, lora_rank=2)
    one, two = bench.pair(recipe)
    assert_same_updates(one, two, bench.made(2))
    held = list(bench.team.parts.learner.model.parameters())
    assert all(isinstance(weight, DTensor) != weight.requires_grad for weight in held)
    moments = two.state()["moments"]
    assert len(moments) == sum(weight.requires_grad for weight in held)
    groups = bench.groups(REWARDS)
    ours, theirs = (each.reference_logprobs(groups[0].graded) for each in (one, two))
    assert all(map(same, ours, theirs))


@pytest.mark.long
@pytest.mark.parametrize("lora_rank", [0, 2])
def test_weights_in_bfloat16_are_moved_in_float32(bench: Bench, lora_rank: int) -> None:
    """One row in each micro-batch, since rounding depends on the rows beside it and sums in float32
    do not; one update, whose weights may be rounded apart; and no tied weights, whose two
    gradients ranks add up in bfloat16, one process in float32."""
    recipe = bench.recipe("llama", {"name": "grpo"}, lora_rank=lora_rank, dtype="bfloat16")
    one, two = bench.pair(row_by_row(recipe))
    assert_same_updates(one, two, bench.made(1))
    masters = two.state()["masters"]
    assert bool(masters) == (not lora_rank)  # adapters are in float32
    assert all(master.dtype == torch.float32 for master in masters.values())


@pytest.mark.long
def test_products_in_bfloat16_over_weights_in_float32(bench: Bench) -> None:
    recipe = bench.recipe("gemma2", {"name": "grpo"}, compute_dtype="bfloat16")
    assert_same_updates(*bench.pair(row_by_row(recipe)), bench.made(2))


@pytest.mark.long
def test_an_optimizer_in_the_processors_memory_makes_the_same_updates(bench: Bench) -> None:
    plain = bench.recipe("gemma2", {"name": "grpo"})
    offloaded = bench.recipe("gemma2", {"name": "grpo"}, offload_optimizer=True)
    one, two = bench.pair(plain)[0], bench.pair(offloaded)[1]
    assert_same_updates(one, two, bench.made(2))


@pytest.mark.long
@pytest.mark.parametrize(
    ("family", "slices"),
    [("qwen3", 1), ("gemma2", 1), pytest.param("qwen3", 2, marks=pytest.mark.slow)],
)
def test_ranks_learn_over_sampling_masks(bench: Bench, family: str, slices: int) -> None:
    """With a KL term and entropies, where each has rows of its own and where they share them."""
    one, other = bench.pair(bench.recipe(family, ALGORITHMS[1], slices=slices))
    whole = bench.groups(REWARDS, 1)
    groups = each(whole, drawn_among_some)
    assert_same_updates(one, other, [groups])
    gaps = [
        one.update(some, estimate(some, Signals(), one.algorithm)).metrics["policy/logprob_gap"]
        for some in (groups, whole)
    ]
    assert abs(gaps[0] - gaps[1]) > 0.01


def test_each_group_is_one_tree_or_two() -> None:
    """So that the comparison is of trees."""
    algorithm = make_algorithm("grpo", {})
    for groups, count in zip(TREES, (3, 1), strict=True):
        credits = estimate(groups, Signals(), algorithm)
        examples = policy_examples(groups, credits, algorithm, True)
        trees, others = build_prefix_trees(examples, 32, MOST)
        assert (len(trees), len(others)) == (count, 0)


@pytest.mark.long
def test_each_tree_stays_on_one_rank(bench: Bench) -> None:
    """With a KL term, the entropy, and log-probabilities that are computed again."""
    algorithm = ALGORITHMS[1] | {"correction": "truncated"}
    sharing = {"share_prefixes": True, "tokens_per_micro_batch": MOST}
    assert_same_updates(*bench.pair(bench.recipe("qwen3", algorithm, **sharing)), TREES)


@pytest.mark.long
def test_a_rank_without_rows_takes_part(bench: Bench) -> None:
    """One trajectory is trained on; then there is none at all."""
    one, two = bench.pair(bench.recipe("qwen3", {"name": "grpo"}))
    groups = bench.groups(REWARDS)
    credits = estimate(groups, Signals(), one.algorithm)
    alone = replace(credits, trained=frozenset({groups[0].trajectories[0].id}))
    expected, found = one.update(groups, alone), two.update(groups, alone)
    for name in ("policy/trained_tokens", "policy/loss", "policy/gradient_norm"):
        assert found.metrics[name] == pytest.approx(expected.metrics[name], rel=1e-6)
    assert_same_weights(one.model, two.model, one.state(), two.state())
    nothing = replace(credits, trained=frozenset())
    assert two.update(groups, nothing).metrics["policy/updates"] == 0


@pytest.mark.long
@pytest.mark.parametrize(("family", "lora_rank"), [("qwen3", 0), ("gemma2", 2)])
def test_the_noise_of_a_gradient_is_that_of_one_process(
    bench: Bench, family: str, lora_rank: int
) -> None:
    """Of divided weights, and of adapters, which each rank has a gradient of its own rows of. One
    group has fewer rows than there are ranks."""
    one, two = bench.pair(bench.recipe(family, {"name": "reinforce_pp"}, lora_rank=lora_rank))
    groups = bench.groups([*REWARDS, [1.0]])
    credits = estimate(groups, Signals(), one.algorithm)
    expected, found = (
        each.update(groups, credits, measure_variance=True).metrics for each in (one, two)
    )
    assert {"policy/gradient_variance", "policy/gradient_signal"} < expected.keys()
    assert expected["policy/gradient_variance"] > 1e-4
    assert found == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert_same_weights(one.model, two.model, one.state(), two.state())


@pytest.mark.long
def test_an_update_that_is_no_number_is_skipped_by_all(bench: Bench) -> None:
    """It is of one rank's rows, and every rank has to leave its weights as they were."""
    one, two = bench.pair(bench.recipe("qwen3", {"name": "grpo"}))
    groups = bench.groups(REWARDS)
    tokens = groups[1].trajectories[0].tokens
    unknown = put(tokens.logprob, np.flatnonzero(tokens.mask)[1], np.nan)
    bad = with_one(groups, 1, 0, logprob=unknown)
    credits = estimate(bad, Signals(), one.algorithm)
    expected, found = one.update(bad, credits), two.update(bad, credits)
    assert len(expected.problems) == 1
    assert found.problems == expected.problems
    assert found.metrics["policy/skipped_updates"] == 1
    assert_same_updates(one, two, [groups])


@pytest.mark.long
def test_the_reference_scores_as_on_one_process(bench: Bench) -> None:
    """A KL term in the reward."""
    algorithm = {"name": "reinforce_pp", "kl_reward_coefficient": 0.1}
    one, two = bench.pair(bench.recipe("qwen3", algorithm))
    groups = bench.groups(REWARDS)
    ours, theirs = (KLReward(each.reference_logprobs, 0.1).measure(groups) for each in (one, two))
    assert ours.metrics == pytest.approx(theirs.metrics, abs=1e-6)
    assert two.kl_coefficient == one.kl_coefficient > 0


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_critic_of_two_ranks_is_that_of_one(bench: Bench, dtype: str) -> None:
    """Its head is in float32 in either case, and not zero, as it is at first: the body's gradients
    are nothing but rounding then."""
    one, two = bench.pair(row_by_row(bench.recipe("llama", {"name": "ppo"}, dtype=dtype)))
    generator = torch.Generator().manual_seed(3)
    torch.nn.init.normal_(one.second.head.weight, std=0.1, generator=generator)
    begun_alike(one, two, bench.folder / "begun", bench.tokenizer)
    assert_same_critics(one, two, bench.made(3 if dtype == "float32" else 1))
    saved = read(checkpoint.load(bench.save(two)).learner["critic"])
    own = one.state()["critic"]
    assert_same_optimizers(own["weights"], saved["weights"], own["optimizer"], saved["optimizer"])


@pytest.mark.slow
def test_a_critic_of_two_slices(bench: Bench) -> None:
    recipe = bench.recipe("llama", {"name": "ppo"}, slices=2)
    assert_same_critics(*bench.pair(recipe), bench.made(2))
