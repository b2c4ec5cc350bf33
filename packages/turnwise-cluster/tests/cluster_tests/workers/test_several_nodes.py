"""Workers on the nodes of a cluster, of which one is lost."""

import time
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from cluster_tests.several_nodes import several_nodes
from cluster_tests.workers.test_workers import TABLES
from tests.small_runs import start, write_recipe
from turnwise.storage.run_folder import RunFolder

pytest.importorskip("ray")
STEPS = 12


@pytest.mark.slow
def test_a_run_that_loses_a_node_is_the_run_that_loses_none(tmp_path: Path) -> None:
    """Three nodes have the four workers; two have room for all of them as well."""
    recipe, steps = write_recipe(tmp_path, "Restorable", TABLES), f"train.steps={STEPS}"
    alone, run = tmp_path / "alone", tmp_path / "run"
    process = start("train", recipe, steps, "--run", alone)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    with several_nodes(3, cpus=2) as nodes:
        given = (steps, "cluster.workers=4", f"cluster.address={nodes.address}")
        process = start("train", recipe, *given, "--run", run)
        metrics, end = run / "metrics.jsonl", time.monotonic() + 300
        while not metrics.is_file() or metrics.read_text().count("\n") < 2:
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < end
            time.sleep(0.02)
        nodes.lose(0)
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    for ours, theirs in zip(
        RunFolder.open(run).lines("metrics.jsonl"),
        RunFolder.open(alone).lines("metrics.jsonl"),
        strict=True,
    ):
        assert ours == theirs
    last = f"checkpoints/step-{STEPS:06d}/model.safetensors"
    ours, theirs = load_file(run / last), load_file(alone / last)
    assert all((ours[name] == theirs[name]).all() for name in theirs)
    assert RunFolder.open(run).lines("timing.jsonl")[-1]["workers/lost"] >= 1
