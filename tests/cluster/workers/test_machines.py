"""Parts of episodes on the nodes of a cluster that have what they need, and where none has.

Not here: what each part hands on (`test_divided.py`).
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.several_nodes import Nodes, several_nodes
from tests.cluster.workers.test_divided import NOTING
from tests.cluster.workers.test_workers import TABLES
from tests.small_runs import start, write_recipe
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.timeline import read_timeline

pytest.importorskip("ray")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """The first node plays, the second has no CPU for that, and judges."""
    with several_nodes(1, cpus=2) as found:
        found.add(cpus=0, resources={"test_suites": 1, "images": 1})
        yield found


def run(recipe: Path, folder: Path, *overrides: str) -> tuple[int, str]:
    """The exit code of a run, and what it said."""
    process = start("train", recipe, *overrides, "--run", folder)
    _, errors = process.communicate(timeout=300)
    return process.returncode, errors


def notes(file: Path) -> dict[str, list[int]]:
    """The processes that did each part."""
    lines = [line.split() for line in file.read_text().splitlines()]
    parts = dict.fromkeys(part for part, _ in lines)
    return {part: [int(process) for one, process in lines if one == part] for part in parts}


@pytest.mark.slow
def test_a_verdict_is_given_on_the_node_that_has_what_it_needs_also_when_its_worker_is_killed(
    nodes: Nodes, tmp_path: Path
) -> None:
    """The run is the one of one process, and no episode is played again."""
    recipe = write_recipe(tmp_path, "Restorable", TABLES)
    file, deadly = tmp_path / "notes", "environment.options.deaths=1"
    named = NOTING, f"environment.options.notes={file}"
    code, said = run(recipe, tmp_path / "alone", NOTING)
    assert code == 0, said
    needs = "environment.needs={reset={images=1}, verify={test_suites=1}}"
    cluster = ("cluster.workers=2", f"cluster.address={nodes.address}")
    code, said = run(recipe, tmp_path / "run", *named, deadly, needs, *cluster)
    assert code == 0, said
    ours, theirs = (RunFolder.open(tmp_path / name) for name in ("run", "alone"))
    assert ours.lines("metrics.jsonl") == theirs.lines("metrics.jsonl")
    last = list(ours.lines("timing.jsonl"))[-1]
    assert last["workers/lost"] == 1
    assert last["workers/episodes_given_up"] == 0
    done = notes(file)
    count, judges = len(done["reset"]), set(done["verify"])
    assert len(done["verify"]) == count + 1
    players = [one for one in done["restore"] if one not in judges]
    assert len(players) == count
    assert not judges & set(done["reset"])
    assert not set(players) & set(done["reset"])
    rows = read_timeline(ours.timeline_file(1)).to_pylist()
    graders = {row["process"] for row in rows if row["kind"] == "grading"}
    processes = {int(*re.findall(r"verify worker 0 \(process (\d+)", name)) for name in graders}
    assert processes <= judges


def test_a_cluster_without_what_is_needed_is_refused_in_one_line(
    nodes: Nodes, tmp_path: Path
) -> None:
    recipe = write_recipe(tmp_path, "Restorable", TABLES)
    needs = "environment.needs.verify.test_benches=1"
    cluster = ("cluster.workers=1", f"cluster.address={nodes.address}")
    code, said = run(recipe, tmp_path / "run", NOTING, needs, *cluster)
    assert code == 2
    assert "environment.needs: verify workers take 1 test_benches each, and no node" in said
    assert """--resources='{"test_benches": 1.0}'""" in said
    assert len(said.strip().splitlines()) == 1
