"""A Ray cluster of several nodes on this machine: each has processes, and can be lost."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cluster_tests.workers.processes import descendants, left_after
from turnwise_cluster.nodes import SETTINGS, STORE_BYTES

TESTS = Path(__file__).parents[1]
LEAN = {"RAY_prestart_worker_first_driver": "0", "RAY_enable_worker_prestart": "0"}
"""No process is started before it is needed."""


class Nodes:
    """The head is the node of the run's own process.

    Args:
        cluster: `ray.cluster_utils.Cluster`.
    """

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        self.address: str = cluster.address
        self.others: list[Any] = []

    def add(self, cpus: int, gpus: int = 0) -> None:
        """Add a node, and wait until it is there."""
        address = f"127.0.0.{len(self.others) + 2}"
        self.others.append(self._cluster.add_node(node_ip_address=address, **sizes(cpus, gpus)))

    def processes(self, index: int) -> set[int]:
        """The processes of one of the others; none of a lost one."""
        (raylet,) = self.others[index].all_processes["raylet"]
        return {raylet.process.pid} | descendants(raylet.process.pid)

    def actors(self, index: int) -> set[int]:
        """Those of a run's processes that are on one of the others and still there."""
        return {one for one in self.processes(index) if "ray::_Actor" in title(one)}

    def lose(self, index: int) -> None:
        """Kill everything of one of the others at once, as when its machine loses power."""
        processes = self.processes(index)
        for process in processes:
            os.kill(process, signal.SIGKILL)
        assert left_after(processes, 60) == set()


def title(process: int) -> str:
    """The name that a process has given itself."""
    try:
        return Path(f"/proc/{process}/cmdline").read_text()
    except OSError:  # it has ended
        return ""


def sizes(cpus: int, gpus: int) -> dict[str, Any]:
    """The settings of a node."""
    return {"num_cpus": cpus, "num_gpus": gpus, "object_store_memory": STORE_BYTES}


@contextmanager
def several_nodes(count: int, cpus: int, gpus: int = 0) -> Iterator[Nodes]:
    """Inside, there is a cluster of `count` nodes with `cpus` each."""
    # Processes of the nodes import the functions of tests that they are given.
    paths = [str(TESTS), str(TESTS.parents[2]), os.environ.get("PYTHONPATH", "")]
    own = LEAN | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    before = {name: os.environ.get(name) for name in own}
    os.environ |= SETTINGS | own
    from ray.cluster_utils import Cluster

    head = sizes(cpus, gpus) | {"include_dashboard": False}
    cluster = Cluster(True, head_node_args=head)
    try:
        nodes = Nodes(cluster)
        for _ in range(count - 1):
            nodes.add(cpus, gpus)
        yield nodes
    finally:
        cluster.shutdown()
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
