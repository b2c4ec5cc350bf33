"""The embedded engine and the training step on this machine: `python benchmarks/engine.py`.

    python benchmarks/engine.py --json engine.json --plot docs/log/sessions.png
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
    parser.add_argument("--plot", type=Path, help="a file for the plot of `sessions` and `memory`")
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
    if arguments.plot:
        plot(figures, arguments.plot)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


def plot(figures: dict[str, Any], path: Path) -> None:
    """Seconds and computed tokens of episodes by their turns, with and without sessions; memory of
    the log-probability pass by the vocabulary. Only of the parts that were measured."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = [
        ("sessions", "turns", ("sessions, s", "prefilling, s"), "seconds"),
        ("sessions", "turns", ("sessions, tokens", "prefilling, tokens"), "tokens computed"),
        ("memory", "vocabulary", ("pass, MB", "all logits once, MB"), "MB"),
    ]
    panels = [panel for panel in panels if panel[0] in figures]
    if not panels:
        return
    figure, every = pyplot.subplots(1, len(panels), figsize=(4 * len(panels), 3.2), squeeze=False)
    for axes, (part, x, lines, label) in zip(every[0], panels, strict=True):
        rows = figures[part]
        for line in lines:
            axes.plot([row[x] for row in rows], [row[line] for row in rows], "o-", label=line)
        axes.set(xlabel=x, ylabel=label, ylim=(0, None), xticks=[row[x] for row in rows])
        axes.legend(frameon=False, fontsize="small")
    figure.tight_layout()
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    main()
