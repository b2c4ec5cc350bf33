"""Samplers say among which tokens each one was drawn."""

from pathlib import Path

import numpy as np
import pytest

from tests.cluster.samplers.runs import Harassed, sampled_by
from tests.cluster.workers.test_workers import TABLES, same_run
from tests.small_runs import train, write_recipe
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.trajectory_rows import read_rows, trajectory_of
from turnwise.types import Task


@pytest.mark.long
def test_a_sampler_says_what_the_process_of_the_run_would(tmp_path: Path) -> None:
    """Metrics and weights are the same bit for bit, and so is what each step's trajectories have;
    those of evaluations have nothing."""
    recipe = write_recipe(tmp_path, "Restorable", TABLES)
    given = "rollout.top_p=0.9", "rollout.top_k=20", "evaluation.temperature=1"
    alone = train(recipe, RunFolder.new(tmp_path / "alone"), *given)
    found = sampled_by(Harassed(), 1, recipe, RunFolder.new(tmp_path / "run"), *given)
    assert same_run(found, alone)
    metrics = found.folder.lines("metrics.jsonl")
    assert all(line["policy/logprob_gap"] < 1e-4 for line in metrics)
    files = [run.folder.trajectory_files() for run in (found, alone)]
    sets = 0
    for one, other in zip(*files, strict=True):
        for pair in zip(read_rows(one), read_rows(other), strict=True):
            ours, theirs = (trajectory_of(row, Task("", "")).tokens.kept for row in pair)
            assert (ours is None) is (theirs is None) is ("step" not in one.name)
            if ours is not None and theirs is not None:
                assert np.array_equal(ours.ids, theirs.ids)
                assert np.array_equal(ours.counts, theirs.counts)
                assert ours.counts.max() <= 20
                sets += int((ours.counts > 1).sum())
    assert sets > 10
