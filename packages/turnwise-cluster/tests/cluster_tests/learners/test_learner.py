"""Promise 6: an update does not depend on the number of processes that make it."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from tests.learning.building import put, with_one
from turnwise.config import Recipe, check_recipe
from turnwise.learning.credits import Credits, estimate
from turnwise.learning.learner import Learner
from turnwise.learning.policy import PolicyLearner
from turnwise.learning.signals.base import Signals
from turnwise.learning.signals.choice import second_model
from turnwise.learning.signals.critic import Critic
from turnwise.learning.signals.makers import Words
from turnwise.learning.signals.reward_terms import KLReward
from turnwise.models.load import load_model
from turnwise.parts.one_process import RunLearner
from turnwise.storage import checkpoint
from turnwise.storage.checkpoint import Saveable
from turnwise.storage.tensors import read
from turnwise.types import Group
from turnwise_cluster.learners.learner import DistributedLearner
from turnwise_cluster.learners.parts import algorithm_of
from turnwise_cluster.learners.team import Team

pytestmark = pytest.mark.numbers

MakeGroups = Callable[..., list[Group]]
REWARDS = [[1.0, 0.0, 0.0], [0.5, 1.0], [0.0, 1.0, 0.2]]
RATE = 1e-4
ALGORITHMS: list[dict[str, Any]] = [
    {"name": "grpo"},
    {"name": "dapo", "kl_coefficient": 0.1, "entropy_coefficient": 0.01},
    {"name": "gspo", "clip_low": 0.5, "clip_high": 0.5},
    {"name": "gmpo"},
    {"name": "kl_cov", "share": 0.2, "correction": "truncated"},
    {"name": "rloo", "observation_coefficient": 0.1, "success_coefficient": 0.1},
]
"""Objectives, the KL term and the entropy, denominators, a filter that ranks the tokens of all
ranks, log-probabilities that are computed again, and other losses in the same update."""


def recipe_of(
    model: Path,
    algorithm: dict[str, Any],
    lora_rank: int = 0,
    dtype: str = "float32",
    **learning: Any,
) -> Recipe:
    """A recipe of a model of `model_folders`, in as small micro-batches as there may be."""
    settings = {"learning_rate": RATE, "tokens_per_micro_batch": 64, **learning}
    return check_recipe(
        {
            "name": "x",
            "environment": {"name": "search"},
            "model": {"name": str(model), "lora_rank": lora_rank, "dtype": dtype},
            "rollout": {"max_tokens": 256},
            "algorithm": algorithm,
            "learning": settings,
        },
        "test",
    )


def row_by_row(recipe: Recipe) -> Recipe:
    """The recipe with smaller micro-batches than a recipe may ask for, of one row each."""
    learning = recipe.learning.model_copy(update={"tokens_per_micro_batch": 1})
    return recipe.model_copy(update={"learning": learning})


def loaded(recipe: Recipe, seed: int) -> PreTrainedModel:
    """The recipe's model with other weights, which no other process can read from its folder."""
    model, _ = load_model(recipe.model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight += (0.02 * torch.randn(weight.shape, generator=generator)).to(weight.dtype)
    return by_own_layers(model)


def by_own_layers(model: Any) -> Any:
    """The model, computed by its own layers as ranks compute it, whatever its size: those that are
    written out round otherwise, by more than is compared here. A hook of any kind does that."""
    model.get_decoder().register_forward_hook(_as_it_is)
    return model


def _as_it_is(module: nn.Module, inputs: Any, outputs: Any) -> Any:
    return outputs


def alone(
    recipe: Recipe,
    model: PreTrainedModel,
    reference: PreTrainedModel | None,
    words: Words | None = None,
) -> RunLearner:
    """The learner of one process, with the second model of its algorithm."""
    algorithm = algorithm_of(recipe)
    given = reference, recipe.learning, algorithm, recipe.rollout.temperature
    return RunLearner(model, *given, second=second_model(recipe, algorithm, model, words))


def pair(
    team: Team, recipe: Recipe, words: Words | None = None
) -> tuple[RunLearner, DistributedLearner]:
    """The same learner on one process and on those of the team."""
    several = algorithm_of(recipe).has_reference and not recipe.model.lora_rank

    def models() -> tuple[PreTrainedModel, PreTrainedModel | None]:
        return loaded(recipe, 1), loaded(recipe, 2) if several else None

    one = alone(recipe, *models(), words)
    return one, DistributedLearner(team, recipe, *models(), words)


def begun_alike(one: RunLearner, two: DistributedLearner, folder: Path, tokenizer: Any) -> None:
    """Let the learner of several processes go on from what the one of one process is."""
    checkpoint.save(folder, 0, one.model, tokenizer, {}, one.state())
    two.load_state(checkpoint.load(folder / "step-000000").learner)


def same(one: Any, other: Any) -> bool:
    """Whether numbers are equal to 1e-6, as shares of them where they are above 1."""
    return bool(torch.allclose(torch.as_tensor(one), torch.as_tensor(other), 1e-6, 1e-6, True))


def assert_same_weights(
    one: nn.Module, other: nn.Module, state: Mapping[str, Any], found: Mapping[str, Any]
) -> None:
    """Compare models and states of their optimizers: see `assert_same_optimizers`; frozen weights
    are equal."""
    ours, theirs = (dict(model.named_parameters()) for model in (one, other))
    frozen = [name for name, weight in ours.items() if not weight.requires_grad]
    assert all(torch.equal(ours[name], theirs[name]) for name in frozen)
    assert_same_optimizers(ours, theirs, state, found)


def assert_same_optimizers(
    ours: Mapping[str, Any], theirs: Mapping[str, Any], one: Any, other: Any
) -> None:
    """Compare weights, or their masters where they have any, and the states of their optimizers; of
    moments that are divided, the first part.

    The first moments, which are sums of gradients, are equal to 2e-6 of the length of all of them
    together, 17 units of rounding, and none is off by more than 1e-5 of the largest of its weight.
    Weights are equal to 1e-6 where the second moment says that gradients are above rounding. Where
    they are not (below 1e-4 of the largest) Adam moves a weight by as much as any other, in the
    direction of what rounding has left; nothing more can be said of it than how far that is.
    """
    assert one["moments"].keys() == other["moments"].keys()
    assert one["masters"].keys() == other["masters"].keys()
    difference = length = 0.0
    for name, moments in one["moments"].items():
        found = local(other["moments"][name]["exp_avg"])
        first = moments["exp_avg"][: len(found)]
        largest = moments["exp_avg"].abs().max()
        assert ((first - found).abs() <= 1e-5 * largest).all()
        difference += float((first - found).square().sum())
        length += float(first.square().sum())
        far = (ours[name].detach() - theirs[name].detach()).abs()
        if name in one["masters"]:
            found = local(other["masters"][name])
            far = (one["masters"][name][: len(found)] - found).abs()
        size = moments["exp_avg_sq"].sqrt()
        assert (far * (size >= 1e-4 * size.max())[: len(far)] < 1e-6).all()
        assert (far < 2 * RATE * one["updates"]).all()
    assert difference <= (2e-6) ** 2 * length


def local(tensor: Any) -> torch.Tensor:
    """This process's part of a tensor: all of one that is not divided."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def assert_same_updates(
    one: PolicyLearner | RunLearner, other: Learner, made: list[list[Group]]
) -> None:
    """Make an update of each of several steps' groups, and compare all that there is to compare."""
    algorithm = one.algorithm
    weight = next(weight for weight in one.model.parameters() if weight.requires_grad)
    before = weight.detach().clone()
    for groups in made:
        assert_same_update(one, other, groups, estimate(groups, Signals(), algorithm))
    assert not same(before, weight.detach())


def assert_same_update(
    one: PolicyLearner | RunLearner, other: Learner, groups: list[Group], credits: Credits
) -> None:
    """Make the update, and compare its metrics, tokens, weights and the optimizer's state."""
    expected, found = one.update(groups, credits), other.update(groups, credits)
    assert found.metrics.keys() == expected.metrics.keys()
    for name, value in expected.metrics.items():
        assert found.metrics[name] == pytest.approx(value, rel=1e-5, abs=1e-6), name
    assert found.tokens.keys() == expected.tokens.keys()
    for trajectory, row in expected.tokens.items():
        theirs = found.tokens[trajectory]
        assert all(same(row[field], theirs[field]) for field in row.dtype.names or ())
    assert_same_weights(one.model, other.model, one.state(), other.state())


def assert_same_critics(one: RunLearner, two: Learner, made: list[list[Group]]) -> list[Credits]:
    """Measure and update with the groups of each of several steps; returns the credits of each."""
    estimated, whole, divided = [], one.second, two.second
    assert whole is not None
    assert divided is not None
    for groups in made:
        expected, found = whole.measure(groups), divided.measure(groups)
        for member in (member for group in groups for member in group.graded):
            assert same(expected.of(member).values, found.of(member).values)
        credits = estimate(groups, expected, one.algorithm)
        told = whole.update(groups, expected, credits)
        assert divided.update(groups, expected, credits) == pytest.approx(told, rel=1e-5, abs=1e-6)
        estimated.append(credits)
    return estimated


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda algorithm: algorithm["name"])
def test_two_ranks_make_the_update_of_one(
    team: Team, model_folders: dict[str, Path], make_groups: MakeGroups, algorithm: dict[str, Any]
) -> None:
    """Two updates in each of two steps."""
    recipe = recipe_of(model_folders["qwen3"], algorithm, updates_per_step=2)
    assert_same_updates(*pair(team, recipe), [make_groups(REWARDS, seed) for seed in range(2)])


@pytest.mark.long
@pytest.mark.parametrize("family", ["qwen3", "gemma2"])
def test_adapters_are_whole_on_each_rank_and_their_base_divided(
    team: Team, model_folders: dict[str, Path], make_groups: MakeGroups, family: str
) -> None:
    """The reference is the model without them; what is saved and delivered is of them alone."""
    algorithm = {"name": "dapo", "kl_coefficient": 0.1}
    one, two = pair(team, recipe_of(model_folders[family], algorithm, lora_rank=2))
    assert_same_updates(one, two, [make_groups(REWARDS, seed) for seed in range(2)])
    held = list(team.parts.learner.model.parameters())
    assert all(isinstance(weight, DTensor) != weight.requires_grad for weight in held)
    moments = two.state()["moments"]
    assert len(moments) == sum(weight.requires_grad for weight in held)
    groups = make_groups(REWARDS)
    ours, theirs = (each.reference_logprobs(groups[0].graded) for each in (one, two))
    assert all(map(same, ours, theirs))


@pytest.mark.long
@pytest.mark.parametrize("lora_rank", [0, 2])
def test_weights_in_bfloat16_are_moved_in_float32(
    team: Team, model_folders: dict[str, Path], make_groups: MakeGroups, lora_rank: int
) -> None:
    """One row in each micro-batch, since rounding depends on the rows beside it and sums in float32
    do not; one update, whose weights may be rounded apart; and no tied weights, whose two
    gradients ranks add up in bfloat16, one process in float32."""
    recipe = recipe_of(model_folders["llama"], {"name": "grpo"}, lora_rank, "bfloat16")
    one, two = pair(team, row_by_row(recipe))
    assert_same_updates(one, two, [make_groups(REWARDS)])
    masters = two.state()["masters"]
    assert bool(masters) == (not lora_rank)  # adapters are in float32
    assert all(master.dtype == torch.float32 for master in masters.values())


@pytest.mark.long
def test_products_in_bfloat16_over_weights_in_float32(
    team: Team, model_folders: dict[str, Path], make_groups: MakeGroups
) -> None:
    recipe = recipe_of(model_folders["gemma2"], {"name": "grpo"}, compute_dtype="bfloat16")
    learners = pair(team, row_by_row(recipe))
    assert_same_updates(*learners, [make_groups(REWARDS, seed) for seed in range(2)])


@pytest.mark.long
def test_a_rank_without_rows_takes_part(
    team: Team, model_folders: dict[str, Path], make_groups: MakeGroups
) -> None:
    """One trajectory is trained on; then there is none at all."""
    one, two = pair(team, recipe_of(model_folders["qwen3"], {"name": "grpo"}))
    groups = make_groups(REWARDS)
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
    team: Team, model_folders: dict[str, Path], make_groups: MakeGroups, family: str, lora_rank: int
) -> None:
    """Of divided weights, and of adapters, which each rank has a gradient of its own rows of. One
    group has fewer rows than there are ranks."""
    recipe = recipe_of(model_folders[family], {"name": "reinforce_pp"}, lora_rank)
    one, two = pair(team, recipe)
    groups = make_groups([*REWARDS, [1.0]])
    credits = estimate(groups, Signals(), one.algorithm)
    expected, found = (
        each.update(groups, credits, measure_variance=True).metrics for each in (one, two)
    )
    assert {"policy/gradient_variance", "policy/gradient_signal"} < expected.keys()
    assert expected["policy/gradient_variance"] > 1e-4
    assert found == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert_same_weights(one.model, two.model, one.state(), two.state())


@pytest.mark.long
def test_an_update_that_is_no_number_is_skipped_by_all(
    team: Team, model_folders: dict[str, Path], make_groups: MakeGroups
) -> None:
    """It is of one rank's rows, and every rank has to leave its weights as they were."""
    one, two = pair(team, recipe_of(model_folders["qwen3"], {"name": "grpo"}))
    groups = make_groups(REWARDS)
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
def test_the_learning_rate_is_lowered_on_every_rank(
    team: Team, model_folders: dict[str, Path], make_groups: MakeGroups
) -> None:
    """A part of one weight that moved faster than another would be seen."""
    one, two = pair(team, recipe_of(model_folders["qwen3"], {"name": "grpo"}))
    assert two.lower_learning_rate(0.5) == one.lower_learning_rate(0.5) == RATE / 2
    assert_same_updates(one, two, [make_groups(REWARDS)])


@pytest.mark.long
def test_the_reference_scores_as_on_one_process(
    team: Team, model_folders: dict[str, Path], make_groups: MakeGroups
) -> None:
    """A KL term in the reward."""
    one, two = pair(
        team,
        recipe_of(model_folders["qwen3"], {"name": "reinforce_pp", "kl_reward_coefficient": 0.1}),
    )
    groups = make_groups(REWARDS)
    ours, theirs = (KLReward(each.reference_logprobs, 0.1).measure(groups) for each in (one, two))
    assert ours.metrics == pytest.approx(theirs.metrics, abs=1e-6)
    assert two.kl_coefficient == one.kl_coefficient > 0


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_critic_of_two_ranks_is_that_of_one(
    team: Team,
    model_folders: dict[str, Path],
    make_groups: MakeGroups,
    tokenizer: Saveable,
    tmp_path: Path,
    dtype: str,
) -> None:
    """Its head is in float32 in either case, and not zero, as it is at first: the body's gradients
    are nothing but rounding then."""
    recipe = row_by_row(recipe_of(model_folders["llama"], {"name": "ppo"}, dtype=dtype))
    one, two = pair(team, recipe)
    assert isinstance(one.second, Critic)
    generator = torch.Generator().manual_seed(3)
    torch.nn.init.normal_(one.second.head.weight, std=0.1, generator=generator)
    begun_alike(one, two, tmp_path / "begun", tokenizer)
    steps = 3 if dtype == "float32" else 1
    made = [make_groups(REWARDS, seed) for seed in range(steps)]
    assert_same_critics(one, two, made)
    two.save(tmp_path, 1, tokenizer, {}, two.state(), lambda: None)
    two.wait_until_saved()
    saved = read(checkpoint.load(tmp_path / "step-000001").learner["critic"])
    own = one.state()["critic"]
    assert_same_optimizers(own["weights"], saved["weights"], own["optimizer"], saved["optimizer"])
