"""Samplers in the places of learners: the same GPUs, the same nodes, and the same run.

Not here: which places a recipe asks for (`test_hiring.py`), and servers that sleep
(`tests/engines/vllm`).
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.learners.test_run import finish
from tests.cluster.several_nodes import Nodes, several_nodes
from tests.cluster.workers.test_workers import TABLES
from tests.small_runs import start, write_recipe
from turnwise.cluster.hiring import kinds_of
from turnwise.cluster.nodes import connected
from turnwise.cluster.places import RETURNED, Kind
from turnwise.config import load_recipe

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with several_nodes(2, cpus=2, gpus=1) as found:
        yield found


def test_samplers_have_the_gpus_of_the_learners_beside_them(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray counts GPUs that are not there; each node has one, and a place needs a whole one."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    asked = ("threads=4", "cluster.learners=2", "cluster.samplers=4", "cluster.colocated=true")
    recipe = load_recipe("demo", [*asked, f"cluster.address={nodes.address}"])
    (learners,) = kinds_of(recipe, on_gpus=True).values()
    beside = Kind("cluster.samplers", 4, 0, 1, sharing=3)
    with (
        connected(recipe.cluster, [learners]) as cluster,
        cluster.places(learners) as places,
    ):
        places.take_own()
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"
        samplers = places.beside(beside)
        held = [places.start(1, note_place, tmp_path / "learner")]
        held += [samplers.start(index, note_place, tmp_path / str(index)) for index in range(4)]
        assert all(process.ended(120) == RETURNED for process in held)
        own = ray.get_runtime_context().get_node_id()
    found = {file.name: file.read_text().split() for file in tmp_path.iterdir()}
    assert {gpu for _, gpu in found.values()} == {"0"}
    assert found["0"][0] == found["2"][0] == own
    assert found["1"][0] == found["3"][0] == found["learner"][0] != own


def note_place(file: Path) -> None:
    node = ray.get_runtime_context().get_node_id()
    file.write_text(f"{node} {os.environ['CUDA_VISIBLE_DEVICES']}")


def test_the_run_is_the_same_wherever_samplers_are(nodes: Nodes, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, "Restorable", TABLES)
    asked = (f"cluster.address={nodes.address}", "cluster.learners=2", "cluster.samplers=2")
    runs = {each: tmp_path / each for each in ("true", "false")}
    for colocated, run in runs.items():
        finish(start("train", recipe, *asked, f"cluster.colocated={colocated}", "--run", run))
    one, other = runs.values()
    assert (one / "metrics.jsonl").read_bytes() == (other / "metrics.jsonl").read_bytes()
    parts = sorted((one / "checkpoints/step-000002").glob("model*.safetensors"))
    assert len(parts) == 2
    for part in parts:
        assert part.read_bytes() == (other / part.relative_to(one)).read_bytes()
