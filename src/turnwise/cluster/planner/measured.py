"""Episodes and paces of a run that there is: what was measured, in place of what is stated.

Not here: runs themselves (`storage`), and paces of GPUs by their data sheets (`speed.py`).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from turnwise.cluster.planner.simulation import Pace, Schedule, simulate
from turnwise.cluster.planner.workload import Episode, PlannedTurn, ToolTimes, Workload
from turnwise.errors import ConfigError
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.trajectory_rows import read_columns
from turnwise.tokens import Source

COLUMNS = ("source", "turn", "steps", "success", "turns")
"""Columns that are read of each trajectory."""
FIRST = 2
"""Steps that are not measured: they compile, read files, fill caches."""
HALVINGS = 12
"""Halvings of the interval in which `beside` is looked for."""


@dataclass(frozen=True)
class Measured:
    """The episodes of a run, and how long its steps took."""

    workload: Workload
    steps: Sequence[Sequence[Episode]]
    """The episodes of each step, in order."""
    rollout: Sequence[float]
    """Seconds that sampling each step took."""
    update: Sequence[float]
    """Seconds that learning from each step took."""


def read_run(path: Path, last: int = 40) -> Measured:
    """The last steps of a run. Raises ConfigError for a run without a step of RL."""
    folder = RunFolder.open(path)
    recipe = folder.recipe()
    files = sorted((folder.path / "trajectories").glob("step-*.parquet"))
    timing = folder.lines("timing.jsonl")
    count = min(len(files), len(timing))
    if not count:
        raise ConfigError(f"{path} has no step of RL to plan from: give a run that has some")
    begin = max(count - last, min(FIRST, count - 1))
    steps, successes = [], []
    for file in files[begin:count]:
        rows = read_columns(file, COLUMNS)
        steps.append([episode_of(row) for row in rows])
        successes += [bool(row["success"]) for row in rows if row["success"] is not None]
    latency = recipe.environment.latency
    workload = Workload(
        recipe.train.tasks_per_step * recipe.train.group_size,
        [episode for step in steps for episode in step],
        ToolTimes() if latency is None else ToolTimes(latency.mean, latency.spread),
        sum(successes) / len(successes) if successes else None,
    )
    times = timing[begin:count]
    return Measured(
        workload,
        steps,
        [line["seconds/rollout"] for line in times],
        [line["seconds/update"] for line in times],
    )


def episode_of(row: Mapping[str, Any]) -> Episode:
    """The turns of a saved trajectory."""
    source, turn = np.array(row["source"]), np.array(row["turn"])
    done = json.loads(row["steps"])
    model = source == Source.MODEL
    turns = []
    for number in range(len(done)):
        sampled = int((model & (turn == number)).sum())
        # What is shown carries the number of the turn that it answers, and the prompt has 0.
        shown = int((~model & (turn == number - 1)).sum()) if number else 0
        if number == 1:
            shown -= _prompt(model)
        read = shown if number else _prompt(model)
        calls = len(done[number]["results"]) if done[number] is not None else 0
        turns.append(PlannedTurn(read, max(1, sampled), calls))
    return tuple(turns) or (PlannedTurn(int((~model).sum()), 1, 0),)


def fit_pace(runs: Sequence[Measured], schedule: Schedule, workload: Workload) -> Pace:
    """The pace of the machine that runs were played on, for the steps of a workload.

    From runs whose tools took no time: an iteration of b sequences takes `fixed + each * b`
    seconds, and an update so much for each step and for each token, both fitted to their steps,
    which have to be of several sizes to tell the two apart. Raises ConfigError for a run with slow
    tools, whose waiting cannot be told from sampling.
    """
    sampling, learning = [], []
    for run in runs:
        if run.workload.tools.mean:
            raise ConfigError(
                "the pace of a machine is measured in a run without environment.latency"
            )
        for episodes in run.steps:
            load = replace(run.workload, episodes=len(episodes), kinds=episodes)
            alone = Pace(lambda _: 1.0, update=0.0)
            passes = simulate(load, alone, schedule, steps=1, warm=0).step
            sampling.append((passes, sum(turn.sampled for one in episodes for turn in one)))
            learning.append((1.0, load.tokens * len(episodes)))
    fixed, each = _fit(sampling, [second for run in runs for second in run.rollout])
    once, token = _fit(learning, [second for run in runs for second in run.update])
    update = once + token * workload.tokens * workload.episodes
    return Pace(lambda sequences: fixed + each * sequences, update=update)


def fit_beside(seconds: float, workload: Workload, pace: Pace, schedule: Schedule) -> Pace:
    """The pace with `beside` such that a step that samples ahead takes so many seconds, as one did
    that was measured."""
    low, high = 1.0, 16.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        guess = replace(pace, beside=middle)
        if mean_step(workload, guess, schedule) < seconds:
            low = middle
        else:
            high = middle
    return replace(pace, beside=low)


def mean_step(workload: Workload, pace: Pace, schedule: Schedule, seeds: int = 8) -> float:
    """Seconds of a step, mean over some draws of episodes and of tools' times."""
    return fmean(
        simulate(workload, pace, schedule, steps=4, warm=2, seed=seed).step for seed in range(seeds)
    )


def _prompt(model: np.ndarray) -> int:
    """Tokens before the first that the model sampled."""
    sampled = np.flatnonzero(model)
    return int(sampled[0]) if len(sampled) else len(model)


def _fit(columns: Sequence[tuple[float, float]], measured: Sequence[float]) -> tuple[float, float]:
    """Non-negative factors of two columns whose sum is off the seconds by the least in all.

    Errors count by their size and not by its square, so that one step which something else held up
    moves nothing. Such a sum is least where two of the steps are met exactly, or one by one factor.
    """
    parts, seconds = np.array(columns, np.float64), np.array(measured, np.float64)
    found = [row * factor for row in np.eye(2) for factor in seconds / (parts @ row)]
    pairs = map(list, combinations(range(len(parts)), 2))
    apart = [pair for pair in pairs if abs(np.linalg.det(parts[pair])) > 1e-9]
    found += [np.linalg.solve(parts[pair], seconds[pair]) for pair in apart]
    allowed = [factors for factors in found if (factors >= 0).all()]
    best = min(allowed, key=lambda factors: np.abs(parts @ factors - seconds).sum())
    return float(best[0]), float(best[1])
