"""Places on several nodes: nodes that come later, that cannot take part, full stores."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster_tests.several_nodes import Nodes, several_nodes
from tests.small_runs import start
from turnwise.errors import ConfigError
from turnwise_cluster.nodes import STORE_BYTES, Cluster, connected
from turnwise_cluster.placement import RETURNED, ProcessSpec
from turnwise_cluster.settings import ClusterConfig

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.slow
WORKERS = ProcessSpec("cluster.workers", 2)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with several_nodes(2, cpus=1) as found:
        yield found


@pytest.fixture(scope="module")
def cluster(nodes: Nodes) -> Iterator[Cluster]:
    with connected(ClusterConfig(address=nodes.address), [WORKERS]) as found:
        yield found


def test_nodes_that_cannot_take_part_are_named(cluster: Cluster, tmp_path: Path) -> None:
    with cluster.places(WORKERS) as places:
        places.check([str(tmp_path)], tmp_path)
        assert not list(tmp_path.iterdir())
        message = (
            "cluster.workers: a node cannot take part: NodeUnfit: .* has no /no/such/file: put"
        )
        with pytest.raises(ConfigError, match=message):
            places.check(["/no/such/file"])
        with pytest.raises(ConfigError, match=r"NodeUnfit: .* the run's machine Python 2: install"):
            places.check([], tmp_path, "Python 2")
        assert not list(tmp_path.iterdir())


def test_a_full_object_store_holds_no_process_up(cluster: Cluster, tmp_path: Path) -> None:
    """What is said to processes does not go by way of it."""
    kept = [ray.put(b"0" * 2**20) for _ in range(2 * STORE_BYTES // 2**20)]
    with cluster.places(WORKERS) as places:
        process = places.start(1, (tmp_path / "there").touch)
        assert process.ended(120) == RETURNED
    assert (tmp_path / "there").exists()
    assert kept


def test_an_address_that_does_not_answer_is_named(tmp_path: Path) -> None:
    """Something listens there, and is no cluster."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        given = (f"cluster.address={address}", "cluster.workers=1", "cluster.start_seconds=2")
        process = start("train", "demo", *given, "--run", tmp_path / "run")
        _, errors = process.communicate(timeout=300)
    assert process.returncode == 2
    assert f"cluster.address is {address}, and Ray finds no cluster there (it has not" in errors
