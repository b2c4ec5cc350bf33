"""Adapters as the way of new weights: what is sent, and servers that have not got it."""

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model

from fake_vllm import FakeVllm, Json
from tests.fakes import byte_tokenizer, small_model
from turnwise.config import ModelConfig
from turnwise.errors import ConfigError, RunStoppedError
from turnwise.models.load import load_model
from turnwise_vllm.make import make_vllm
from turnwise_vllm.settings import StartedServers, VllmEngineConfig
from turnwise_vllm.transports import Adapters
from vllm_driving import Served, driven, once, teach


def with_adapters(model: Any, rank: int = 4) -> Any:
    """The model itself, with adapters in its layers."""
    config = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear")
    return get_peft_model(model, config).get_base_model()


class WithAdapters(Served):
    """Samples from the base model with the adapters that a request names."""

    def __init__(self) -> None:
        super().__init__()
        self.server: FakeVllm = FakeVllm(self)
        self.server.adapters = {}
        self.stuck = ""
        """A folder whose adapters are used whatever is asked for: a server that lies."""

    def __call__(self, body: Json) -> tuple[list[int], list[float], str]:
        folder = self.stuck or self.server.adapters[body["model"]]
        self.model = PeftModel.from_pretrained(small_model(byte_tokenizer()), folder)
        return super().__call__(body)


def adapted(folder: Path, served: WithAdapters) -> AbstractAsyncContextManager[Any]:
    return driven(folder, [served.server], with_adapters, transport="adapters")


@pytest.mark.long
async def test_each_version_is_a_new_name_and_the_base_model_is_written_once(
    tmp_path: Path,
) -> None:
    served = WithAdapters()
    async with adapted(tmp_path, served) as (engine, model):
        names = []
        for version in range(3):
            await engine.load_weights({}, version)
            assert engine.parity < 1e-5
            assert (await once(engine)).version[0] == version
            names += served.server.adapters or {}
            teach(model, version)
        assert len(set(names)) == 3
        assert [body["model"] for body in served.server.bodies][-1] == names[-1]
        assert served.server.loaded == []
        assert len(list((tmp_path / "adapters").iterdir())) == 1
        assert len(list((tmp_path / "base").glob("*.safetensors"))) == 1
    assert not (tmp_path / "base").exists()


@pytest.mark.long
async def test_a_server_that_keeps_old_adapters_is_found_at_the_update(tmp_path: Path) -> None:
    served = WithAdapters()
    async with adapted(tmp_path, served) as (engine, model):
        await engine.load_weights({}, 0)
        kept = tmp_path / "kept"
        (tmp_path / "adapters").rename(kept)
        served.stuck = str(next(kept.iterdir()))
        (tmp_path / "adapters").mkdir()
        teach(model, 1)
        with pytest.raises(RunStoppedError, match="of version 1"):
            await engine.load_weights({}, 1)


@pytest.mark.long
async def test_a_server_that_was_started_again_gets_them_again(tmp_path: Path) -> None:
    served = WithAdapters()
    async with adapted(tmp_path, served) as (engine, _):
        await engine.load_weights({}, 0)
        before = await once(engine, seed=5)
        await served.server.die()
        turn = asyncio.create_task(once(engine, "again", seed=5))
        await asyncio.sleep(0.1)
        await served.server.start()
        assert (await turn).tokens == before.tokens
        assert engine.fleet.restarts == 1
        assert len(served.server.adapters or {}) == 1


def test_a_rank_that_no_server_takes_is_the_users_mistake(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    model = with_adapters(small_model(tokenizer), rank=600)
    servers = StartedServers(python=str(_has_vllm(tmp_path)))
    config = VllmEngineConfig(name="vllm", transport="adapters", servers=servers)
    with pytest.raises(ConfigError, match=r"model\.lora_rank is 600"):
        make_vllm(config, model, tokenizer, 48, tmp_path)


def test_what_is_written_is_what_peft_reads(tmp_path: Path) -> None:
    wrapped, tokenizer = load_model(ModelConfig(name="tiny", lora_rank=4))
    base: Any = wrapped.get_base_model()
    teach(base, 1)
    folder = Adapters(tmp_path, 1).write(base, tokenizer, 0)
    plain, _ = load_model(ModelConfig(name=str(tmp_path / "base")))
    read = PeftModel.from_pretrained(plain, str(folder))
    ids = torch.arange(12)[None]
    assert torch.equal(read(input_ids=ids).logits, base(input_ids=ids).logits)


def _has_vllm(folder: Path) -> Path:
    """An interpreter that seems to have vLLM."""
    file = folder / "python"
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)
    return file
