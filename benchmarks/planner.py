"""How far the planner's simulation is from runs that were measured: here, and published ones.

    python -m benchmarks.planner measured     # 3 calibrations, 6 runs on this machine, predicted
    python -m benchmarks.planner published    # verl, VerlTool, SkyRL-Agent: ratios, assumptions

`measured` trains the recipe `demo` for a few steps without slow tools, once for each schedule and
number of threads, fits the pace of the machine to each, and predicts runs with slow tools, in
lockstep, free and ahead. Results stand in docs/log/planner.md.
"""

import asyncio
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

from benchmarks.tables import table
from turnwise.cluster.planner.measured import fit_pace, read_run
from turnwise.cluster.planner.simulation import Pace, Schedule, simulate
from turnwise.cluster.planner.workload import PlannedTurn, Stated, ToolTimes, Workload

END = PlannedTurn(0, 1, 0)
"""The end of an episode, after its last call."""
STEPS = 6
FIRST = 2
"""Steps that are not measured."""
COMMON = (
    "sft.steps=40",
    "sft.demonstrations.count=800",
    f"train.steps={STEPS}",
    "train.tasks_per_step=8",
    "evaluation.tasks=0",
    "evaluation.base=false",
    "evaluation.sft=false",
)
FREE = ("engine.deterministic=false",)
AHEAD = (*FREE, "train.max_staleness=1", "algorithm.correction=truncated")
SETTINGS = {
    "lockstep, fast": ((), Schedule(lockstep=True)),
    "lockstep, 0.2 s": (("environment.latency.mean=0.2",), Schedule(lockstep=True)),
    "free, fast": (FREE, Schedule()),
    "free, 2 s": ((*FREE, "environment.latency.mean=2"), Schedule()),
    "ahead, 2 s": (
        (*AHEAD, "environment.latency.mean=2", "threads=1"),
        Schedule(1, colocated=False),
    ),
    "ahead, 2 s spread 0.75": (
        (*AHEAD, "environment.latency={mean=2,spread=0.75}", "threads=1"),
        Schedule(1, colocated=False),
    ),
}


def play(folder: Path, *overrides: str) -> Path:
    """Train in this process; the folder of the run."""
    from turnwise.config import load_recipe
    from turnwise.monitor.display import SilentDisplay
    from turnwise.storage.run_folder import RunFolder
    from turnwise.training.run import run
    from turnwise.training.start import prepared

    recipe = load_recipe("demo", [*COMMON, *overrides])
    run_folder = RunFolder.new(folder)
    with prepared(recipe, run_folder, SilentDisplay()) as context:
        asyncio.run(run(context))
    return folder


def measured_step(folder: Path) -> float:
    """Mean seconds of a step."""
    from turnwise.storage.run_folder import RunFolder

    lines = RunFolder.open(folder).lines("timing.jsonl")[FIRST:]
    return fmean(line["seconds/step"] for line in lines)


def measured() -> None:
    """Predict runs on this machine from others that had fast tools."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        paces = {
            name: calibrate(root / name, schedule, *overrides)
            for name, overrides, schedule in (
                ("lockstep", (), Schedule(lockstep=True)),
                ("free", FREE, Schedule()),
                ("ahead", (*FREE, "threads=1"), Schedule()),
            )
        }
        rows = []
        for name, (overrides, schedule) in SETTINGS.items():
            folder = play(root / f"run {name}".replace(",", ""), *overrides)
            found, pace = read_run(folder), paces[name.partition(",")[0]]
            guess = fmean(
                simulate(found.workload, pace, schedule, steps=4, warm=2, seed=seed).step
                for seed in range(8)
            )
            truth = measured_step(folder)
            rows.append(compared(name, truth, guess))
            print(rows[-1], flush=True)
    print(table(rows))


def compared(name: str, truth: float, guess: float) -> dict[str, str]:
    """A row of a table."""
    off = f"{guess / truth - 1:+.0%}"
    return {"setting": name, "found": f"{truth:.2f}", "predicted": f"{guess:.2f}", "off by": off}


def calibrate(folder: Path, schedule: Schedule, *overrides: str) -> Pace:
    """The pace of this machine, from a run with fast tools and another seed."""
    return fit_pace(read_run(play(folder, "seed=1", *overrides)), schedule)


def published() -> None:
    """Ratios of set-ups whose figures were published, from assumptions stated in the log."""
    rows = [*verl(), verltool(1, 1.69), verltool(3, 2.06), skyrl_agent()]
    print(table([compared(*row) for row in rows]))


def verl() -> list[tuple[str, float, float]]:
    """verl's fully asynchronous policy, 7B, H20: GPUs -> seconds of generation, old log-probability
    and update of the colocated step, of its whole step, and of the asynchronous update, as its
    documentation gives them (docs/advance/fully_async.md). Sampling speed and the tail of lengths
    are fitted to the colocated generation alone; the asynchronous step is predicted."""
    table = {
        32: (357.41, 107.71, 313.81, 790.10, 269.80, 790.10 / 294.77),
        64: (150.72, 70.26, 133.41, 365.28, 156.98, 365.28 / 189.26),
        128: (177.85, 53.92, 113.81, 356.30, 113.16, 356.30 / 150.63),
    }
    kinds = [
        (PlannedTurn(200, min(28_000, one[0].sampled), 0),)
        for one in Stated(200, 1, 3500, 0, 1, 28_000, 1.0).episodes(2000, seed=1)
    ]
    load = Workload(512 * 16 // 8, kinds)  # an eighth of the episodes on an eighth of the samplers
    rows = []
    for gpus, (generation, old, update, step, apart, ratio) in table.items():
        iteration = fitted(load, gpus / 8, generation)
        other = step - generation - old - update
        together = Pace(iteration, update=old + update + other, samplers=gpus / 8)
        ahead = Pace(iteration, update=apart, samplers=gpus / 16, weights=5.0)
        sync = simulate(load, together, Schedule()).step
        fast = simulate(load, ahead, Schedule(1, colocated=False), steps=6, warm=3).step
        rows.append((f"verl, {gpus} GPUs: asynchronous", ratio, sync / fast))
    return rows


def fitted(load: Workload, samplers: float, seconds: float) -> Callable[[float], float]:
    """Sequences on a sampler -> seconds of an iteration, of which a tenth of the slope is the
    constant at one sequence, such that a step's sampling takes so long."""

    def shape(sequences: float) -> float:
        return 1.0 + 0.02 * sequences

    whole = simulate(load, Pace(shape, update=0.0, samplers=samplers), Schedule()).step
    return lambda sequences: shape(sequences) * seconds / whole


def verltool(turns: int, ratio: float) -> tuple[str, float, float]:
    """VerlTool's asynchronous rollouts against batches that wait at the end of each turn, for which
    the tool of the slowest episode is waited for. Assumed: 1024 episodes, 400 tokens a turn with
    spread 0.6, 25 ms an iteration, tools of 4 s with spread 1, and rollouts alone compared."""
    episodes = [
        tuple(PlannedTurn(200, one[0].sampled, int(n < turns)) for n in range(turns + 1))
        for one in Stated(200, 1, 400, 0, 1, 4000, 0.6).episodes(1024)
    ]
    tools = ToolTimes(4.0, 1.0)
    pace = Pace(lambda _: 0.025, update=0.0)
    free = simulate(Workload(1024, episodes, tools), pace, Schedule()).step
    waiting = sum(
        simulate(
            Workload(1024, [(one[n], END) for one in episodes], tools),
            pace,
            Schedule(),
            seed=n,
        ).step
        for n in range(turns)
    )
    waiting += simulate(Workload(1024, [(one[-1],) for one in episodes]), pace, Schedule()).step
    name = f"VerlTool, {turns} turn{'s' * (turns > 1)}: trajectories alone"
    return name, ratio, waiting / free


def skyrl_agent() -> tuple[str, float, float]:
    """SkyRL-Agent's pipeline of stages against asynchronous batches, in which an episode's start
    and grade hold one of the places. Assumed: 512 episodes, 64 places, 30 turns of 250 tokens, 60 s
    to start and 45 s to grade (as calls of 2 s), tools of 2 s, 12 ms an iteration and 0.3 more for
    each sequence; in the pipeline as many episodes again start or are graded meanwhile."""
    runs = Stated(2000, 30, 250, 400, 50, 2000, 0.4).episodes(512)
    kinds = [(PlannedTurn(0, 1, 30), *one[:-1], one[-1]._replace(calls=22), END) for one in runs]
    load = Workload(512, kinds, ToolTimes(2.0, 0.8))
    pace = Pace(lambda sequences: 0.012 + 0.0003 * sequences, update=0.0)
    batch, pipeline = (simulate(load, pace, Schedule(under_way=n)).step for n in (64, 128))
    return "SkyRL-Agent: stages apart", 1.55, batch / pipeline


if __name__ == "__main__":
    {"measured": measured, "published": published}[sys.argv[1]]()
