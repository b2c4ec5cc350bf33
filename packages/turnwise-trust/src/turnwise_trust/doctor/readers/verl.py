"""Rollouts that verl 0.8 writes (`trainer.rollout_data_dir`, `trainer.validation_data_dir`).

A folder has a file `STEP.jsonl` for each step, a line for each response: input, output, gts,
score, step, and what the reward function reports beside the score (`trainer/ppo/ray_trainer.py`,
`_dump_generations`). Its numbers of steps are in a file of the logger: `history.py`.
"""

from collections.abc import Iterator
from pathlib import Path

from turnwise_trust.doctor.log import Event, Remark, Rollout
from turnwise_trust.doctor.readers.lines import Row, number, numbers, objects, said, whole

OTHERS = ("input", "output", "gts", "score", "step", "reward", "request_id")
"""Fields that are no parts of a reward."""


def step_files(folder: Path) -> list[Path]:
    """The files of a folder's steps, in order."""
    named = [file for file in folder.glob("*.jsonl") if file.stem.isdecimal()]
    return sorted(named, key=lambda file: int(file.stem))


def read_folder(folder: Path) -> Iterator[Event]:
    """All steps of a folder."""
    for file in step_files(folder):
        yield from read_rollouts(file)


def read_rollouts(file: Path) -> Iterator[Event]:
    """Responses of a file; a group is a step's responses to one input."""
    for row in objects(file):
        yield row if isinstance(row, Remark) else _rollout(row)


def _rollout(row: Row) -> Event:
    return Rollout(
        step=whole(row.get("step")),
        group=said(row.get("input")),
        reward=number(row.get("score")),
        parts=numbers({name: value for name, value in row.items() if name not in OTHERS}),
        text=said(row.get("output")),
    )
