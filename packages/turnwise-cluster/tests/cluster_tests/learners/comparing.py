"""Learners of one process and of several side by side, for tests of promises 6 and 7."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.distributed.tensor import DTensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from turnwise.config import Recipe, check_recipe
from turnwise.learning.credits import Credits, estimate
from turnwise.learning.learner import Learner
from turnwise.learning.policy import PolicyLearner
from turnwise.learning.signals.base import Signals
from turnwise.learning.signals.makers import SecondParts, Words, second_model
from turnwise.models.load import load_model
from turnwise.parts.one_process import RunLearner
from turnwise.storage import checkpoint
from turnwise.types import Group
from turnwise_cluster.learners.learner import DistributedLearner
from turnwise_cluster.learners.parts import algorithm_of
from turnwise_cluster.learners.team import Team
from turnwise_cluster.settings import cluster_of

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

WITH_REFERENCE = {"name": "dapo", "kl_coefficient": 0.1}


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
    return RunLearner(
        model, *given, second=second_model(SecondParts(recipe, algorithm, model, words))
    )


def pair(
    team: Team,
    recipe: Recipe,
    words: Words | None = None,
    load: Callable[[Recipe, int], PreTrainedModel] = loaded,
) -> tuple[RunLearner, DistributedLearner]:
    """The same learner on one process and on those of the team."""
    several = algorithm_of(recipe).has_reference and not recipe.model.lora_rank

    def models() -> tuple[PreTrainedModel, PreTrainedModel | None]:
        return load(recipe, 1), load(recipe, 2) if several else None

    one = alone(recipe, *models(), words)
    return one, DistributedLearner(team, recipe, *models(), words)


def begun_alike(one: RunLearner, two: DistributedLearner, folder: Path, tokenizer: Any) -> None:
    """Let the learner of several processes go on from what the one of one process is."""
    checkpoint.save(folder, 0, one.model, tokenizer, {}, one.state())
    two.load_state(checkpoint.load(folder / "step-000000").learner)


def same(one: Any, other: Any, near: float = 1e-6) -> bool:
    """Whether numbers are equal to `near`, as shares of them where they are above 1."""
    return bool(torch.allclose(torch.as_tensor(one), torch.as_tensor(other), near, near, True))


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

    The first moments, which are sums of gradients, are equal to 1e-5 of the length of all of them
    together, as metrics are, and none is off by more than 1e-5 of the largest of its weight.
    Weights are equal to 1e-6 where the second moment says that gradients are above rounding, but
    for one in 500, whose gradient may have been at rounding in one of several updates. Where they
    are not (below 1e-4 of the largest) Adam moves a weight by as much as any other, in the
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
        off = far * (size >= 1e-4 * size.max())[: len(far)] >= 1e-6
        assert off.sum() <= max(1, off.numel() // 500)
        assert (far < 2 * RATE * one["updates"]).all()
    assert difference <= (1e-5) ** 2 * length


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
        # This one counts the weights that change, of which rounding moves one among thousands.
        rel = 1e-4 if name == "policy/weights_changed" else 1e-5
        assert found.metrics[name] == pytest.approx(value, rel=rel, abs=1e-6), name
    assert found.tokens.keys() == expected.tokens.keys()
    for trajectory, row in expected.tokens.items():
        theirs = found.tokens[trajectory]
        # As metrics: the rounding of a first update is in the numbers of the second.
        assert all(same(row[field], theirs[field], 1e-5) for field in row.dtype.names or ())
    assert_same_weights(one.model, other.model, one.state(), other.state())


def assert_same_critics(one: RunLearner, two: Learner, made: list[list[Group]]) -> list[Credits]:
    """Measure and update with the groups of each of several steps; returns the credits of each."""
    estimated, whole, divided = [], one.second, two.second
    for groups in made:
        expected, found = whole.measure(groups), divided.measure(groups)
        for member in (member for group in groups for member in group.graded):
            assert same(expected.of(member).values, found.of(member).values)
        credits = estimate(groups, expected, one.algorithm)
        told = whole.update(groups, expected, credits)
        assert divided.update(groups, expected, credits) == pytest.approx(told, rel=1e-5, abs=1e-6)
        estimated.append(credits)
    return estimated


@dataclass
class Bench:
    """The materials of a comparison."""

    team: Team
    models: dict[str, Path]
    """A folder of each family."""
    groups: Callable[..., list[Group]]
    tokenizer: Any
    folder: Path

    def recipe(
        self, family: str, algorithm: dict[str, Any], *, slices: int = 1, **given: Any
    ) -> Recipe:
        """See `recipe_of`; two ranks compute rows in slices, where there are some."""
        recipe = recipe_of(self.models[family], algorithm, **given)
        return sliced(recipe, 2, slices) if slices > 1 else recipe

    def pair(
        self, recipe: Recipe, words: Words | None = None
    ) -> tuple[RunLearner, DistributedLearner]:
        """See `pair`."""
        return pair(self.team, recipe, words)

    def made(self, count: int) -> list[list[Group]]:
        """The groups of so many steps."""
        return [self.groups(REWARDS, seed) for seed in range(count)]

    def save(self, learner: Any, step: int = 1) -> Path:
        """A learner's checkpoint, whole."""
        return save(learner, self.folder, self.tokenizer, step)


def sliced(recipe: Recipe, learners: int, slices: int) -> Recipe:
    """The recipe for so many ranks, which compute rows in slices."""
    cluster = cluster_of(recipe).model_copy(update={"learners": learners, "sequence_ranks": slices})
    return recipe.model_copy(update={"cluster": cluster})


def save(learner: Learner, root: Path, tokenizer: Any, step: int = 1) -> Path:
    """A learner's checkpoint, whole."""
    learner.save(root, step, tokenizer, {}, learner.state(), lambda: None)
    learner.wait_until_saved()
    return root / f"step-{step:06d}"


def gone_on(folder: Path, recipe: Recipe, team: Team | None, words: Words | None = None) -> Learner:
    """The learner of a checkpoint, of a team's processes or of one."""
    model = by_own_layers(AutoModelForCausalLM.from_pretrained(folder))
    given = recipe, model, loaded(recipe, 2), words
    learner = alone(*given) if team is None else DistributedLearner(team, *given)
    learner.load_state(checkpoint.load(folder).learner)
    return learner


def updated(learner: Learner, recipe: Recipe, groups: list[Group]) -> Learner:
    learner.update(groups, estimate(groups, Signals(), algorithm_of(recipe)))
    return learner


def names_in(folder: Path) -> dict[str, torch.Size]:
    """The names and shapes of the weights in a model's folder."""
    files = [load_file(path) for path in folder.glob("*.safetensors")]
    return {name: tensor.shape for file in files for name, tensor in file.items()}


def step(
    learner: Learner, recipe: Recipe, groups: list[Group]
) -> tuple[list[Any], dict[str, float]]:
    """Make a step as a run does; returns values and metrics."""
    second = learner.second
    signals = second.measure(groups)
    credits = estimate(groups, signals, algorithm_of(recipe))
    report = learner.update(groups, credits, auxiliary=learner.auxiliary_loss(signals))
    assert not report.problems
    values = [signals.of(member).values for group in groups for member in group.graded]
    return values, report.metrics | second.update(groups, signals, credits)
