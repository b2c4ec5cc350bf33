"""How far the planner's simulation is from runs that were measured: here, and published ones.

    python -m benchmarks.planner play runs/planner       # 6 calibrations and 6 runs of this machine
    python -m benchmarks.planner compare runs/planner    # the runs predicted from the calibrations
    python -m benchmarks.planner published               # verl, VerlTool, SkyRL-Agent: ratios

`play` trains the recipe `search` for a few steps from one cold start. Calibrations have fast tools
and another seed: in lockstep, free (each with a small step beside, to tell what an iteration costs
from what a sequence costs), on two ranks, and ahead, for what sampling and learning cost each other
on shared cores. `compare` reads the folders: medians of the seconds between two records of a step,
and the load of the machine in the minute before each run's end. Names may follow the folder: `play`
then plays those runs alone. Results stand in docs/log/planner.md.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.tables import table
from turnwise.cluster.planner.hardware import GPUS
from turnwise.cluster.planner.measured import (
    FIRST,
    Measured,
    fit_beside,
    fit_pace,
    mean_step,
    read_run,
)
from turnwise.cluster.planner.shapes import ModelShape
from turnwise.cluster.planner.simulation import Admission, Pace, Schedule, simulate
from turnwise.cluster.planner.speed import Efficiency, iteration_seconds
from turnwise.cluster.planner.workload import PlannedTurn, Stated, ToolTimes, Workload
from turnwise.monitor.display import SilentDisplay

END = PlannedTurn(0, 1, 0)
"""The end of an episode, after its last call."""
COLD = (
    "sft.steps=40",
    "sft.demonstrations.count=800",
    "train.steps=1",
    "train.tasks_per_step=2",
)
COMMON = (
    "sft.steps=0",
    "evaluation.tasks=0",
    "evaluation.base=false",
    "evaluation.sft=false",
    "train.tasks_per_step=8",
)
FREE = ("engine.deterministic=false",)
AHEAD = (*FREE, "train.max_staleness=1", "algorithm.correction=truncated")
TWO = ("cluster.learners=2",)
SHORT = ("environment.latency={mean=0.2,spread=0.5}",)
LONG = ("environment.latency={mean=2,spread=0.5}",)
SMALL = ("train.tasks_per_step=2",)
OTHER = ("seed=1", "train.steps=10")
CALIBRATIONS = {
    "lockstep": OTHER,
    "lockstep small": (*OTHER, *SMALL),
    "free": (*OTHER, *FREE),
    "free small": (*OTHER, *FREE, *SMALL),
    "ahead": (*OTHER, *AHEAD),
    "two": (*OTHER, *FREE, *TWO),
}


class Setting(NamedTuple):
    """A run to be predicted."""

    overrides: tuple[str, ...]
    ahead: bool = False
    ranks: int = 1
    lockstep: bool = False

    @property
    def schedule(self) -> Schedule:
        """Its order of work."""
        admission = Admission.LOCKSTEP if self.lockstep else Admission.TOGETHER
        return Schedule(int(self.ahead), not self.ahead, admission)


SETTINGS = {
    "sync, fast, 1 rank": Setting(("train.steps=10",), lockstep=True),
    "sync, 0.2 s, 1 rank": Setting(("train.steps=8", *SHORT), lockstep=True),
    "async, fast, 1 rank": Setting(("train.steps=12", *AHEAD), ahead=True),
    "async, 2 s, 1 rank": Setting(("train.steps=12", *AHEAD, *LONG), ahead=True),
    "sync, 2 s, 2 ranks": Setting(("train.steps=8", *FREE, *LONG, *TWO), ranks=2),
    "async, 2 s, 2 ranks": Setting(("train.steps=12", *AHEAD, *LONG, *TWO), ahead=True, ranks=2),
}


class Clock(SilentDisplay):
    """Notes when each step of RL was recorded."""

    def __init__(self) -> None:
        self.stamps: list[float] = []

    def phase(self, name: str, total: int) -> None:
        """See Display."""
        self.stamps = []

    def advance(self, text: str = "") -> None:
        """See Display."""
        self.stamps.append(time.monotonic())


def train(folder: Path, *overrides: str) -> None:
    """Train in this process, and note the clock and the load beside the run."""
    from turnwise.config import load_recipe
    from turnwise.storage.run_folder import RunFolder
    from turnwise.training.run import run
    from turnwise.training.start import prepared

    clock = Clock()
    with prepared(load_recipe("search", overrides), RunFolder.new(folder), clock) as context:
        asyncio.run(run(context))
    noted = {"stamps": clock.stamps, "load": os.getloadavg()[0]}
    (folder / "clock.json").write_text(json.dumps(noted))


def play(root: Path, names: list[str]) -> None:
    """Play the calibrations and the settings, or those with the names given."""
    from turnwise.storage.run_folder import RunFolder
    from turnwise.training.export import export_policy

    model = root / "model"
    if not model.exists():
        train(root / "cold start", *COMMON, *COLD)
        export_policy(RunFolder.open(root / "cold start"), model, merge=True)
    runs = CALIBRATIONS | {name: setting.overrides for name, setting in SETTINGS.items()}
    if len(names) != 1:  # each in a process of its own: threads and memory of one are not another's
        for name in names or runs:
            subprocess.run([*sys.orig_argv[:3], "play", root, name], check=True)
        return
    name = names[0]
    train(root / name, f"model.name={model}", *COMMON, *runs[name])
    print(f"{name}: {wall(root / name):.2f} s a step", flush=True)


def wall(folder: Path) -> float:
    """Seconds of a step between two records, without the first ones: the median of means of two,
    since steps that are sampled ahead may end in pairs."""
    stamps = json.loads((folder / "clock.json").read_text())["stamps"][FIRST - 1 :]
    return median((after - before) / 2 for before, after in zip(stamps, stamps[2:], strict=False))


def beside_steps(folder: Path, found: Measured) -> float:
    """Seconds of a step in which nothing is sampled or learned, median: records, new weights."""
    pairs = zip(found.rollout, found.update, strict=True)
    busy = [sampling + learning for sampling, learning in pairs]
    return max(0.0, wall(folder) - median(busy))


def compare(root: Path) -> None:
    """Predict the settings from the calibrations, and print how far that is off."""
    found = {name: read_run(root / name) for name in CALIBRATIONS}
    rows = []
    for name, setting in SETTINGS.items():
        folder = root / name
        run = read_run(folder)
        guess = mean_step(run.workload, predicted(root, found, setting, run), setting.schedule)
        load = json.loads((folder / "clock.json").read_text())["load"]
        row = compared(name, wall(folder), guess)
        rows.append(row | {"steps/h": f"{3600 / guess:.0f}", "load": f"{load:.1f}"})
    print(table(rows))


def predicted(root: Path, found: dict[str, Measured], setting: Setting, run: Measured) -> Pace:
    """The pace of a setting, from the calibrations."""
    kind = "lockstep" if setting.lockstep else "free"
    pair, once = [found[kind], found[f"{kind} small"]], replace(setting.schedule, staleness=0)
    alone = replace(once, colocated=True)

    def paced(workload: Workload, ranks: int) -> Pace:
        pace = fit_pace(pair, alone, workload)
        update = pace.update + beside_steps(root / kind, found[kind])
        if ranks == 2:
            two = found["two"]
            update = fit_pace([two], alone, workload).update + beside_steps(root / "two", two)
        return replace(pace, update=update)

    pace = paced(run.workload, setting.ranks)
    if not setting.ahead:
        return pace
    other = found["ahead"]
    ahead = Schedule(1, False, Admission.TOGETHER)
    shared = fit_beside(wall(root / "ahead"), other.workload, paced(other.workload, 1), ahead)
    return replace(pace, beside=shared.beside)


def compared(name: str, truth: float, guess: float) -> dict[str, str]:
    """A row of a table."""
    off = f"{guess / truth - 1:+.0%}"
    return {"setting": name, "found": f"{truth:.2f}", "predicted": f"{guess:.2f}", "off by": off}


def published() -> None:
    """Ratios of set-ups whose figures were published, from what is stated there and from
    assumptions stated in the log."""
    rows = [*verl(), *verltool()]
    print(table([compared(*row) for row in rows]))
    print(table(skyrl_agent()))


class Verl(NamedTuple):
    """Seconds of verl's documentation (docs/advance/fully_async.md): a colocated step and its parts
    (generation, old log-probabilities, update), an asynchronous update and its whole step."""

    learners: int
    samplers: int
    step: float
    generation: float
    old: float
    update: float
    apart: float
    published: float
    """Seconds of the asynchronous step."""
    longest: int = 28_000


VERL = {
    "verl, 7B, 32 GPUs": Verl(16, 16, 790.10, 357.41, 107.71, 269.80, 313.81, 294.77),
    "verl, 7B, 64 GPUs": Verl(32, 32, 365.28, 150.72, 70.26, 133.41, 156.98, 189.26),
    "verl, 7B, 128 GPUs": Verl(64, 64, 356.30, 177.85, 53.92, 113.81, 113.16, 150.63),
    # The asynchronous learner computes the reference's log-probabilities apart (50.05 s).
    "verl, 30B-A3B, 128 GPUs": Verl(
        32, 96, 497.89, 348.05, 28.73 + 20.86, 86.27, 50.05 + 206.63, 282.75, 8000
    ),
}
PARTS = 4
"""Mini-batches of verl's asynchronous step, each learned from as soon as it is there
(`require_batches`), with new weights after all of them (`trigger_parameter_sync_step`)."""
SHARE = 8
"""Of 512 prompts with 16 answers an eighth is simulated, on an eighth of the samplers."""
STEPS_AHEAD = 1.5
"""Steps under way at most: one, and `staleness_threshold` (0.5) of the next."""


def verl() -> list[tuple[str, float, float]]:
    """verl's fully asynchronous policy: how many times as fast as the colocated one. The sampling
    speed is fitted to the colocated generation; the asynchronous step is predicted from it and from
    the seconds of its update. Assumed: answers of 2,000 tokens, spread 1."""
    rows = []
    for name, known in VERL.items():
        drawn = Stated(200, 1, 2000, 0, 1, known.longest, 1.0).episodes(2000, seed=1)
        whole = Workload(512 * 16 // SHARE, drawn)
        part = replace(whole, episodes=whole.episodes // PARTS)
        gpus = known.learners + known.samplers
        iteration = fitted(whole, gpus / SHARE, known.generation)
        rest = known.step - known.generation
        sync = simulate(whole, Pace(iteration, rest, samplers=gpus / SHARE), Schedule()).step
        apart = Pace(iteration, known.apart / PARTS, samplers=known.samplers / SHARE)
        ahead = Schedule(round(STEPS_AHEAD * PARTS) - 1, colocated=False)
        fast = PARTS * simulate(part, apart, ahead, steps=24, warm=12).step
        rows.append((name, known.step / known.published, sync / fast))
    return rows


def fitted(load: Workload, samplers: float, seconds: float) -> Callable[[float], float]:
    """Sequences on a sampler -> seconds of an iteration, of which a fiftieth of the constant comes
    with each sequence, such that a step's sampling takes so long."""

    def shape(sequences: float) -> float:
        return 1.0 + 0.02 * sequences

    whole = simulate(load, Pace(shape, update=0.0, samplers=samplers), Schedule()).step
    return lambda sequences: shape(sequences) * seconds / whole


QWEN_1_5B = ModelShape("1.5b", 28, 1536, 8960, 12, 2, 128, 151936, tied=True)
VERLTOOL = {1: (127.0, 75.0), 3: (194.0, 94.0)}
"""Calls of an episode at most -> seconds of rollouts that wait for each other, and that do not, of
2,048 episodes on 4 H100 (VerlTool, assets/docs/asyncRL.md)."""
TOOL_PLACES = 256
"""Calls at once (`--workers_per_tool` of its recipe)."""


def verltool() -> list[tuple[str, float, float]]:
    """VerlTool's independent episodes against batches that wait at the end of each turn. Its tools'
    times and lengths are not stated: both are fitted to the seconds with one call, and the ratio
    with three is predicted. The sampling speed is the planner's own, of 1.5B on an H100. Assumed:
    turns of 2,048 tokens at most (its recipe's `max_action_length`), spread 0.6."""
    errors = {
        (tokens, seconds): max(
            abs(waiting(1, tokens, seconds) / VERLTOOL[1][0] - 1),
            abs(free(1, tokens, seconds) / VERLTOOL[1][1] - 1),
        )
        for tokens in (400, 800, 1200, 1600)
        for seconds in (2.0, 3.0, 4.0, 5.0, 6.0, 8.0)
    }
    tokens, seconds = min(errors, key=lambda pair: errors[pair])
    print(
        f"VerlTool with 1 call: {tokens} tokens a turn and tools of {seconds:g} s come within "
        f"{errors[tokens, seconds]:.0%} of both times"
    )
    ratio = {n: waiting(n, tokens, seconds) / free(n, tokens, seconds) for n in VERLTOOL}
    return [
        (f"VerlTool, {n} call{'s' * (n > 1)}", before / after, ratio[n])
        for n, (before, after) in VERLTOOL.items()
    ]


def verltool_turns(calls: int, tokens: int) -> list[list[int]]:
    """Tokens of each turn of the episodes on one of the four GPUs."""
    drawn = Stated(200, 1, tokens, 0, 1, 2048, 0.6).episodes(512 * (calls + 1), seed=3)
    lengths = [one[0].sampled for one in drawn]
    return [lengths[n :: calls + 1] for n in range(calls + 1)]


def verltool_pace(load: Workload) -> Pace:
    """One of the four GPUs, with its share of the tools' places."""
    iteration = iteration_seconds(QWEN_1_5B, GPUS["h100"], 1, load, Efficiency())
    return Pace(iteration, update=0.0, slots=512, tool_slots=TOOL_PLACES / 4)


def free(calls: int, tokens: int, seconds: float) -> float:
    """Seconds in which each episode goes on by itself."""
    turns = verltool_turns(calls, tokens)
    kinds = [
        tuple(PlannedTurn(200, n, int(i < calls)) for i, n in enumerate(one))
        for one in zip(*turns, strict=True)
    ]
    load = Workload(512, kinds, ToolTimes(seconds, 1.0))
    return simulate(load, verltool_pace(load), Schedule(), steps=1, warm=0).step


def waiting(calls: int, tokens: int, seconds: float) -> float:
    """Seconds in which all turns end before any tool is called, and all tools before a turn."""
    total = 0.0
    for number, lengths in enumerate(verltool_turns(calls, tokens)):
        load = Workload(512, [(PlannedTurn(200, n, 0),) for n in lengths])
        total += simulate(load, verltool_pace(load), Schedule(), steps=1, warm=0).step
        if number < calls:
            tools = Workload(512, [(PlannedTurn(0, 1, 1),)], ToolTimes(seconds, 1.0))
            pace = Pace(lambda _: 1e-6, update=0.0, tool_slots=TOOL_PLACES / 4)
            total += simulate(tools, pace, Schedule(), steps=1, warm=0).step
    return total


def skyrl_agent() -> list[dict[str, str]]:
    """SkyRL-Agent's pipeline of stages against asynchronous batches, in which an episode's start
    and grade hold one of the places. The times of its stages are not stated, so that its ratio
    (1.55) cannot be predicted: what is shown is which times give which ratio. Assumed: 512
    episodes, 64 places, 30 turns of 250 tokens, tools of 2 s, 12 ms an iteration and 0.3 more for
    each sequence."""
    runs = Stated(2000, 30, 250, 400, 50, 2000, 0.4).episodes(512)
    rows = []
    for stages in (20, 60, 100, 140):
        first, last = stages // 4, stages // 4  # calls of 2 s, half of them before the first turn
        kinds = [
            (PlannedTurn(0, 1, first), *one[:-1], one[-1]._replace(calls=last), END) for one in runs
        ]
        pace = Pace(lambda sequences: 0.012 + 0.0003 * sequences, update=0.0)
        together, apart = (
            simulate(Workload(512, which, ToolTimes(2.0, 0.8)), pace, Schedule(under_way=64)).step
            for which in (kinds, runs)
        )
        rows.append(
            {"SkyRL-Agent: start and grade, s": f"{stages}", "ratio": f"{together / apart:.2f}"}
        )
    return rows


if __name__ == "__main__":
    command, *rest = sys.argv[1:]
    if command == "play":
        play(Path(rest[0]), rest[1:])
    elif command == "compare":
        compare(Path(rest[0]))
    else:
        published()
