"""What is printed for people."""

from pathlib import Path

import pytest
from rich.console import Console

from tests import small_runs
from tests.learning.building import make_groups
from tests.rollout.playing import TOKENIZER, encode
from turnwise.commands.results import report_tables
from turnwise.commands.terminal import (
    choose_rows,
    default_file,
    others_line,
    show_rows,
    token_tables,
    trajectory_text,
)
from turnwise.config import check_recipe
from turnwise.errors import DataError
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.trajectory_rows import read_rows
from turnwise.tokens import Source

SHORT = """
rollout = { max_turns = 2, max_turn_tokens = 8, max_tokens = 200 }
train = { steps = 1, tasks_per_step = 2, group_size = 2 }
evaluation = { tasks = 0 }
"""


def test_a_run_without_evaluations_has_no_tables() -> None:
    assert report_tables({"name": "demo", "recipe": {}}) == []


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["demonstrations"], "demonstrations"),
        (["demonstrations", "evaluation-cold_start"], "evaluation-cold_start"),
        (["evaluation-cold_start", "step-000001", "step-000002"], "step-000002"),
        (["step-000002", "evaluation-trained", "evaluation-no_search"], "evaluation-trained"),
        (["evaluation-trained", "evaluation-no_search", "step-000009"], "evaluation-trained"),
        (["step-000002", "preferences"], "step-000002"),
        (["evaluation-no_search", "evaluation-random_document"], "evaluation-random_document"),
    ],
)
def test_what_is_shown_is_the_agent_and_no_sabotaged_one(names: list[str], chosen: str) -> None:
    assert default_file(names) == chosen


@pytest.mark.wing("algorithms")
def test_a_loss_on_observations_is_told(tmp_path: Path) -> None:
    folder, console = RunFolder.new(tmp_path / "run"), Console(record=True, width=300)
    algorithm = {"name": "paw"}
    recipe = {"name": "x", "environment": {"name": "search"}, "algorithm": algorithm}
    folder.begin(check_recipe(recipe, "test"))
    TOKENIZER.save_pretrained(folder.tokenizer)
    folder.write_trajectories("step-000001", make_groups([[1.0]]))
    rows = read_rows(folder.trajectory_file("step-000001"))
    show_rows(console, folder.path, "step-000001", rows)
    assert "are predicted in a loss of their own (world_model)" in console.export_text()


def test_the_other_files_are_listed(tmp_path: Path) -> None:
    folder = RunFolder.new(tmp_path / "run")
    folder.begin(check_recipe({"name": "x", "environment": {"name": "search"}}, "test"))
    assert others_line(folder.path, "step-000001") == ""
    for name in ("step-000001", "step-000012", "evaluation-trained", "evaluation-no_search"):
        folder.write_trajectories(name, [])
    with pytest.raises(DataError, match=r"evaluation-trained\.parquet has no trajectory"):
        choose_rows(folder.path, None, None, 3)
    folder.write_trajectories("step-000001", make_groups([[0.0, None, 1.0, 1.0]]))
    for outcome, most, episodes in (("success", 2, [0, 2]), (None, 3, [0, 1, 2])):
        rows, _ = choose_rows(folder.path, "1", outcome, most)
        assert [row["episode"] for row in rows] == episodes
    line = others_line(folder.path, "evaluation-trained")
    assert line == "others to be shown with --step: evaluation-no_search, 1 to 12"


def test_a_damaged_tokenizer_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "tokenizer").mkdir()
    for text in ("", "{}", "\0"):
        (tmp_path / "tokenizer" / "tokenizer.json").write_text(text)
        with pytest.raises(DataError, match=r"tokenizer\.json is damaged") as caught:
            show_rows(Console(), tmp_path, "step-000001", [{"ids": [1]}])
        assert "\n" not in str(caught.value)


def test_the_mask_can_be_seen_without_colour() -> None:
    pieces = [("Who?", Source.USER), ("ask", Source.MODEL), ("told", Source.TOOL)]
    row = {"ids": [], "source": [], "turn": [], "contexts": [[0, 0]]}
    for text, source in pieces:
        ids = encode(text)
        row["ids"] += ids
        row["source"] += [source] * len(ids)
        row["turn"] += [0] * len(ids)
    text = trajectory_text(row, TOKENIZER.backend_tokenizer)
    assert text.plain == "Who?«ask»told"
    assert "green" in str(text.get_style_at_offset(Console(), text.plain.index("ask")))
    assert "green" not in str(text.get_style_at_offset(Console(), text.plain.index("told")))
    row["contexts"] = [[0, 0], [7, 7]]
    parted = trajectory_text(row, TOKENIZER.backend_tokenizer).plain
    assert parted == "Who?«ask»\n[context 2, begins with 0 tokens copied]\ntold"


@pytest.mark.long
def test_each_token_is_a_row_with_its_numbers(tmp_path: Path) -> None:
    """Of sampled ones alone; values only where a critic gave some."""
    recipe = small_runs.write_recipe(tmp_path, "Letters", SHORT)
    folder = small_runs.train(recipe, RunFolder.new(tmp_path / "run")).folder
    rows, _ = choose_rows(folder.path, "1", None, 1)
    (table,) = token_tables(folder.path, rows)
    columns = {str(column.header): list(column.cells) for column in table.columns}
    assert "value" not in columns
    sampled = [source == "model" for source in columns["source"]]
    assert sum(sampled) == sum(source == Source.MODEL for source in rows[0]["source"]) > 0
    assert [bool(cell) for cell in columns["logprob"]] == sampled
    assert [bool(cell) for cell in columns["version"]] == sampled
    expected = [f"{value:+.4f}" for value in rows[0]["logprob"] if value == value]
    assert [cell for cell in columns["logprob"] if cell] == expected
    for name in ("entropy", "loss weight"):
        assert [bool(cell) for cell in columns[name]] == sampled
    ratios = [float(cell) for cell in columns["ratio"] if cell]
    assert ratios == pytest.approx([1.0] * sum(sampled), abs=1e-3)  # one update: still its own
