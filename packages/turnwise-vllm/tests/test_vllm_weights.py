"""What is written for servers: all weights, adapters merged, embeddings untied, whole or not."""

import json
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen3ForCausalLM

from turnwise.errors import InfrastructureError
from turnwise_vllm.transports import Files
from vllm_driving import small

IDS = torch.arange(12)[None]


def test_a_folder_is_the_model(tmp_path: Path) -> None:
    model, tokenizer = small()
    folder = Files(tmp_path, 1).write(model, tokenizer, 3)
    assert folder.name == "000001-version-3"
    written = AutoModelForCausalLM.from_pretrained(folder)
    assert torch.equal(written(IDS).logits, model(IDS).logits)
    assert len(AutoTokenizer.from_pretrained(folder)) == len(tokenizer)


def test_tied_embeddings_are_written_untied(tmp_path: Path) -> None:
    untied, tokenizer = small()
    config = untied.config
    config.tie_word_embeddings = True
    model = Qwen3ForCausalLM(config)
    folder = Files(tmp_path, 1).write(model, tokenizer, 0)
    assert json.loads((folder / "config.json").read_text())["tie_word_embeddings"] is False
    written = AutoModelForCausalLM.from_pretrained(folder)
    assert written.lm_head.weight is not written.model.embed_tokens.weight
    assert torch.equal(written(IDS).logits, model(IDS).logits)
    assert model.config.tie_word_embeddings is True
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_adapters_are_merged_into_what_is_written_only(tmp_path: Path) -> None:
    model, tokenizer = small()
    wrapped = get_peft_model(model, LoraConfig(r=4, lora_alpha=8, target_modules="all-linear"))
    with torch.no_grad():
        for name, weight in wrapped.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.2)
    before = {name: weight.clone() for name, weight in wrapped.state_dict().items()}
    base = wrapped.get_base_model()
    folder = Files(tmp_path, 1).write(base, tokenizer, 0)
    written = AutoModelForCausalLM.from_pretrained(folder)
    assert torch.allclose(written(IDS).logits, wrapped(IDS).logits, atol=1e-5)
    assert all(torch.equal(weight, before[name]) for name, weight in wrapped.state_dict().items())


def test_only_the_newest_is_kept(tmp_path: Path) -> None:
    files = Files(tmp_path, 1)
    first, second = (files.write(*small(), 0) for _ in range(2))
    assert first != second
    files.keep_only(second)
    assert list((tmp_path / "weights").iterdir()) == [second]
    files.clear()
    files.clear()
    assert not (tmp_path / "weights").exists()


def test_a_disk_that_fails_is_infrastructure(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InfrastructureError, match="cannot be written"):
        Files(tmp_path / "file", 1).write(*small(), 0)
