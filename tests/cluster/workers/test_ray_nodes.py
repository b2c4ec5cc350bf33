"""Workers on a cluster of several nodes, one of which is lost: a machine that goes away."""

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.workers.fleet import train_with
from tests.cluster.workers.test_workers import TABLES, Harassed, same_run, timing
from tests.small_runs import train, write_recipe
from turnwise.cluster.workers.ray_launcher import RayLauncher, connected
from turnwise.config import ClusterConfig
from turnwise.storage.run_folder import RunFolder


class LosingANode(Harassed):
    """Loses a node with all that is there, and gets another one."""

    def __init__(self, ray: Any, config: ClusterConfig, cluster: Any, *deaths: int) -> None:
        super().__init__(config.workers, *deaths)
        self._launcher, self.cluster = RayLauncher(ray, config), cluster

    def kill(self, index: int) -> None:
        threading.Thread(target=self.exchange).start()

    def exchange(self) -> None:
        self.cluster.remove_node(self.cluster.list_all_nodes[1], allow_graceful=False)
        self.cluster.add_node(num_cpus=1)


@pytest.mark.long
def test_a_run_that_loses_a_node_is_the_run_that_does_not(tmp_path: Path) -> None:
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    recipe = write_recipe(tmp_path, "Restorable", TABLES)
    alone = train(recipe, RunFolder.new(tmp_path / "alone"))
    cluster = cluster_utils.Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
    )
    try:
        cluster.add_node(num_cpus=1)
        cluster.add_node(num_cpus=1)
        config = ClusterConfig(workers=2, address=cluster.address)
        with connected(config) as ray:
            pool = LosingANode(ray, config, cluster, 3)
            found = train_with(pool, recipe, RunFolder.new(tmp_path / "run"))
            assert sum(node["Alive"] for node in ray.nodes()) == 3
            assert sum(not node["Alive"] for node in ray.nodes()) == 1
    finally:
        cluster.shutdown()
    assert same_run(found, alone)
    assert timing(found)["workers/lost"] == 1
