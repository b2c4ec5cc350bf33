"""The embedded engine and the training step on this machine: `python benchmarks/engine.py`.

    python benchmarks/engine.py --json engine.json --plot docs/sessions.png
    python benchmarks/engine.py --parts sessions --sizes 1M --rounds 3

Four parts, each side by side in one run, its contenders taking turns; figures are medians, ratios
are those of the rounds with their lowest and highest. `sessions`: episodes of many turns with a
session, against prefilling the history every turn. `training`: a supervised step, against the rate
of one large matrix product. `sharing`: a policy update whose groups share their prompts, with trees
and without. `memory`: the log-probability pass for growing vocabularies. Weights are random, so
nothing is loaded. Sampling alone is `sampling.py`'s, against transformers and vLLM.
"""

import argparse
import json
import os
from pathlib import Path
from typing import Any

from machine import describe
from tables import table

from turnwise.threads import configure_threads

PARTS = ("sessions", "training", "sharing", "memory")
SIZES = ("1M", "5M", "20M")


def main() -> None:
    """Measure what was asked for, print its tables, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--turns", nargs="+", type=int, default=[4, 16, 64])
    parser.add_argument("--json", type=Path, help="a file for all figures")
    parser.add_argument("--plot", type=Path, help="a file for the plot of `sessions`")
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error("--rounds must be at least 1")
    configure_threads(arguments.threads)  # before torch is loaded
    import engine_measurements as measurements

    figures: dict[str, Any] = {"machine": describe(arguments.threads)}
    print(" · ".join(f"{name} {value}" for name, value in figures["machine"].items()), flush=True)
    for part in arguments.parts:
        figures[part] = getattr(measurements, part)(arguments)
        print(f"\n## {part}\n\n{table(figures[part])}", flush=True)
    if arguments.plot and "sessions" in figures:
        plot(figures["sessions"], arguments.plot)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Seconds of an episode by its turns, with and without sessions."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(5, 3.2))
    for name in ("sessions", "prefilling"):
        axes.plot([row["turns"] for row in rows], [row[f"{name}, s"] for row in rows], "o-")
        axes.annotate(name, (rows[-1]["turns"], rows[-1][f"{name}, s"]), ha="right", va="bottom")
    axes.set(xlabel="turns", ylabel="seconds")
    figure.tight_layout()
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    main()
