"""Processes on a cluster of this machine: places, starts, and ends that say why."""

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnwise.errors import ConfigError, InfrastructureError
from turnwise_cluster.nodes import Cluster, connected, problem_of_joining, start
from turnwise_cluster.placement import (
    RETURNED,
    ExitStatus,
    NodeUnfit,
    PlacementGroup,
    ProcessSpec,
    look,
    own_versions,
    table,
)
from turnwise_cluster.settings import ClusterConfig

pytestmark = pytest.mark.long

LOCAL = ClusterConfig(workers=2)
KIND = ProcessSpec("cluster.workers", 2)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with connected(LOCAL, [KIND]) as found:
        yield found


@pytest.fixture(scope="module")
def places(cluster: Cluster) -> Iterator[PlacementGroup]:
    with cluster.places(KIND) as found:
        yield found


def report(host: str, port: int) -> None:
    """Say who this is, and wait for an answer."""
    with socket.create_connection((host, port)) as connection:
        main = threading.current_thread() is threading.main_thread()
        connection.sendall(f"{os.getpid()} {main}".encode())
        connection.recv(1)


def fail() -> None:
    raise ValueError("there is no door 7\nand no door 8")


def test_ray_knows_nothing_of_places_that_it_has_forgotten(cluster: Cluster) -> None:
    from ray import PlacementGroupID
    from ray.util.placement_group import PlacementGroup

    unknown = PlacementGroup(PlacementGroupID.from_random())
    assert not table(unknown)


class Failing(PlacementGroup):
    """Has two nodes beside this one, and starts a process on the first one alone."""

    def __init__(self, process: "Ended") -> None:
        super().__init__(None, KIND, None, [], "here", 1.0)
        self.process = process

    def _one_of_each_node(self) -> list[int]:
        return [0, 1]

    def start(self, index: int, function: object, *arguments: object) -> "Ended":
        if index == 1:
            raise ConnectionError("Ray is gone")
        return self.process


class Ended:
    """A process that notes its end."""

    there = True

    def end(self) -> None:
        self.there = False


def test_a_look_that_cannot_be_begun_leaves_nothing_behind(tmp_path: Path) -> None:
    process = Ended()
    with pytest.raises(ConnectionError, match="Ray is gone"):
        Failing(process).check([], tmp_path)
    assert not process.there
    assert list(tmp_path.iterdir()) == []


class BusyRay:
    """Ray on a machine that is too busy to start it in time."""

    def __init__(self, said: str = "The current node timed out during startup. It\nmay") -> None:
        self.said = said

    def init(self, *_: object, **__: object) -> None:
        raise Exception(self.said)


def test_whatever_keeps_ray_from_joining_is_one_line() -> None:
    told = problem_of_joining(BusyRay(), "auto", 60)
    assert told == "The current node timed out during startup. It"
    assert problem_of_joining(BusyRay(""), "auto", 60) == "Exception"


def test_a_machine_that_is_too_busy_to_start_ray_is_one_line() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(
        InfrastructureError, match=r"during startup. It\): end some of what"
    ) as found:
        start(BusyRay(), 1)
    assert "\n" not in str(found.value)
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_process_works_in_its_main_thread_until_its_function_returns(
    cluster: Cluster, places: PlacementGroup
) -> None:
    with socket.create_server((cluster.host, 0)) as server:
        server.settimeout(120)
        process = places.start(0, report, cluster.host, server.getsockname()[1])
        connection, _ = server.accept()
        number, main = connection.recv(100).decode().split()
        assert (int(number) != os.getpid(), main) == (True, "True")
        assert process.ended() is None
        connection.close()
        assert process.ended(60) == RETURNED
        process.end()
        process.end()


def test_the_reason_of_an_end_is_one_line(cluster: Cluster, places: PlacementGroup) -> None:
    process = places.start(0, fail)
    assert process.ended(60) == ExitStatus("ValueError: there is no door 7")
    process.end()
    with socket.create_server((cluster.host, 0)) as server:
        server.settimeout(120)
        process = places.start(0, report, cluster.host, server.getsockname()[1])
        connection, _ = server.accept()
        with connection:
            os.kill(int(connection.recv(100).split()[0]), signal.SIGKILL)
        end = asyncio.run(process.wait())
    assert end.lost
    assert "process has died" in end.reason
    assert "\n" not in end.reason


def test_nodes_have_the_versions_the_files_and_the_folder_of_the_run(tmp_path: Path) -> None:
    here, none = str(tmp_path), str(tmp_path / "none")
    look([here], here, own_versions())
    with pytest.raises(NodeUnfit, match=r"has Python .*, and the run's machine Python 2: install"):
        look([], "", "Python 2")
    with pytest.raises(NodeUnfit, match=f"does not see {tmp_path}: put the run on a disk"):
        look([], none, own_versions())
    with pytest.raises(NodeUnfit, match=f"has no {none}: put it on a disk that all nodes share"):
        look([here, none], "", own_versions())


def test_a_cluster_that_is_too_small_is_said_at_once(cluster: Cluster) -> None:
    asked = [ProcessSpec("cluster.workers", 2), ProcessSpec("cluster.samplers", 1, 3, 1)]
    message = (
        r"cluster.workers = 2 \(2 CPUs\) and cluster.samplers = 1 \(3 CPUs, 1 GPU\): "
        "the cluster has 2 CPUs; add nodes, or ask for fewer"
    )
    with pytest.raises(ConfigError, match=message), connected(LOCAL, asked):
        pass


def test_places_that_are_taken_are_waited_for_and_named(
    cluster: Cluster, places: PlacementGroup
) -> None:
    message = r"cluster.workers = 2 \(2 CPUs\): .*start_seconds = 0.1, and \d CPUs? free in all"
    hasty = LOCAL.model_copy(update={"start_seconds": 0.1})
    with (
        connected(hasty, [KIND]) as other,
        pytest.raises(ConfigError, match=message),
        other.places(KIND),
    ):
        pass
