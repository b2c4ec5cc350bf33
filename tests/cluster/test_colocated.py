"""Samplers in the places of learners: the same run as with places of their own.

Not here: which places these are (`test_hiring.py`, `learners/test_several_nodes.py`), and servers
that sleep (`tests/engines/vllm`).
"""

from pathlib import Path

import pytest

from tests.cluster.learners.test_run import finish
from tests.cluster.samplers.runs import Harassed, sampled_by
from tests.cluster.workers.test_workers import TABLES
from tests.small_runs import start, write_recipe
from turnwise.storage.run_folder import RunFolder

pytest.importorskip("ray")


@pytest.mark.slow
def test_the_run_is_the_same_wherever_samplers_are(tmp_path: Path) -> None:
    """Learners are plain processes where samplers are not beside them."""
    apart, together = tmp_path / "apart", tmp_path / "together"
    recipe, asked = (
        write_recipe(tmp_path, "Restorable", TABLES),
        ("cluster.learners=2", "train.steps=1"),
    )
    sampled_by(Harassed(), 2, recipe, RunFolder.new(apart), *asked)
    beside = ("cluster.samplers=2", "cluster.colocated=true")
    finish(start("train", recipe, *asked, *beside, "--run", together))
    parts = sorted((apart / "checkpoints/step-000001").glob("model*.safetensors"))
    assert len(parts) == 2
    for file in [*parts, apart / "metrics.jsonl"]:
        assert file.read_bytes() == (together / file.relative_to(apart)).read_bytes()
