"""Whole steps of RL over many turns, against TRL: `python benchmarks/whole_step.py`.

    python benchmarks/whole_step.py --json runs/whole_step.json
    python benchmarks/whole_step.py --turn-tokens 48 --rounds 9 --slow-rounds 0
    python benchmarks/whole_step.py --shape 135M --tasks 2 --rounds 3 --slow-rounds 0

Sampling with tool calls, rewards, advantages and the update, on the same weights, with the same
tokenizer, on the same prompts. `whole_step_task.py` says how both are made to do the same: the
benchmark ends with an error unless in each round all contenders have had the same prompts, the same
tool results, and turns of the same length, and so the same tokens in the loss. Contenders are
processes of their own, TRL's in an environment of its own (`peers.py`), and take turns. Each runs
as its own loop does it; see CONTENDERS for the settings.

The tool answers at once; then, for the faster form of each of the two, after half a second. A step
of TRL takes more than a minute and a half then, so there are fewer rounds (`--slow-rounds`).
"""

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from contenders import Contender, alternate, ratio
from machine import describe, rates
from peers import interpreter
from tables import table

from turnwise.config import ModelConfig
from turnwise.models.load import load_tokenizer
from turnwise.threads import configure_threads

CONTENDERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "turnwise": ("turnwise", ()),
    "turnwise, bfloat16": (
        "turnwise",
        ("learning.compute_dtype=bfloat16",),
    ),
    "turnwise, bfloat16 weights": ("turnwise", ("model.dtype=bfloat16",)),
    "turnwise, shared prefixes": ("turnwise", ("learning.share_prefixes=true",)),
    "TRL": ("trl", ()),
    "TRL, bfloat16": ("trl", ("bf16=true",)),
}
"""Whose worker, and how its settings differ from those in `whole_step_*.py`. TRL's bfloat16 is its
default, and for sampling too."""
DEFAULT = ("turnwise", "TRL")
OURS = "turnwise"


def main() -> None:
    """Measure, print a table for each delay, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=list(DEFAULT))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--slow-rounds", type=int, default=1, help="of tools that take time")
    parser.add_argument("--delay", type=float, default=0.5, help="of these tools, in seconds")
    parser.add_argument("--shape", default="tiny", choices=("tiny", "135M"))
    parser.add_argument("--tasks", type=int, default=8, choices=range(1, 9))
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--turn-tokens", type=int, default=24, choices=range(8, 65))
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--json", type=Path, help="a file for all figures")
    arguments = parser.parse_args()
    configure_threads(arguments.threads)  # before torch is loaded
    figures: dict[str, Any] = {"machine": describe(arguments.threads), "rates": rates()}
    print(table([{**figures["machine"], **figures["rates"]}]), flush=True)
    with tempfile.TemporaryDirectory() as place:
        from whole_step_task import SHAPES, write_task

        folder = Path(place)
        tokenizer = load_tokenizer(ModelConfig())
        sizes = arguments.tasks, arguments.group, arguments.turn_tokens
        write_task(folder, tokenizer, *sizes, SHAPES[arguments.shape])
        for name, rows in measure(folder, arguments):
            figures[name] = rows
            print(f"\n## {name}\n\n{table(rows)}", flush=True)
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


def measure(
    folder: Path, arguments: argparse.Namespace
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A table for tools that answer at once, and one for tools that do not."""
    wanted = work_wanted(arguments.tasks, arguments.group, arguments.turn_tokens)
    with contextlib.ExitStack() as stack:
        started = [
            stack.enter_context(start(name, folder, arguments.threads))
            for name in arguments.contenders
        ]
        for contender in started:
            contender.answer()
        alternate(started, 1, delay=0.0)  # to get warm
        answers = alternate(started, arguments.rounds, delay=0.0)
        check_work(answers, wanted)
        yield "instant tools", summary(answers)
        if arguments.slow_rounds:
            chosen = [contender for contender in started if contender.name in fastest(answers)]
            answers = alternate(chosen, arguments.slow_rounds, delay=arguments.delay)
            check_work(answers, wanted)
            yield "slow tools", summary(answers)


def work_wanted(tasks: int, group: int, turn_tokens: int) -> dict[str, int]:
    """How much each contender has to do in a round."""
    from whole_step_task import TURNS

    turns = tasks * group * TURNS
    return {"trajectories": tasks * group, "turns": turns, "sampled": turns * turn_tokens}


def start(
    name: str, folder: Path, threads: int, peers: Path | None = None, others: Sequence[str] = ()
) -> Contender:
    """A contender's process; its interpreter may be another than that of `peers.py`, and there may
    be other changes of its settings."""
    kind, changes = CONTENDERS[name]
    python = sys.executable if kind == OURS else peers or interpreter(kind)
    worker = Path(__file__).parent / f"whole_step_{kind}.py"
    command = [python, worker, folder, str(threads), *changes, *others]
    return Contender(name, command, {"OMP_NUM_THREADS": str(threads)})


def fastest(answers: Mapping[str, list[dict[str, Any]]]) -> list[str]:
    """Of each worker, the form that was fastest."""
    times = {name: middle([found["seconds"] for found in answers[name]]) for name in answers}
    kinds = {CONTENDERS[name][0] for name in answers}
    return [
        min((name for name in times if CONTENDERS[name][0] == kind), key=times.__getitem__)
        for kind in kinds
    ]


def check_work(answers: dict[str, list[dict[str, Any]]], wanted: dict[str, int]) -> None:
    """All must have done the same in every round, and as much as is wanted."""
    first = next(iter(answers.values()))[0]["work"]
    for name, rounds in answers.items():
        for found in (answer["work"] for answer in rounds):
            if found != first or found != {**found, **wanted}:
                raise SystemExit(f"{name} did {found}, which should be {first} with {wanted}")


def summary(answers: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Medians, and how many times as fast as each contender the fastest form of turnwise is, round
    by round."""
    best = [name for name in fastest(answers) if CONTENDERS[name][0] == OURS]
    ours = [found["seconds"] for found in answers[best[0]]] if best else []
    rows = []
    for name, rounds in answers.items():
        seconds = [found["seconds"] for found in rounds]
        rows.append(
            {
                "": name,
                "trajectories/s": round(rounds[0]["work"]["trajectories"] / middle(seconds), 2),
                "step, s": round(middle(seconds), 2),
                "processor, s": round(middle([found["processor"] for found in rounds]), 2),
                "sampling and tools, s": round(middle([found["rollout"] for found in rounds]), 2),
                **({"memory, GB": round(rounds[-1]["memory"], 1)} if "memory" in rounds[0] else {}),
                "turnwise is faster by": ratio(seconds, ours) if ours else "",
                "rounds": rounds,
            }
        )
    return rows


def middle(values: Sequence[float]) -> float:
    """The median."""
    return statistics.median(values)


if __name__ == "__main__":
    main()
