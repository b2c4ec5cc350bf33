"""The table of docs/how-to/plan.md: one model on 1,024 GPUs, with ever more episodes.

    python -m scripts.plan_table

prints it; with --write the page gets it. A test compares the two.
"""

import sys
from dataclasses import replace
from pathlib import Path

from turnwise.cluster.planner.hardware import find_gpu
from turnwise.cluster.planner.memory import Training
from turnwise.cluster.planner.plan import Ask, best_plans
from turnwise.cluster.planner.shapes import ModelShape
from turnwise.cluster.planner.workload import Stated, ToolTimes, Workload

PAGE = Path(__file__).parent.parent / "docs" / "how-to" / "plan.md"
LARGE = ModelShape("70B", 80, 8192, 28672, 64, 8, 128, 128256)
SMALL = ModelShape("1.7B", 28, 2048, 6144, 16, 8, 128, 151936, tied=True)
LONG = Workload(
    1024, Stated(2000, 20, 400, 500, 50, 4000).episodes(500), ToolTimes(5.0, 1.0), success=0.4
)
SHORT = Workload(
    65_536, Stated(200, 2, 50, 100, 4, 200).episodes(500), ToolTimes(0.5, 1.0), success=0.4
)
ASK = Ask(
    LARGE,
    LONG,
    Training(recompute=True, micro_batch=16_384),
    find_gpu("h100"),
    1024,
    most_staleness=2,
    gpu_hour=2.5,
)
ROWS = {
    "70B, 1,024 long episodes": ASK,
    "4,096": replace(ASK, workload=replace(LONG, episodes=4096)),
    "16,384": replace(ASK, workload=replace(LONG, episodes=16_384)),
    "16,384, 500 calls at once": replace(
        ASK, workload=replace(LONG, episodes=16_384), tool_slots=500
    ),
    "1.7B, 65,536 short episodes": replace(ASK, shape=SMALL, workload=SHORT),
}
END = "\n\n"
"""What follows the table's last line."""
COLUMNS = (
    "a step",
    "learn, sample",
    "seconds",
    "under way",
    "sampling, learning",
    "weights, driver, store",
    "tool calls",
    "bound by",
    "$ a step, a success",
)


def row(name: str, ask: Ask) -> str:
    """One plan, as a line of the table."""
    best = best_plans(ask, 1)[0]
    busy, timing, division = best.busy, best.timing, best.division
    cells = (
        name,
        f"{division.learners}, {division.samplers}",
        f"{timing.step:.0f}",
        f"{timing.under_way:,}",
        f"{busy['sampling']:.0%}, {busy['learning']:.0%}",
        f"{busy['weights']:.1%}, {busy['driver']:.1%}, {busy['object store']:.1%}",
        f"{best.calls:,.0f}",
        best.bound,
        f"{best.step_cost:.0f}, {best.success_cost:.2g}",
    )
    return f"| {' | '.join(cells)} |"


def head() -> str:
    """The first two lines of the table."""
    return f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}"


def main() -> None:
    """Print the table, or write it into the page."""
    table = "\n".join((head(), *(row(name, ask) for name, ask in ROWS.items())))
    if "--write" not in sys.argv:
        print(table)
        return
    before, _, after = PAGE.read_text(encoding="utf-8").partition(head())
    PAGE.write_text(f"{before}{table}\n\n{after.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
