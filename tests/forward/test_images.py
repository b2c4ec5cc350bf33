"""What models make of images: against their own forward, and against transformers' processors."""

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers.models.smolvlm.processing_smolvlm import get_image_prompt_string

from turnwise.config import ModelConfig
from turnwise.errors import DataError, InfrastructureError, NotSupportedError
from turnwise.forward.images import attach_reader, opened, plain
from turnwise.forward.logprobs import check_supported, token_logprobs
from turnwise.models.load import load_model

pytest.importorskip("PIL", reason="turnwise[vision] is not installed")
import PIL.Image

from tests.rounding import assert_rounding
from tests.vision_models import (
    FAMILIES,
    noise,
    own_logits,
    own_logprobs,
    save_vision_model,
    told,
    vision_model,
)

WORDS = list(range(5, 25))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("models")
    return {family: vision_model(folder / family, family)[0] for family in FAMILIES}


@pytest.mark.parametrize("family", FAMILIES)
def test_logprobs_are_those_of_the_models_own_forward(models: dict[str, Any], family: str) -> None:
    """In a batch of three: words alone, one image, two of other shapes."""
    model = models[family]
    check_supported(model)
    pngs = [[], [noise(1)], [noise(2, (48, 32)), noise(3, (16, 40))]]
    rows = [told(model, *(part for png in own for part in (WORDS, png)), WORDS) for own in pngs]
    length = max(len(ids) for ids, _ in rows)
    inputs = torch.zeros(3, length, dtype=torch.long)
    selected = torch.zeros(3, length, dtype=torch.bool)
    for row, (ids, _) in enumerate(rows):
        inputs[row, : len(ids)] = torch.tensor(ids)
        selected[row, len(ids) - 11 : len(ids) - 1] = True
    targets = torch.tensor([token for ids, _ in rows for token in ids[-10:]])
    images = [shown for _, shown in rows]
    found, _ = token_logprobs(model, inputs, selected, targets, 1.0, autocast=False, images=images)

    def own(exact: Any) -> list[torch.Tensor]:
        every = [
            own_logprobs(exact, ids, shown, 10) for (ids, _), shown in zip(rows, pngs, strict=True)
        ]
        return [torch.cat(every)]

    assert_rounding([found], model, own)
    ids = rows[1][0]
    assert (own_logits(model, ids, pngs[1])[-1] - own_logits(model, ids, [])[-1]).abs().max() > 0.1


@pytest.mark.parametrize("family", ["llava", "qwen2_5_vl", "qwen3_vl"])
def test_gradients_are_those_of_the_models_own_forward(models: dict[str, Any], family: str) -> None:
    """Nothing reaches the tower, the projector or the placeholder's own embedding."""
    model = models[family]
    ids, images = told(model, WORDS, noise(1, (32, 16)), WORDS)
    inputs, targets = torch.tensor([ids[:-1]]), torch.tensor(ids[-10:])
    selected = torch.zeros_like(inputs, dtype=torch.bool)
    selected[:, -10:] = True
    logprobs, _ = token_logprobs(
        model, inputs, selected, targets, 1.0, autocast=False, images=[images]
    )
    found = _gradients(model, logprobs.sum())

    def own(exact: Any) -> dict[str, torch.Tensor]:
        logits = own_logits(exact, ids, [images[0].png], gradient=True)
        chosen = logits.log_softmax(-1)[-11:-1].gather(1, targets[:, None])
        return _gradients(exact, chosen.sum())

    assert list(found) == list(own(model))
    assert all("visual" not in name and "vision" not in name for name in found)
    assert_rounding(list(found.values()), model, lambda exact: list(own(exact).values()))
    embeddings = next(g for name, g in found.items() if "embed_tokens" in name)
    assert embeddings.abs().sum() > 0
    assert embeddings[model.config.image_token_id].abs().sum() == 0


def _gradients(model: Any, total: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    total.backward()
    found = {name: w.grad for name, w in model.named_parameters() if w.grad is not None}
    model.zero_grad()
    return found


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
def test_positions_on_three_axes_are_the_models_own(models: dict[str, Any], family: str) -> None:
    model = models[family]
    ids, images = told(model, WORDS, noise(1, (40, 16)), noise(2, (16, 64)), WORDS)
    types = (torch.tensor([ids]) == model.config.image_token_id).int()
    grids = [model.image_reader.grid(image.png) for image in images]
    assert grids == [(2, 5), (8, 2)]
    given = torch.tensor([[1, 2 * rows, 2 * columns] for rows, columns in grids])
    expected, _ = model.model.get_rope_index(
        torch.tensor([ids]), mm_token_type_ids=types, image_grid_thw=given
    )
    np.testing.assert_array_equal(
        model.image_reader.axes(np.array(ids), images), expected[:, 0].numpy()
    )


@pytest.mark.parametrize("family", ["idefics3", "smolvlm"])
def test_tiles_are_laid_out_as_by_the_processor(models: dict[str, Any], family: str) -> None:
    reader = models[family].image_reader
    image_tokens = ("<fake_token_around_image>", "<image>", "<global-img>")
    for size, tiles in (((16, 16), (2, 2)), ((32, 16), (1, 2))):
        text = get_image_prompt_string(*tiles, 4, *image_tokens)
        expected = reader._tokenizer(text, add_special_tokens=False)["input_ids"]
        assert reader.tokens(noise(4, size)) == expected


def test_what_stands_around_an_image(models: dict[str, Any]) -> None:
    for family, (first, last) in {
        "internvl": ("<img>", "</img>"),
        "llava": ("<image>", "<image>"),
        "qwen3_vl": ("<|vision_start|>", "<|vision_end|>"),
    }.items():
        reader = models[family].image_reader
        tokens = reader._tokenizer.convert_ids_to_tokens(reader.tokens(noise(5)))
        assert (tokens[0], tokens[-1]) == (first, last)
        assert set(tokens[1:-1]) == {"<image>"}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_prompt_as_chat_templates_write_it(models: dict[str, Any], family: str) -> None:
    model = models[family]
    around = ["<|vision_start|>", "<image>", "<|vision_end|>"]
    names = around if family.startswith("qwen") else ["<image>"]
    written = model.image_reader._tokenizer.convert_tokens_to_ids(names)
    ids, images = told(model, WORDS, noise(1), WORDS, noise(2, (48, 32)), WORDS)
    expected = [*WORDS, *written, *WORDS, *written, *WORDS]
    assert model.image_reader.templated(ids, images) == expected


def test_an_image_that_is_read_in_one_way() -> None:
    """Transparent ones and those of a camera held upright become what `opened` makes of them."""
    assert plain(noise(1)) == noise(1)
    pixels = np.random.default_rng(0).integers(0, 256, (8, 12, 4), np.uint8)
    turned = PIL.Image.Exif()
    turned[0x0112] = 6
    for image, options in (
        (PIL.Image.fromarray(pixels), {}),
        (PIL.Image.fromarray(pixels[..., :3]), {"exif": turned}),
        (PIL.Image.fromarray(pixels[..., 0]), {}),
    ):
        file = io.BytesIO()
        image.save(file, "PNG", **options)
        made = PIL.Image.open(io.BytesIO(plain(file.getvalue())))
        assert (made.mode, dict(made.getexif())) == ("RGB", {})
        np.testing.assert_array_equal(np.asarray(made), np.asarray(opened(file.getvalue())))


def test_bytes_that_are_no_image(models: dict[str, Any]) -> None:
    for png in (b"", b"no image", noise(1)[:60]):
        with pytest.raises(InfrastructureError, match="an image cannot be read"):
            models["llava"].image_reader.tokens(png)


def test_a_folder_without_an_image_processor(tmp_path: Path) -> None:
    folder = save_vision_model(tmp_path / "model")
    (folder / "preprocessor_config.json").unlink()
    with pytest.raises(DataError, match=r"image processor of .* cannot be loaded") as caught:
        load_model(ModelConfig(name=str(folder), device="cpu"))
    assert "\n" not in str(caught.value)


def test_a_llava_whose_images_are_laid_out_in_another_way(models: dict[str, Any]) -> None:
    config = SimpleNamespace(
        model_type="llava", vision_config=SimpleNamespace(model_type="pixtral")
    )
    with pytest.raises(NotSupportedError, match="known are clip_vision_model and siglip"):
        attach_reader(SimpleNamespace(config=config), models["llava"], "somewhere")


@pytest.mark.parametrize("family", FAMILIES)
def test_features_in_bfloat16(tmp_path: Path, family: str) -> None:
    save_vision_model(tmp_path / family, family)
    model, _ = vision_model(tmp_path / family, family, dtype="bfloat16")
    features = model.image_reader.features(noise(1))
    assert features.embeddings.dtype == torch.bfloat16
    assert features.embeddings.isfinite().all()


def test_no_more_features_are_kept_than_there_is_room_for(
    models: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = models["llava"].image_reader
    first, size = noise(100), reader.features(noise(100)).size
    monkeypatch.setattr("turnwise.forward.images.REMEMBERED", 3 * size)
    before = reader.features(first).embeddings
    for seed in range(101, 108):
        reader.features(noise(seed))
    assert len(reader._known) == 3
    assert first not in reader._known
    assert reader.features(first).embeddings.equal(before)
