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


@pytest.mark.long
def test_the_run_is_the_same_wherever_samplers_are(tmp_path: Path) -> None:
    """Learners are plain processes where samplers are not beside them."""
    recipe, apart, together = (
        write_recipe(tmp_path, "Restorable", TABLES),
        tmp_path / "a",
        tmp_path / "b",
    )
    sampled_by(Harassed(), 2, recipe, RunFolder.new(apart), "cluster.learners=2")
    asked = ("cluster.learners=2", "cluster.samplers=2", "cluster.colocated=true")
    finish(start("train", recipe, *asked, "--run", together))
    parts = sorted((apart / "checkpoints/step-000002").glob("model*.safetensors"))
    assert len(parts) == 2
    for file in [*parts, apart / "metrics.jsonl"]:
        assert file.read_bytes() == (together / file.relative_to(apart)).read_bytes()
