"""How often the intervals of an evaluation hold the truth: a simulation.

    .venv/bin/python benchmarks/intervals.py            # a minute

Tasks have success probabilities of their own (a beta distribution; `ICC` is the correlation of two
episodes of a task), episodes are drawn from them, and the interval that a report would print is
asked for the true mean, or for the difference of two policies, of which the second one does not
have the share `better` of the first one's failures. An interval of 95% should hold it in 94 to 96%
of the draws. Needs no model. Writes intervals.md.
"""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from turnwise.evaluation.intervals import clustered, pass_hat, wilson
from turnwise.evaluation.paired import difference

DRAWS = 10_000


@dataclass(frozen=True)
class Case:
    """A kind of interval, and the world that it is asked about."""

    kind: str
    """`wilson`, `clustered`, `pass^k`, `paired`."""
    tasks: int
    episodes: int
    success: float
    icc: float = 0.0
    better: float = 0.0
    """The share of a task's failures that the second of two policies does not have."""

    def __str__(self) -> str:
        """A row of the table."""
        numbers = (self.tasks, self.episodes, self.success, self.icc, self.better)
        return " | ".join([self.kind, *(f"{number:g}" for number in numbers)])


CASES = (
    Case("wilson", 1000, 1, 0.5),
    Case("wilson", 1000, 1, 0.9),
    Case("clustered", 100, 4, 0.5, 0.5),
    Case("clustered", 100, 8, 0.2, 0.2),
    Case("clustered", 300, 2, 0.9, 0.5),
    Case("clustered", 300, 8, 0.05, 0.5),
    Case("clustered", 1000, 4, 0.5, 0.0),
    Case("clustered", 1000, 4, 0.9, 0.8),
    Case("pass^k", 300, 4, 0.5, 0.5),
    Case("pass^k", 1000, 8, 0.8, 0.2),
    Case("clustered", 50, 8, 0.05, 0.5),
    Case("clustered", 50, 4, 0.2, 0.0),
    Case("clustered", 20, 4, 0.5, 0.5),
    Case("clustered", 20, 8, 0.9, 0.5),
    Case("paired", 1000, 1, 0.5, 0.5, 0.1),
    Case("paired", 1000, 1, 0.9, 0.5, 0.3),
    Case("paired", 300, 1, 0.5, 0.8, 0.0),
    Case("paired", 300, 4, 0.5, 0.5, 0.1),
    Case("paired", 100, 8, 0.2, 0.2, 0.1),
    Case("paired", 50, 1, 0.5, 0.2, 0.3),
)
K = 2
"""The k of pass^k."""


def coverage(case: Case, draws: int, seed: int) -> float:
    """The share of the draws whose interval holds the truth."""
    generator = np.random.default_rng(seed)
    held = 0
    truth, interval = KINDS[case.kind](case)
    for _ in range(draws):
        low, high = interval(*successes(case, generator))
        held += low <= truth <= high
    return held / draws


def successes(case: Case, generator: Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """int[tasks]: successes of each task, of the policy and of a better one on the same tasks."""
    probabilities = np.full(case.tasks, case.success)
    if case.icc:
        size = 1 / case.icc - 1
        probabilities = generator.beta(case.success * size, (1 - case.success) * size, case.tasks)
    better = probabilities + case.better * (1 - probabilities)
    one, two = (generator.binomial(case.episodes, shares) for shares in (probabilities, better))
    return one, two


Ask = Callable[[NDArray[np.int64], NDArray[np.int64]], tuple[float, float]]


def _wilson(case: Case) -> tuple[float, Ask]:
    return case.success, lambda drawn, _: wilson(int(drawn.sum()), case.tasks)


def _clustered(case: Case) -> tuple[float, Ask]:
    counts = np.full(case.tasks, case.episodes)
    return case.success, lambda drawn, _: clustered(drawn, counts)


def _pass_hat(case: Case) -> tuple[float, Ask]:
    estimates = [pass_hat(case.episodes, c, K) or 0.0 for c in range(case.episodes + 1)]
    table, ones = np.array(estimates), np.ones(case.tasks)
    # E[p^2] of the beta distribution with this mean and correlation
    truth = case.success**2 + case.icc * case.success * (1 - case.success)
    return truth, lambda drawn, _: clustered(table[drawn], ones)


def _paired(case: Case) -> tuple[float, Ask]:
    counts, truth = np.full(case.tasks, case.episodes), case.better * (1 - case.success)
    return truth, lambda one, two: difference(two - one, counts).interval


KINDS: Mapping[str, Callable[[Case], tuple[float, Ask]]] = {
    "wilson": _wilson,
    "clustered": _clustered,
    "pass^k": _pass_hat,
    "paired": _paired,
}


def main() -> None:
    """Simulate all cases, print the table, and write it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--out", type=Path, default=Path("runs/intervals"))
    arguments = parser.parse_args()
    lines = [
        "| interval | tasks | episodes | success | ICC | better | held |",
        "|---|---|---|---|---|---|---|",
    ]
    for case in CASES:
        lines.append(f"| {case} | {coverage(case, arguments.draws, seed=0):.1%} |")
        print(lines[-1], flush=True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "intervals.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
