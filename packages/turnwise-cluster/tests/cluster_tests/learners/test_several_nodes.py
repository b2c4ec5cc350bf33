"""Ranks of the learner on the nodes of a cluster: the updates of one machine, and ends that are
named.
"""

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster_tests.learners.test_run import TABLES, finish
from cluster_tests.several_nodes import Nodes, several_nodes
from cluster_tests.workers.processes import left_after
from tests.small_runs import start, write_recipe
from turnwise.config import load_recipe
from turnwise.errors import ConfigError
from turnwise_cluster.nodes import connected
from turnwise_cluster.placement import RETURNED, ProcessSpec
from turnwise_cluster.resources import kinds_of
from turnwise_cluster.settings import ClusterConfig, cluster_of

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with several_nodes(3, cpus=1, gpus=2) as found:
        yield found


def started(run: Path, step: int, *arguments: str | Path) -> "subprocess.Popen[str]":
    """A run that has saved a step."""
    process, end = start(*arguments), time.monotonic() + 300
    while not (run / f"checkpoints/step-{step:06d}").exists():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < end
        time.sleep(0.001)
    return process


def test_ranks_see_the_gpus_that_are_theirs(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray counts GPUs that are not there."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    ranks = ProcessSpec("cluster.learners", 3, 1, 2, "PACK", first_here=True)
    with connected(ClusterConfig(address=nodes.address), [ranks]) as cluster:
        with cluster.places(ranks) as places:
            places.take_own()
            others = [places.start(rank, write_gpus, tmp_path / str(rank)) for rank in (1, 2)]
            assert all(other.ended(120) is not None for other in others)
        many = ProcessSpec("cluster.learners", 1, 2, 0, "PACK", first_here=True)
        with pytest.raises(ConfigError, match="first one and needs 2 CPUs on its machine, of whic"):
            cluster.check([many])
    found = [os.environ["CUDA_VISIBLE_DEVICES"], *(file.read_text() for file in tmp_path.iterdir())]
    assert [sorted(each.split(",")) for each in found] == [["0", "1"]] * 3


def test_servers_have_the_gpus_of_the_learners_beside_them(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A place has one of the two GPUs that Ray counts on each node."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    asked = ("engine=vllm", "threads=2", "cluster.learners=2", "cluster.samplers=2")
    beside = ("cluster.colocated=true", f"cluster.address={nodes.address}")
    recipe = load_recipe("demo", [*asked, *beside])
    (learners,) = kinds_of(recipe, on_gpus=True).values()
    with connected(cluster_of(recipe), [learners]) as cluster, cluster.places(learners) as places:
        places.take_own()
        own = ray.get_runtime_context().get_node_id(), os.environ["CUDA_VISIBLE_DEVICES"]
        servers = places.colocate(ProcessSpec("cluster.samplers", 2, 0, 1, sharing=2))
        begun = [places.start(1, write_place, tmp_path / "learner")]
        begun += [servers.start(index, write_place, tmp_path / str(index)) for index in range(2)]
        assert [process.ended(120) for process in begun] == [RETURNED] * 3
    found = {file.name: tuple(file.read_text().split()) for file in tmp_path.iterdir()}
    assert found["0"] == own
    assert found["1"] == found["learner"]
    assert found["1"][0] != own[0]
    assert {gpu for _, gpu in found.values()} <= {"0", "1"}


def write_place(file: Path) -> None:
    node = ray.get_runtime_context().get_node_id()
    file.write_text(f"{node} {os.environ['CUDA_VISIBLE_DEVICES']}")


def write_gpus(file: Path) -> None:
    file.write_text(os.environ["CUDA_VISIBLE_DEVICES"])


def test_a_run_whose_nodes_and_driver_end_is_the_run_of_one_machine(
    nodes: Nodes, tmp_path: Path
) -> None:
    recipe, whole, run = write_recipe(tmp_path, "Letters", TABLES), tmp_path / "a", tmp_path / "b"
    finish(start("train", recipe, "--run", whole))
    address = f"cluster.address={nodes.address}"
    process = started(run, 2, "train", recipe, address, "--run", run)
    nodes.lose(next(at for at in range(2) if nodes.actors(at)))
    _, told = process.communicate(timeout=120)
    assert process.returncode == 3
    told = " ".join(told.split())
    assert re.search(
        r"learner rank 1 \(process \d+ on .*\) ended in [\w.]+ \(.*\): .*rank-1.log", told
    )
    assert "Traceback" not in told
    process = started(run, 4, "train", "--resume", run)
    (rank,) = set.union(*(nodes.actors(at) for at in range(2)))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert left_after({rank}, 60) == set()
    finish(start("train", "--resume", run))
    parts = list((whole / "checkpoints/step-000006").glob("model*.safetensors"))
    assert len(parts) == 2
    for part in parts:
        assert part.read_bytes() == (run / part.relative_to(whole)).read_bytes()
    assert (whole / "metrics.jsonl").read_bytes() == (run / "metrics.jsonl").read_bytes()
