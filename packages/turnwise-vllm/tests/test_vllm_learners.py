"""Servers beside a learner on several processes: they get the whole model's weights."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from fake_vllm import FakeVllm
from tests.small_runs import write_recipe
from turnwise.config import load_recipe
from turnwise.monitor.display import SilentDisplay
from turnwise.storage.run_folder import RunFolder
from turnwise.training.prepare import prepare
from turnwise.training.run import run
from vllm_driving import Served

TABLES = """
rollout = { max_turns = 1, max_turn_tokens = 8, max_tokens = 100 }
learning.learning_rate = 1e-3
train = { steps = 2, tasks_per_step = 1, group_size = 4 }
evaluation.tasks = 0
cluster.learners = 2
"""


@pytest.mark.slow
def test_servers_sample_with_the_weights_that_two_ranks_have_learned(tmp_path: Path) -> None:
    resources: Any = pytest.importorskip("turnwise_cluster.resources")
    recipe, folder = write_recipe(tmp_path, "Letters", TABLES), RunFolder(tmp_path / "run")
    served = Served()
    server = FakeVllm(served)
    server.on_load = served.load

    async def main() -> Any:
        await server.start()
        address = f'engine.servers.urls=["{server.url}"]'
        try:
            given = load_recipe(str(recipe), ["engine=vllm", address, "cluster.colocated=true"])
            found = resources.ClusterResources(folder=folder.path)
            context = await asyncio.to_thread(prepare, given, folder, SilentDisplay(), found)
            await run(context)
            return served.model.state_dict()
        finally:
            await server.die()

    sampled = asyncio.run(asyncio.wait_for(main(), 300))
    assert {name.partition("version-")[2] for name in server.loaded} == {"0", "1", "2"}
    assert "/sleep?level=2" in server.calls
    kept = folder.checkpoints / "step-000002"
    learned = AutoModelForCausalLM.from_pretrained(kept).state_dict()
    assert all(torch.equal(weight, sampled[name]) for name, weight in learned.items())
    begun = AutoModelForCausalLM.from_pretrained(tmp_path / "model").state_dict()
    assert not all(torch.equal(weight, begun[name]) for name, weight in learned.items())
