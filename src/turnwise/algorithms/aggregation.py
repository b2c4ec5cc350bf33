"""The aggregation of token losses: a weight per sequence, the same for each of its tokens.

The loss of an optimizer batch is sum_i weight_i sum_t loss_{i,t} over trained tokens. Weights come
from totals over the whole batch, so neither micro-batches, padding nor the number of processes
change the gradient. Pure float64 numpy.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from turnwise.algorithms.parts import PLAIN_SUM, part
from turnwise.ranges import Range

Counts = NDArray[np.int64]
Weights = NDArray[np.float64]


@dataclass(frozen=True)
class Totals:
    """Denominators of one optimizer batch, over all its micro-batches and processes."""

    tokens: int
    sequences: int
    """Sequences with at least one trained token."""
    tasks: int
    """Tasks with at least one trained token."""
    task_tokens: Mapping[str, int]

    @classmethod
    def of(cls, counts: Counts, tasks: Sequence[str]) -> "Totals":
        """Count from the trained tokens per sequence, int64[n], and the task of each."""
        per_task: Counter[str] = Counter()
        for task, count in zip(tasks, counts.tolist(), strict=True):
            per_task[task] += count
        trained = sum(count > 0 for count in per_task.values())
        return cls(int(counts.sum()), int(np.count_nonzero(counts)), trained, per_task)


Aggregation = Callable[..., Weights]
"""(trained tokens int64[n], tasks, totals, **numbers) -> float64[n], 0 without tokens."""


@part("aggregation", "token_mean", "every token counts the same (arXiv 2503.14476)")
def token_mean(counts: Counts, tasks: Sequence[str], totals: Totals) -> Weights:
    """1 / (trained tokens of the batch): every token counts the same (DAPO, arXiv 2503.14476)."""
    return _where_trained(counts, np.full(len(counts), 1.0 / max(totals.tokens, 1)))


@part(
    "aggregation", "sequence_mean_token_mean", "every trajectory counts the same (arXiv 2402.03300)"
)
def sequence_mean_token_mean(counts: Counts, tasks: Sequence[str], totals: Totals) -> Weights:
    """1 / (sequences x own length): every trajectory counts the same (GRPO, GSPO)."""
    return _where_trained(counts, 1.0 / (max(totals.sequences, 1) * np.maximum(counts, 1)))


@part("aggregation", PLAIN_SUM, "the log-probability of the whole trajectory")
def sequence_mean_token_sum(counts: Counts, tasks: Sequence[str], totals: Totals) -> Weights:
    """1 / sequences: the log-probability of the whole trajectory (REINFORCE, RLOO)."""
    return _where_trained(counts, np.full(len(counts), 1.0 / max(totals.sequences, 1)))


@part("aggregation", "constant", "every token counts the same, on a fixed scale (arXiv 2503.20783)")
def constant(
    counts: Counts,
    tasks: Sequence[str],
    totals: Totals,
    length: Annotated[float, Range(1)] = 1024.0,
) -> Weights:
    """1 / (sequences x length), `length` the most tokens to sample (Dr.GRPO, arXiv 2503.20783)."""
    return sequence_mean_token_sum(counts, tasks, totals) / length


@part("aggregation", "prompt_mean", "every task counts the same, and every token within it")
def prompt_mean(counts: Counts, tasks: Sequence[str], totals: Totals) -> Weights:
    """1 / (tasks x trained tokens of the task): every task counts the same."""
    own = np.array([max(totals.task_tokens[task], 1) for task in tasks], np.float64)
    return _where_trained(counts, 1.0 / (max(totals.tasks, 1) * own))


def _where_trained(counts: Counts, weights: Weights) -> Weights:
    return np.where(counts > 0, weights, 0.0)
