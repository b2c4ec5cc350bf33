"""Which places a recipe asks for."""

import os
from pathlib import Path

import pytest

from turnwise.config import load_recipe
from turnwise.errors import ConfigError
from turnwise_cluster.nodes import STORE_BYTES, connected
from turnwise_cluster.placement import RETURNED, ProcessSpec
from turnwise_cluster.resources import check_machine, kinds_of, shared_folder
from turnwise_cluster.settings import cluster_of

LOCAL_AND_FAR = ("local", "10.0.0.1:6379")
SERVED = ("engine=vllm", "cluster.samplers=2")
ALL_KINDS = (
    *(*SERVED, "engine.servers.gpus=1", "cluster.learners=2"),
    *("cluster.workers=2", "cluster.address=auto"),
)


def kinds(*overrides: str, on_gpus: bool) -> dict[str, ProcessSpec]:
    return kinds_of(load_recipe("demo", ["threads=4", *overrides]), on_gpus)


def test_a_learner_beside_servers_on_gpus_has_one_of_its_own() -> None:
    """Ray would give its GPU to a server."""
    found = kinds(*SERVED, on_gpus=True)
    assert list(found) == ["learners", "samplers"]
    assert found["learners"] == ProcessSpec("cluster.learners", 1, 4, 1, "PACK", first_here=True)
    assert (found["samplers"].cpus, found["samplers"].gpus) == (1, 1)


@pytest.mark.parametrize(
    ("overrides", "on_gpus", "expected"),
    [
        (SERVED, False, ["samplers"]),
        (("cluster.learners=2",), False, []),
        (("cluster.learners=2",), True, []),
        (("cluster.learners=2", "cluster.address=auto"), True, ["learners"]),
        (("cluster.workers=2",), True, ["workers"]),
        ((*SERVED, "cluster.workers=2"), False, ["samplers", "workers"]),
        (ALL_KINDS, True, ["learners", "samplers", "workers"]),
        (ALL_KINDS, False, ["samplers", "learners", "workers"]),
    ],
)
def test_who_has_places_those_that_need_gpus_first(
    overrides: tuple[str, ...], on_gpus: bool, expected: list[str]
) -> None:
    assert list(kinds(*overrides, on_gpus=on_gpus)) == expected


@pytest.mark.parametrize("on_gpus", [False, True])
def test_servers_that_are_colocated_are_in_the_places_of_learners(on_gpus: bool) -> None:
    asked = ("engine=vllm", "cluster.samplers=4", "cluster.colocated=true")
    (alone,) = kinds(*asked, on_gpus=on_gpus).values()
    assert (alone.count, alone.cpus, alone.gpus, alone.sharing) == (1, 4, on_gpus, 5)
    assert alone.gpu_share == 0.2 * on_gpus
    (two,) = kinds(*asked, "cluster.learners=2", on_gpus=on_gpus).values()
    assert (two.count, two.cpus, two.gpus, two.sharing) == (2, 2, on_gpus, 3)
    assert two.gpu_share == 0.3333 * on_gpus


def test_servers_have_the_gpus_that_they_ask_for() -> None:
    (found,) = kinds(*SERVED, on_gpus=False).values()
    assert (found.cpus, found.gpus) == (4, 0)
    (found,) = kinds(*SERVED, "engine.servers.gpus=2", on_gpus=False).values()
    assert (found.cpus, found.gpus) == (1, 2)


def test_servers_on_nodes_share_a_folder_with_the_run(tmp_path: Path) -> None:
    local, far = (load_recipe("demo", [*SERVED, f"cluster.address={at}"]) for at in LOCAL_AND_FAR)
    assert shared_folder("samplers", tmp_path) == tmp_path
    assert shared_folder("workers", tmp_path) is None
    check_machine(far, False, tmp_path)
    check_machine(local, False)
    with pytest.raises(ConfigError, match="a folder that all of them share: name one with --out"):
        check_machine(far, False)


def test_more_servers_than_cores_are_refused() -> None:
    many = load_recipe("demo", ["engine=vllm", "cluster.samplers=999"])
    message = r"cluster.samplers is 999, and this machine has \d+ cores: lower it, or"
    with pytest.raises(ConfigError, match=message):
        check_machine(many, on_gpus=False)
    check_machine(many, on_gpus=True)


def test_learners_beside_servers_on_the_gpus_of_this_machine_are_ray_s_to_place() -> None:
    two = load_recipe("demo", [*SERVED, "cluster.learners=2"])
    with pytest.raises(ConfigError, match="GPUs Ray has to deal out together: start it with `ray"):
        check_machine(two, on_gpus=True)


@pytest.mark.slow
def test_the_servers_of_this_machine_have_other_gpus_than_the_learner(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Ray counts GPUs that are not there."""
    ray = pytest.importorskip("ray")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    recipe, file = (
        load_recipe("demo", ["threads=1", *SERVED, "cluster.samplers=1"]),
        tmp_path / "gpus",
    )
    kinds, settings = kinds_of(recipe, on_gpus=True), {"include_dashboard": False}
    ray.init("local", num_cpus=2, num_gpus=2, object_store_memory=STORE_BYTES, **settings)
    try:
        with (
            connected(cluster_of(recipe), list(kinds.values())) as cluster,
            cluster.places(kinds["learners"]) as own,
            cluster.places(kinds["samplers"]) as others,
        ):
            own.take_own()
            assert others.start(0, write_gpus, file).ended(120) == RETURNED
            assert {os.environ["CUDA_VISIBLE_DEVICES"], file.read_text()} == {"0", "1"}
    finally:
        ray.shutdown()


def write_gpus(file: Path) -> None:
    file.write_text(os.environ["CUDA_VISIBLE_DEVICES"])
