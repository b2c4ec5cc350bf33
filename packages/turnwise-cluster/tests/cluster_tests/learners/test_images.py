"""Promise 6 for models that read images: each rank encodes the images of its own rows."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributed.tensor import DTensor
from transformers import AutoModelForImageTextToText, PreTrainedModel

from cluster_tests.learners.comparing import (
    ALGORITHMS,
    assert_same_critics,
    assert_same_update,
    assert_same_updates,
    names_in,
    pair,
    recipe_of,
    save,
)
from turnwise.config import Recipe
from turnwise.learning.credits import estimate
from turnwise.learning.signals.base import Signals
from turnwise.models.load import load_model, load_tokenizer
from turnwise.tokens import Segment, Source, Tokens
from turnwise.types import Group, Outcome, Task, Trajectory, Verdict
from turnwise_cluster.learners.team import Team

pytest.importorskip("PIL", reason="turnwise[vision] is not installed")
from tests.vision_models import noise, save_vision_model

pytestmark = pytest.mark.numbers

SEVERAL = [[1, 0, 2, 1], [0, 0, 1]]
"""Images of each member of each group: as many rows with images as without, or none on a rank."""


@pytest.fixture(scope="module")
def vision_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    return {name: save_vision_model(root / name, name) for name in ("llava", "qwen3_vl")}


def seeing(model: Any, counts: Sequence[Sequence[int]], seed: int = 0) -> list[Group]:
    """Groups of trajectories that are shown some images each, between words by chance."""
    generator = np.random.default_rng(seed)

    def words(count: int) -> list[int]:
        return generator.integers(97, 123, count).tolist()

    def member(group: str, episode: int, images: int) -> Trajectory:
        tokens = Tokens.empty().with_segments([Segment(words(4), Source.USER)], 0)
        for number in range(images):
            png = noise(100 * seed + 10 * episode + number)
            shown = Segment(model.image_reader.tokens(png), Source.TOOL, png)
            tokens = tokens.with_segments([shown, Segment(words(2), Source.TOOL)], number)
            tokens = tokens.with_sampled(words(5), [-3.0] * 5, 0, number)
        tokens = tokens.with_sampled(words(3 + episode), [-3.0] * (3 + episode), 0, images)
        verdict = Verdict(float(generator.random()), True)
        return Trajectory(
            task=Task(group, "question"),
            group=group,
            episode=episode,
            seed=0,
            tokens=tokens,
            outcome=Outcome.SUCCESS,
            verdict=verdict,
        )

    return [
        Group(name, tuple(member(name, place, images) for place, images in enumerate(own)))
        for name, own in zip("ab", counts, strict=False)
    ]


def seen(recipe: Recipe, seed: int) -> PreTrainedModel:
    """The recipe's model with other weights, which no other process can read from its folder, but
    for those of its tower, which are never trained."""
    model, _ = load_model(recipe.model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight += 0.02 * torch.randn(weight.shape, generator=generator)
    return model


@pytest.mark.long
@pytest.mark.parametrize("family", ["qwen3_vl", "llava"])
def test_two_ranks_make_the_update_of_one(
    team: Team, vision_folders: dict[str, Path], tmp_path: Path, family: str
) -> None:
    """All is divided, the tower too, and the checkpoint is that of a model that reads images."""
    recipe = recipe_of(vision_folders[family], ALGORITHMS[1])
    one, two = pair(team, recipe, load=seen)
    made = [seeing(one.model, SEVERAL), seeing(one.model, [[2]], 1), seeing(one.model, [[0, 1]], 2)]
    assert_same_updates(one, two, made)
    assert all(isinstance(weight, DTensor) for weight in team.parts.learner.model.parameters())
    tokenizer = load_tokenizer(recipe.model)
    folder = save(two, tmp_path, tokenizer)
    assert (folder / "preprocessor_config.json").is_file()
    assert names_in(folder) == names_in(save(one, tmp_path / "one", tokenizer))
    again = AutoModelForImageTextToText.from_pretrained(folder).state_dict()
    own = two.model.state_dict()
    assert again.keys() == own.keys()
    assert all(torch.equal(weight, again[name]) for name, weight in own.items())


@pytest.mark.slow
def test_adapters_of_a_decoder(team: Team, vision_folders: dict[str, Path], tmp_path: Path) -> None:
    """Loss and gradient are those of one process; what rounding leaves of an adapter's gradient is
    not compared, since this model's logits are as peaked as they are."""
    recipe = recipe_of(vision_folders["llava"], ALGORITHMS[1], lora_rank=2)
    one, two = pair(team, recipe, load=seen)
    groups = seeing(one.model, SEVERAL)
    credits = estimate(groups, Signals(), one.algorithm)
    expected, found = (each.update(groups, credits).metrics for each in (one, two))
    assert found == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert found["policy/gradient_norm"] > 0
    held = list(team.parts.learner.model.named_parameters())
    assert all(isinstance(weight, DTensor) != ("lora_" in name) for name, weight in held)
    folder = save(two, tmp_path, load_tokenizer(recipe.model))
    assert {"preprocessor_config.json", "adapter_model.safetensors"} <= set(os.listdir(folder))


@pytest.mark.long
def test_a_critic_reads_images(team: Team, vision_folders: dict[str, Path]) -> None:
    recipe = recipe_of(vision_folders["qwen3_vl"], {"name": "ppo", "kl_coefficient": 0.1})
    one, two = pair(team, recipe, load=seen)
    groups = seeing(one.model, SEVERAL)
    (credits,) = assert_same_critics(one, two, [groups])
    assert_same_update(one, two, groups, credits)
