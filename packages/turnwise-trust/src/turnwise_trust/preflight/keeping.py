"""The folder of a preflight that goes on: the groups of the policy that were played, wave by wave.

All else is short, and done again: scripts, the oracle, what the policy did once more, an update.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from turnwise.config import Recipe, dump_recipe
from turnwise.errors import ConfigError, DataError
from turnwise.storage.run_folder import RunFolder, with_whole_paths
from turnwise.storage.trajectory_rows import groups_of, read_rows
from turnwise.types import Group, Task
from turnwise_trust.preflight.rehearsal import Wave

RECIPE, WAVES = "recipe.toml", "waves.jsonl"


def folder_of(path: Path, recipe: Recipe, weights: Path | None) -> RunFolder:
    """The folder of a recipe's preflight, new or begun. Raises ConfigError for that of another
    recipe or of other weights, DataError for a folder that holds something else."""
    text = f"# weights: {weights or 'untrained'}\n{dump_recipe(with_whole_paths(recipe))}"
    file = path / RECIPE
    if not file.is_file():
        folder = RunFolder.for_evaluation(path)
        (path / "trajectories").mkdir(exist_ok=True)
        folder.write_text(RECIPE, text)
        return folder
    if file.read_text(encoding="utf-8") != text:
        raise ConfigError(f"{path} keeps the preflight of another recipe, or of other weights")
    return RunFolder(path)


def keep(folder: RunFolder, wave: Wave) -> None:
    """Add a wave that was played."""
    number = len(folder.lines(WAVES))
    folder.write_trajectories(_name(number), wave.groups)
    folder.append(WAVES, {"step": number, "seconds": wave.seconds})


def kept(folder: RunFolder, tasks: Sequence[Task]) -> list[Wave]:
    """Read the waves that a folder has, of these tasks, with their secrets. Raises DataError where
    there is no such task any more."""
    known = {task.id: task for task in tasks}

    def whole(group: Group) -> Group:
        try:
            members = [replace(one, task=known[one.task.id]) for one in group.trajectories]
        except KeyError as error:
            raise DataError(f"{folder.path} has episodes of {error}, which is no task") from None
        return replace(group, trajectories=tuple(members))

    def read(line: Mapping[str, Any]) -> Wave:
        rows = read_rows(folder.trajectory_file(_name(line["step"])))
        return Wave([*map(whole, groups_of(rows))], line["seconds"])

    return [*map(read, folder.lines(WAVES))]


def _name(number: int) -> str:
    return f"wave-{number:06d}"
