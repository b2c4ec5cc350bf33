"""Images through a real vLLM on a CPU (`make test-vllm`). The families but Idefics 3 need a
torchvision there, which vLLM's build for CPUs goes without where only the one for GPUs is found."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from real_vllm import ARGUMENTS, drive
from turnwise.config import ModelConfig
from turnwise.engines.base import Sampling
from turnwise.forward.hidden import base_model
from turnwise.models.load import load_model
from turnwise_vllm.engine import VllmEngine
from turnwise_vllm.parity import Probe, score
from vllm_driving import change, play, teach

pytest.importorskip("PIL", reason="turnwise[vision] is not installed")
from tests.vision_models import noise, save_served_model, told

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1500)]

BEFORE, BETWEEN, AFTER = list(range(5, 30)), [40, 41], list(range(50, 59))
SAMPLED = 16


@pytest.mark.parametrize(
    ("family", "transport"),
    [
        ("idefics3", "files"),
        ("idefics3", "adapters"),
        ("llava", "files"),
        ("qwen2_vl", "files"),
        ("qwen2_5_vl", "files"),
        ("qwen3_vl", "files"),
    ],
)
def test_images_are_what_the_learner_scores(
    tmp_path: Path, python: str, family: str, transport: str
) -> None:
    finds = [python, "-c", "import torchvision"]
    if family != "idefics3" and subprocess.run(finds, capture_output=True).returncode:
        pytest.skip(f"vLLM serves {family} with torchvision alone")
    folder = save_served_model(tmp_path / "model", family)
    rank = 4 if transport == "adapters" else 0
    loaded, tokenizer = load_model(ModelConfig(name=str(folder), device="cpu", lora_rank=rank))
    model = base_model(loaded)
    pngs = [noise(1), noise(2, (24, 16))]
    ids, images = told(model, BEFORE, pngs[0], BETWEEN, pngs[1], AFTER)

    async def body(engine: VllmEngine) -> None:
        for version in (0, 1):
            await engine.load_weights({}, version)
            print(f"{family}, version {version}: parity {engine.parity:.1e}")
            assert engine.parity < 1e-4
            sampling = Sampling(SAMPLED, seed=version)
            turn = await play(engine, ids, sampling, str(version), images)
            gaps = []
            for seen in (pngs, [noise(3), noise(4, (24, 16))]):
                told_so = [replace(one, png=png) for one, png in zip(images, seen, strict=True)]
                (scored,) = score(model, [Probe(ids, sampling, turn.tokens, images=told_so)])
                both = zip(turn.logprobs, scored.logprobs, strict=True)
                gaps.append(max(abs(one - two) for one, two in both))
            print(f"largest gap {gaps[0]:.1e}; to that of other images {gaps[1]:.1e}")
            assert gaps[0] < 1e-3 < gaps[1]
            assert set(turn.version) == {version}
            (teach if rank else change)(model.get_decoder(), version)

    settings = {"python": python, "arguments": ARGUMENTS, "transport": transport}
    drive(tmp_path, model, tokenizer, body, **settings)
