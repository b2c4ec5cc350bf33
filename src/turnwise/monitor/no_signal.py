"""The reason why a step taught nothing, in one sentence made from its metrics.

A sentence is a cause, and after a colon what to do about it.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

HARDLY = 0.01
"""Share of weights: an update that changes fewer has hardly happened."""
LOWERED = 0.999
"""Share of the recipe's learning rate: below it, the rate is not yet or no longer the recipe's."""
MOSTLY = 0.5
"""Share of the episodes from which on their answers count as cut away."""

UNGRADED = "no episode has a grade"
MOSTLY_UNGRADED = (
    "no group has two episodes with a grade to compare, since others have none: see why "
    "(turnwise show RUN --outcome infrastructure_step, or grader_error)"
)
ALONE = "no group has two episodes with a grade to compare, and no reward teaches by itself"
ALL_EQUAL = (
    "in each group all rewards are equal, so no episode is better than another: choose tasks that "
    "are neither always nor never solved, a larger group_size, or a higher temperature"
)
ALL_SOLVED = (
    "every episode is a success, so none is better than another: choose harder tasks, or a "
    'curriculum that leaves solved ones out (curriculum.kind = "by_success")'
)
ALL_FAILED = (
    "no episode is a success, so none is better than another: choose easier tasks, a cold start on "
    "demonstrations, a larger group_size, or a reward with parts"
)
ALL_MALFORMED = (
    "no turn can be read as an action, so no episode is better than another: begin with a cold "
    "start on demonstrations, or choose a scaffold whose syntax the model knows"
)
ANSWERS_CUT = (
    "a right answer stood in what tools returned, and was cut away before the model saw it: raise "
    "the environment's limit on results (turnwise environments NAME)"
)
NO_ROOM = (
    "in every episode what a tool returned left no room in rollout.max_tokens for an answer: raise "
    "it, shorten what tools return, or let rollout.context make room"
)
ALL_TRUNCATED = (
    "every episode is cut off by a budget before it can answer: raise rollout.max_turns, "
    "max_turn_tokens, max_tokens, max_tool_calls or max_seconds (outcome/truncated_… says which)"
)
LEFT_OUT = "the trajectory filter leaves every graded episode out"
UNTRAINED = "no token is trained: filters leave out every group that differs, or nothing is sampled"
CLIPPED = "the objective has clipped every trained token, so none has a gradient"
REJECTED = "the off-policy correction rejects every trained token"
TOO_OLD = (
    "the off-policy correction rejects every trained token, and older weights sampled them: lower "
    "train.max_staleness"
)
HELD_BACK = "the token filter takes every trained token out"
NO_GRADIENT = (
    "the gradient is exactly 0: no weight that is trained (with LoRA, no adapter) has a part in "
    "the loss"
)
UNMOVED = "an update changes hardly any weight: the learning rate is too low for float32"
LOW_RATE = (
    "an update changes hardly any weight, since warm-up or a reaction keeps the learning rate "
    "below the recipe's: shorten learning.warmup_steps, or see what the run has reacted to"
)
ROUNDED_AWAY = (
    "the weights that sample are what they were, since an update is lost when it is rounded to "
    "model.dtype: raise learning.learning_rate, or train in float32"
)
UNDELIVERED = (
    "the engine samples with other weights than the learner's, so it is not the policy that "
    "learns: new weights, or the adapter, have not reached it"
)
BEYOND_BOUND = (
    "the engine sampled with weights older than train.max_staleness allows: new ones have not "
    "reached it"
)

WHOLE = {
    "policy/clip_fraction": CLIPPED,
    "correction/rejected_fraction": REJECTED,
    "policy/filtered_fraction": HELD_BACK,
}
"""Shares of the trained tokens, and what it means when they are 1."""


@dataclass(frozen=True)
class Expected:
    """The numbers of a recipe that a step's metrics are held against."""

    learning_rate: float
    """Rate of the policy's updates, once warm."""
    logprob_gap: float = math.inf
    """The largest `policy/logprob_gap` of weights that have arrived, nats; infinite: any."""


def reason(metrics: Mapping[str, float], expected: Expected) -> str | None:
    """Why an RL step has not taught the policy anything; None where it has, or where the policy was
    not to be taught (a critic alone was), or where updates were skipped."""
    updates = metrics.get("policy/updates")
    if updates is None or metrics.get("policy/skipped_updates"):
        return None
    if metrics.get("policy/logprob_gap", 0.0) > expected.logprob_gap:
        return UNDELIVERED
    return _unmoved(metrics, expected) if updates else _untaught(metrics)


def offline_reason(metrics: Mapping[str, float], learner: str) -> str | None:
    """Why a step of `sft` or `preferences` taught nothing; None where it did, or was skipped."""
    if metrics[f"{learner}/skipped_updates"]:
        return None
    if metrics[f"{learner}/gradient_norm"] == 0:
        return NO_GRADIENT
    return UNMOVED if metrics[f"{learner}/weights_changed"] < HARDLY else None


def summary(steps: int, lines: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Count the RL steps of a run that taught nothing, from the lines of `no_signal.jsonl`:
    `reasons` has how many did so for which reason, most first, and `when` which ones. Example of a
    `when`: "1-7, 9"."""
    found: dict[str, list[int]] = {}
    for line in lines:
        found.setdefault(line["reason"], []).append(line["step"])
    ordered = sorted(found.items(), key=lambda item: -len(item[1]))
    return {
        "steps": steps,
        "without": sum(map(len, found.values())),
        "reasons": {why: len(which) for why, which in ordered},
        "when": {why: _ranges(which) for why, which in ordered},
    }


def _untaught(metrics: Mapping[str, float]) -> str:
    """Why no update was made."""
    ungraded = metrics["rollout/ungraded"]
    if ungraded == metrics["rollout/episodes"]:
        return UNGRADED
    # Absent where no group has two graded episodes (`rollout_metrics`).
    if "groups/all_equal" not in metrics:
        return MOSTLY_UNGRADED if ungraded else ALONE
    if metrics["groups/all_equal"] == 1:
        return _all_equal(metrics)
    return LEFT_OUT if metrics.get("batch/left_out") == 1 else UNTRAINED


def _all_equal(metrics: Mapping[str, float]) -> str:
    """Why no episode is better than another one of its group."""
    success = metrics["rollout/success"]
    if success == 1:
        return ALL_SOLVED
    if success:
        return ALL_EQUAL
    if metrics.get("rollout/malformed") == 1:
        return ALL_MALFORMED
    if metrics.get("rollout/answer_cut", 0.0) >= MOSTLY:
        return ANSWERS_CUT
    if metrics.get("rollout/no_room", 0.0) == 1:
        return NO_ROOM
    truncated = sum(n for name, n in metrics.items() if name.startswith("outcome/truncated_"))
    graded = metrics["rollout/episodes"] - metrics["rollout/ungraded"]
    return ALL_TRUNCATED if truncated == graded else ALL_FAILED


def _unmoved(metrics: Mapping[str, float], expected: Expected) -> str | None:
    """Why updates that were made have come to nothing."""
    if metrics["policy/gradient_norm"] == 0:
        whole = (why for name, why in WHOLE.items() if metrics.get(name, 0.0) >= 1)
        # A critic that expects just what all episodes got leaves updates without an advantage.
        equal = metrics.get("groups/all_equal") == 1
        why = next(whole, _all_equal(metrics) if equal else NO_GRADIENT)
        return TOO_OLD if why == REJECTED and metrics.get("staleness/max", 0.0) > 0 else why
    if metrics["policy/weights_changed"] < HARDLY:
        low = metrics["policy/learning_rate"] < LOWERED * expected.learning_rate
        return LOW_RATE if low else UNMOVED
    return ROUNDED_AWAY if metrics.get("policy/weights_changed_rounded") == 0 else None


def _ranges(steps: Iterable[int]) -> str:
    """Steps in words: "1-7, 9"."""
    runs: list[list[int]] = []
    for step in sorted(steps):
        if runs and step == runs[-1][1] + 1:
            runs[-1][1] = step
        else:
            runs.append([step, step])
    return ", ".join(f"{low}" if low == high else f"{low}-{high}" for low, high in runs)
