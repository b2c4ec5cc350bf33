"""A rank's memory: its part of the model and a layer, whatever the model's size."""

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from cluster_tests.learners.comparing import loaded, recipe_of
from turnwise.models.load import load_model
from turnwise_cluster.learners.learner import DistributedLearner
from turnwise_cluster.learners.team import Team

LAYERS = 48


class Peak:
    """The most memory that a process has of its own meanwhile, in bytes: what it shares with
    others, as pages of a model's files, is left out."""

    def __init__(self, process: int) -> None:
        self._status = Path(f"/proc/{process}/status")
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.bytes = 0

    def __enter__(self) -> "Peak":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.is_set():
            self.bytes = max(self.bytes, own_bytes(self._status))
            time.sleep(0.002)


def own_bytes(status: Path) -> int:
    """The anonymous memory of a process."""
    (line,) = [line for line in status.read_text().splitlines() if line.startswith("RssAnon")]
    return 1024 * int(line.split()[1])


def large(folder: Path, tokenizer: Any) -> int:
    """Write a model of about 110 MB; returns the bytes of its weights."""
    config = Qwen3Config(
        vocab_size=1024,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        tie_word_embeddings=True,
    )
    model = Qwen3ForCausalLM(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return sum(4 * weight.numel() for weight in model.parameters())


@pytest.mark.slow
def test_a_rank_begins_with_its_part_and_a_layer(
    team: Team, model_folders: dict[str, Path], tokenizer: Any, tmp_path: Path
) -> None:
    whole = large(tmp_path, tokenizer)
    worker = team._arrivals[1].process

    small = recipe_of(model_folders["qwen3"], {"name": "grpo"})
    DistributedLearner(team, small, loaded(small, 1), None)
    before = own_bytes(Path(f"/proc/{worker}/status"))
    recipe = recipe_of(tmp_path, {"name": "grpo"})
    with Peak(worker) as peak:
        DistributedLearner(team, recipe, loaded(recipe, 1), None)
    grown = peak.bytes - before
    assert grown < 0.8 * whole  # a part, and what the check of a few layers and the allocator take


@pytest.mark.slow
def test_the_first_rank_has_no_more_where_servers_sample(
    team: Team, model_folders: dict[str, Path], tokenizer: Any, tmp_path: Path
) -> None:
    transports = pytest.importorskip("turnwise_vllm.transports")
    parity = pytest.importorskip("turnwise_vllm.parity")
    whole = large(tmp_path / "model", tokenizer)
    recipe, status = recipe_of(tmp_path / "model", {"name": "grpo"}), Path("/proc/self/status")
    small = recipe_of(model_folders["qwen3"], {"name": "grpo"})
    DistributedLearner(team, small, loaded(small, 1), None)
    before = own_bytes(status)
    with Peak(os.getpid()) as peak:
        model, _ = load_model(recipe.model, in_files=True)
        learner = DistributedLearner(team, recipe, model, None)
        learner.deliver()
        folder = transports.Files(tmp_path, 1.0).write(model, tokenizer, 1)
        parity.score(model, parity.make_probes(tokenizer, 64))
    assert peak.bytes - before < 0.8 * whole
    written, _ = load_model(recipe.model.model_copy(update={"name": str(folder)}))
    assert all(map(torch.equal, model.parameters(), written.parameters()))
