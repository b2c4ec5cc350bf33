"""An update on one process with N threads, and on N processes with one thread each.

    .venv/bin/python benchmarks/learners.py --json runs/learners.json
    .venv/bin/python benchmarks/learners.py --sizes 5M --rounds 3

A policy update (`grpo`) of 64 trajectories of 256 tokens, by random models of the sizes of
`engine.py`, the two in turns. The second also has the time in which the first process's whole model
gets the new weights.
"""

import argparse
import json
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

from machine import describe
from tables import table

from turnwise.threads import configure_threads

SIZES = ("1M", "5M", "20M")


def main() -> None:
    """Measure, print a table, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="a file for all figures")
    arguments = parser.parse_args()
    if arguments.processes < 2 or arguments.rounds < 1:
        parser.error("--processes must be at least 2, and --rounds at least 1")
    configure_threads(arguments.processes)  # before torch is loaded
    figures: dict[str, Any] = {"machine": describe(arguments.processes)}
    print(" · ".join(f"{name} {value}" for name, value in figures["machine"].items()), flush=True)
    figures["updates"] = [measured(size, arguments) for size in arguments.sizes]
    print(table(figures["updates"]))
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


def measured(size: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """The row of a size."""
    import torch
    from engine_measurements import alternate, parameters, played_groups, random_model, ratio

    from turnwise.config import check_recipe
    from turnwise.learning.credits import estimate
    from turnwise.learning.policy import PolicyLearner
    from turnwise.learning.signals.base import Signals
    from turnwise.models.load import load_model
    from turnwise.models.places import tiny_folder
    from turnwise_cluster.learners.learner import DistributedLearner
    from turnwise_cluster.learners.parts import algorithm_of
    from turnwise_cluster.learners.team import Team

    count, groups = arguments.processes, played_groups()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        random_model(size).save_pretrained(folder)
        for file in tiny_folder("tiny").glob("tokenizer*"):
            (folder / file.name).write_bytes(file.read_bytes())
        model = {"name": name, "device": "cpu"}
        environment = {"name": "search"}
        values = {"name": "learners", "environment": environment, "model": model}
        recipe = check_recipe(values, "learners")
        algorithm = algorithm_of(recipe)
        credits = estimate(groups, Signals(), algorithm)
        team = Team(count, torch.device("cpu"), 1, 600.0, folder / "logs")
        try:
            one = PolicyLearner(load_model(recipe.model)[0], None, recipe.learning, algorithm)
            several = DistributedLearner(team, recipe, load_model(recipe.model)[0], None)

            def alone() -> None:
                torch.set_num_threads(count)
                one.update(groups, credits)

            def together() -> None:
                torch.set_num_threads(1)
                several.update(groups, credits)

            seconds = alternate({"one": alone, "several": together}, arguments.rounds)
        finally:
            team.close()
    medians = {key: round(statistics.median(found), 2) for key, found in seconds.items()}
    return {
        "size": parameters(one.model),
        f"1 process, {count} threads, s": medians["one"],
        f"{count} processes, 1 thread, s": medians["several"],
        "times as fast": ratio(seconds["one"], seconds["several"]),
        "seconds": [seconds],
    }


if __name__ == "__main__":
    main()
