"""Evaluations as Inspect reads them."""

from dataclasses import replace
from pathlib import Path

import pytest

from looked_up import begun, looked_up
from turnwise.errors import ConfigError, DataError
from turnwise.evaluation.evaluate import summarise
from turnwise.storage.run_folder import RunFolder
from turnwise.types import Group, Outcome, Verdict
from turnwise_studies.formats.inspect_export import export_inspect

log = pytest.importorskip("inspect_ai.log", reason="the extra inspect is not installed")


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A run with three episodes: a success, one without a turn left, one without a grade."""
    folder, won = begun(tmp_path / "run"), looked_up()
    out = replace(won, episode=1, outcome=Outcome.TRUNCATED_TURNS, verdict=Verdict(0.0, False))
    lost = replace(won, episode=2, outcome=Outcome.GRADER_ERROR, verdict=None, problem="no disk")
    folder.write_trajectories("evaluation-trained", [Group("g", (won, out, lost))])
    summary = {"step": 3, "environment": "search 1", **summarise([won, out, lost])}
    folder.write_evaluation("trained", summary)
    return folder


@pytest.mark.parametrize("ending", [".eval", ".json"])
def test_inspect_reads_what_was_played(folder: RunFolder, tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"log{ending}"
    assert export_inspect(folder, file) == 3
    read = log.read_eval_log(str(file))
    assert read.status == "success"
    assert (read.eval.task, read.eval.model) == ("search", "turnwise/tiny")
    metrics = {name: metric.value for name, metric in read.results.scores[0].metrics.items()}
    assert metrics["accuracy"] == 0.5
    assert (read.results.total_samples, read.results.completed_samples) == (3, 2)
    won, out, lost = read.samples
    roles = ["user", "assistant", "tool", "assistant", "user", "assistant"]
    assert [message.role for message in won.messages] == roles
    assert won.messages[1].tool_calls[0].function == "lookup"
    assert won.messages[2].tool_call_id == won.messages[1].tool_calls[0].id
    score = won.scores["verifier"]
    assert (score.value, score.answer, score.metadata["f1"]) == ("C", "Rome", 1.0)
    assert (out.scores["verifier"].value, out.limit.type, out.limit.limit) == ("I", "turn", 6)
    assert (lost.scores, lost.error.message) == (None, "grader_error: no disk")
    assert [sample.epoch for sample in read.samples] == [1, 2, 3]
    assert b"a secret" not in file.read_bytes()


def test_what_cannot_be_written_is_refused(folder: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"ends with \.eval or \.json"):
        export_inspect(folder, tmp_path / "log.txt")
    with pytest.raises(DataError, match="has no evaluation 'base' yet"):
        export_inspect(folder, tmp_path / "log.json", "base")
    export_inspect(folder, tmp_path / "log.json")
    with pytest.raises(DataError, match="exists already"):
        export_inspect(folder, tmp_path / "log.json")
