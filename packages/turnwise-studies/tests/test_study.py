"""Studies from file to page: with runs that are there already, and whole ones that are ended."""

import json
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from study_fake_runs import fake_run, write_study
from tests.commands.shell import Shell
from tests.small_runs import start, train, write_recipe
from turnwise.storage.run_folder import RunFolder
from turnwise.threads import configure_threads
from turnwise_studies.config import load_study
from turnwise_studies.plan import planned_runs

TABLES = """
rollout = { max_turns = 2, max_turn_tokens = 8, max_tokens = 150 }
sft = { steps = 3, batch_size = 2, demonstrations = { count = 4, behaviours = { faithful = 1.0 } } }
train = { steps = 4, tasks_per_step = 2, group_size = 2, checkpoint_every = 1 }
evaluation.tasks = 2
"""
VALUES: dict[str, Any] = {
    "recipe": "recipe.toml",
    "arms": {"masked": {}, "unmasked": {"learning": {"mask_observations": False}}},
    "cold_start": {},
    "metrics": {"success": {"report": "trained.success"}, "calls": {"series": "reward/mean"}},
    "effects": [{"metric": "success", "arm": "masked", "against": "unmasked"}],
    "smallest": {"seeds": [0, 1], "settings": {"train": {"steps": 2}}},
}
WON = [True, True, False, True]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_recipe(tmp_path, "Letters", TABLES)
    return written(tmp_path)


def written(folder: Path, **changes: Any) -> Path:
    return Path(write_study(folder, **VALUES | changes))


def finish(
    file: Path, out: Path, smallest: bool = False, won: Sequence[bool] | None = None
) -> None:
    """Make the folders of all runs, as if they had been trained."""
    for run in planned_runs(load_study(str(file), smallest)):
        fake_run(out / run.name, won or (WON if run.arm == "masked" else WON[::-1]))
        lines = [{"step": step, "reward/mean": 0.5, "rollout/success": 0.5} for step in (1, 2)]
        metrics = "".join(json.dumps(line) + "\n" for line in lines)
        (out / run.name / "metrics.jsonl").write_text(metrics)
        RunFolder.new(out / "begun").begin(run.recipe)
        shutil.move(out / "begun" / "config.toml", out / run.name / "config.toml")
        shutil.rmtree(out / "begun")


@pytest.mark.long
def test_finished_runs_become_a_page_and_a_line_of_the_overview(
    shell: Shell, file: Path, tmp_path: Path
) -> None:
    out, pages = tmp_path / "out", tmp_path / "pages"
    finish(file, out)
    found = shell("study", file, "--out", out, "--page", pages, "--json").json
    assert "5 of 5 runs are there and kept" in shell.err
    assert found["arms"]["masked"]["success"]["over_seeds"]["mean"] == 0.75
    assert found["effects"][0]["verdict"] == "no verdict"
    there = {path.name for path in out.iterdir()}
    assert {"table.md", "figures.json", "curves.csv", "it.png", "it.md", "study.toml"} <= there
    assert {path.name for path in pages.iterdir()} == {"index.md", "it.json", "it.md", "it.png"}
    assert "[it](it.md)" in (pages / "index.md").read_text()
    shown = " ".join(shell("study", file, "--out", out).out.split())
    assert f"turnwise study {file}" in (out / "it.md").read_text()
    assert "success of masked less that of unmasked" in shown
    assert "no verdict: it takes 3 seeds" in shown


def test_the_folder_of_a_study_is_no_folder_of_pages(
    shell: Shell, file: Path, tmp_path: Path
) -> None:
    finish(file, tmp_path)
    shell("study", file, "--out", tmp_path, "--page", tmp_path, code=2)
    assert "--page is the study's own folder" in shell.err


def test_where_no_arm_succeeded_each_runs_first_warning_is_told(
    shell: Shell, file: Path, tmp_path: Path
) -> None:
    finish(file, tmp_path / "it", won=[False] * 4)
    log = "hello\nwarning: no signal\nwarning: another\n"
    (tmp_path / "it" / "logs").mkdir()
    (tmp_path / "it" / "logs" / "masked-0.txt").write_text(log)
    shown = shell("study", file, "--out", tmp_path / "it").out
    assert "nothing to compare: no arm succeeded\nmasked-0: warning: no signal\n" in shown
    assert "another" not in shown


def test_a_study_without_curves_has_no_plot(shell: Shell, tmp_path: Path) -> None:
    write_recipe(tmp_path, "Letters", TABLES)
    file, out, pages = written(tmp_path, curves=[]), tmp_path / "out", tmp_path / "pages"
    finish(file, out)
    shell("study", file, "--out", out, "--page", pages)
    assert "![" not in (pages / "it.md").read_text()
    assert not list(pages.glob("*.png"))


def test_the_smallest_form_says_so(shell: Shell, file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    finish(file, out, smallest=True)
    assert "no result" in shell("study", file, "--smallest", "--out", out).out
    assert "smallest form" in (out / "it.md").read_text()


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"arms": {"masked": {"learning": {"mask": 1}}, "unmasked": {}}}, "arm 'masked'"),
        ({"metrics": {"success": {"report": "traned.success"}}}, "did you mean 'trained'"),
        ({"settings": {"model": {"name": "../gone"}}}, "and there is no such folder: train it"),
    ],
)
def test_nothing_is_trained_for_a_file_that_is_wrong(
    changes: dict[str, Any], error: str, shell: Shell, file: Path, tmp_path: Path
) -> None:
    said = shell("study", written(tmp_path, **changes), "--out", tmp_path / "out", code=2).err
    assert error in said
    assert not (tmp_path / "out").exists()


def test_a_folder_with_other_settings_is_refused(shell: Shell, file: Path, tmp_path: Path) -> None:
    finish(file, tmp_path / "out")
    refused = shell("study", file, "train.steps=9", "--out", tmp_path / "out", code=2).err
    assert "masked-0 (train.steps 4, now 9)" in refused


def ended(arguments: list[str | Path], number: int, when: Callable[[], bool]) -> tuple[int, str]:
    """Start a study, and send it a signal at a moment; returns its exit code and what it said."""
    process = start(*arguments)
    while not when() and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(number)
    said = process.communicate(timeout=300)
    return process.returncode, "".join(said)


@pytest.mark.slow
def test_a_study_that_is_ended_at_several_moments_is_the_same(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    moments: list[tuple[int, Callable[[], bool]]] = [
        (signal.SIGKILL, (out / "cold_start-0" / "config.toml").is_file),
        (signal.SIGINT, (out / "cold_start-0" / "report.json").is_file),
        (signal.SIGKILL, (out / "masked-0" / "metrics.jsonl").is_file),
        (signal.SIGTERM, (out / "masked-0" / "report.json").is_file),
    ]
    arguments: list[str | Path] = ["study", file, "--out", out]
    for number, when in moments:
        code, said = ended(arguments, number, when)
        assert code == {signal.SIGINT: 130, signal.SIGTERM: 143}.get(number, -number), said
        if number != signal.SIGKILL:
            assert f"go on with: turnwise study {file} --out {out}" in said
    process = start(*arguments)
    said = process.communicate()
    assert process.returncode == 0, said
    assert (out / "it.md").is_file()
    configure_threads(1)  # as the recipe's runs have
    for run in ("masked-0", "unmasked-1"):
        train(out / "recipes" / f"{run}.toml", RunFolder.new(tmp_path / run))
        expected = (tmp_path / run / "metrics.jsonl").read_bytes()
        assert (out / run / "metrics.jsonl").read_bytes() == expected


@pytest.mark.slow
def test_a_failed_arm_is_named_and_the_others_finish(
    shell: Shell, file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    broken = {"scaffold": {"options": {"nothing": 1}}}
    arms, metrics = {"broken": broken, "masked": {}}, VALUES["metrics"]
    write_study(tmp_path, recipe="recipe.toml", seeds=[0], arms=arms, metrics=metrics)
    said = shell("study", file, "--out", out, code=3).err
    assert "1 of 2 runs failed, the others are kept: broken-0 failed" in said
    assert str(out / "broken-0") in said
    assert (out / "masked-0" / "report.json").is_file()
    assert not (out / "figures.json").exists()
