"""A run with a reward of its own: what counts and where it is recorded; it goes on exactly."""

import json
from pathlib import Path

import pytest

from tests.small_runs import FAKES, interrupted, resume, train
from turnwise.errors import RunStoppedError
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.trajectory_rows import read_rows

ENVIRONMENT = "Reporting"
TABLES = f"""
engine = {{ max_sequences = 8 }}
rollout = {{ max_turns = 2, max_turn_tokens = 8, max_tokens = 400 }}
algorithm = {{ name = "turn_rloo" }}
train = {{ steps = 2, tasks_per_step = 2, group_size = 4, checkpoint_every = 1 }}
evaluation = {{ tasks = 2 }}
[reward]
outcome = 3.0
parts.each = 0.5
parts.letters = {{ weight = 0.4, schedule = {{ weight = 0.0, to_step = 2 }} }}
parts.place = {{ use = "{FAKES}:rank", weight = 0.25 }}
costs.words = {{ use = "{FAKES}:written", limit = 0.5, highest = 0.5 }}
"""
LETTERS = (0.4, 0.2)
"""The weight at the two steps."""


@pytest.fixture(scope="module")
def whole(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = RunFolder.new(tmp_path_factory.mktemp("run") / "run")
    train(recipe, folder)
    return folder


@pytest.mark.long
def test_rewards_are_those_of_the_parts(whole: RunFolder) -> None:
    places = []
    for step, weight in enumerate(LETTERS):
        for row in read_rows(whole.path / "trajectories" / f"step-{step + 1:06d}.parquet"):
            parts, each = json.loads(row["parts"]), json.loads(row["turn_parts"])["each"]
            assert row["turn_rewards"] == pytest.approx([0.5 * number for number in each])
            wanted = weight * parts["letters"] + 0.25 * parts["place"] + sum(row["turn_rewards"])
            wanted -= (0.0, 0.05)[step] * parts["words"]
            assert row["reward"] == pytest.approx(3.0 * row["success"] + wanted)
            places.append(parts["place"])
    assert max(places) > 0


def test_metrics_have_every_part_and_the_multiplier_of_a_cost_that_is_too_high(
    whole: RunFolder,
) -> None:
    for line in whole.lines("metrics.jsonl"):
        assert 0 < line["reward/parts/letters"] < 1
        assert 0 < line["reward/parts/place"] < 1
        assert line["reward/turns"] == pytest.approx(0.5 * line["reward/turn_parts/each"])
    lines = whole.lines("metrics.jsonl")
    assert [line["reward/parts/words"] for line in lines] == [1.0, 1.0]
    assert [line["reward/multipliers/words"] for line in lines] == pytest.approx([0.0, 0.05])


def test_evaluations_leave_out_what_is_measured_of_groups(whole: RunFolder) -> None:
    rows = read_rows(whole.path / "trajectories" / "evaluation-trained.parquet")
    assert [set(json.loads(row["parts"])) for row in rows] == [{"letters", "words"}] * 2
    assert [row["reward"] for row in rows] == pytest.approx(
        [3.0 * row["success"] + sum(row["turn_rewards"]) for row in rows]  # no weight by then
    )


def test_it_goes_on_exactly(whole: RunFolder, tmp_path: Path) -> None:
    folder = interrupted(whole, tmp_path / "run", "step-000002")
    resume(folder)
    assert folder.lines("metrics.jsonl") == whole.lines("metrics.jsonl")


def test_a_failing_part_is_counted_and_stops_the_run(recipe: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("def broken(trajectory):\n    return 1 / 0\n")
    use = (f"reward.parts.place.use={mine}:broken", "reward.parts.place.range=[0, 1]")
    with pytest.raises(RunStoppedError, match=r"ZeroDivisionError: .*mine\.py, line 2"):
        train(recipe, RunFolder.new(tmp_path / "run"), *use)
