"""Loading: the embedded model, folders, adapters."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.fakes import SPECIAL_TOKENS, save_small_model
from turnwise.config import ModelConfig
from turnwise.errors import ConfigError, DataError
from turnwise.models.load import device_of, load_model, load_tokenizer
from turnwise.models.places import TINY, tiny_folder

FIVE_MEGABYTES = 5_000_000


def test_tiny_is_what_it_says() -> None:
    model, tokenizer = load_model(ModelConfig(device="cpu"))
    assert model.config.model_type == "qwen3"
    assert not model.config.tie_word_embeddings
    assert 1.5e6 < sum(weight.numel() for weight in model.parameters()) < 4e6
    assert model.dtype == torch.float32
    for folder in map(tiny_folder, TINY):
        assert sum(file.stat().st_size for file in folder.iterdir()) < FIVE_MEGABYTES
    for token in SPECIAL_TOKENS:
        assert len(tokenizer(token, add_special_tokens=False)["input_ids"]) == 1
    figures = json.loads((tiny_folder() / "figures.json").read_text())
    assert figures["words"]["accuracy"] > 0.7


def test_one_name_has_one_spelling_in_tokens_wherever_it_stands() -> None:
    tokenizer = load_tokenizer(ModelConfig())
    name = tokenizer(" TarFile", add_special_tokens=False)["input_ids"]
    for text in ("the class TarFile?", "<search> TarFile</search>", "[1] Class TarFile. Module"):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert any(ids[start : start + len(name)] == name for start in range(len(ids)))


def test_folders_dtypes_and_adapters(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    folder = str(save_small_model(tmp_path / "model"))
    model, _ = load_model(ModelConfig(name=folder, dtype="bfloat16", device="cpu"))
    assert model.dtype == torch.bfloat16
    model, _ = load_model(ModelConfig(name=folder, lora_rank=2, device="cpu"))
    trained = [name for name, weight in model.named_parameters() if weight.requires_grad]
    assert trained
    assert all("lora" in name for name in trained)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such folder"):
        load_tokenizer(ModelConfig(name=str(tmp_path / "none")))


@pytest.mark.parametrize(
    ("held", "message"), [(None, "is not in its files"), (16, "has .* numbers there, and not")]
)
def test_weights_that_a_folder_lacks_are_not_drawn_at_random(
    tmp_path: Path, held: int | None, message: str
) -> None:
    folder = save_small_model(tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    name = next(name for name in weights if "down_proj" in name)
    weight = weights.pop(name)
    kept = {} if held is None else {name: weight[:held].clone()}
    save_file({**weights, **kept}, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(DataError, match=f"cannot be loaded: weight {name} {message}"):
        load_model(ModelConfig(name=str(folder), device="cpu"))


@pytest.mark.parametrize("name", ["auto", "cuda:99"])
def test_a_card_that_cannot_be_used_is_said_before_the_weights_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A full one, one that is another process's, one that PyTorch is not built for."""
    if name == "auto" and torch.cuda.is_available():
        pytest.skip("there is a card")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    folder = save_small_model(tmp_path / "model")
    (folder / "model.safetensors").unlink()
    config = ModelConfig(name=str(folder), device=name)
    with pytest.raises(ConfigError, match=f"model.device '{name}' cannot be used .*nvidia-smi"):
        load_model(config)
    if name == "auto":
        assert device_of(config).type == "cuda"  # where others use it
