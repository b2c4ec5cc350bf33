"""The reason why a step taught nothing, in one sentence made from its metrics.

Not here: what is measured (`metrics.py`, the learners), and updates that are skipped because a
number is not finite, which the run logs by itself before it stops.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

HARDLY = 0.01
"""Share of weights: an update that changes fewer has hardly happened."""

UNGRADED = "no episode has a grade"
ALONE = "no group has two episodes with a grade to compare, and no reward teaches by itself"
ALL_EQUAL = (
    "in each group all rewards are equal, so no episode is better than another: choose tasks that "
    "are neither always nor never solved, a larger group_size, or a higher temperature"
)
LEFT_OUT = "the trajectory filter leaves every graded episode out"
UNTRAINED = "no token is trained: filters leave out every group that differs, or nothing is sampled"
CLIPPED = "the objective has clipped every trained token, so none has a gradient"
REJECTED = "the off-policy correction rejects every trained token"
HELD_BACK = "the token filter takes every trained token out"
NO_GRADIENT = (
    "the gradient is exactly 0: no weight that is trained (with LoRA, no adapter) has a part in "
    "the loss"
)
UNMOVED = "an update changes hardly any weight: the learning rate is too low for float32"

WHOLE = {
    "policy/clip_fraction": CLIPPED,
    "correction/rejected_fraction": REJECTED,
    "policy/filtered_fraction": HELD_BACK,
}
"""Shares of the trained tokens, and what it means when they are 1."""


def reason(metrics: Mapping[str, float]) -> str | None:
    """Why an RL step has not taught the policy anything; None where it has, or where the policy was
    not to be taught (a critic alone was), or where updates were skipped."""
    updates = metrics.get("policy/updates")
    if updates is None or metrics.get("policy/skipped_updates"):
        return None
    if updates:
        return _unmoved(metrics)
    if metrics["rollout/ungraded"] == metrics["rollout/episodes"]:
        return UNGRADED
    if "groups/all_equal" not in metrics:
        return ALONE
    if metrics["groups/all_equal"] == 1:
        return ALL_EQUAL
    return LEFT_OUT if metrics.get("batch/left_out") == 1 else UNTRAINED


def offline_reason(metrics: Mapping[str, float], learner: str) -> str | None:
    """Why a step of `sft` or `preferences` has not taught the policy anything; None where it has,
    or was skipped."""
    if metrics[f"{learner}/skipped_updates"]:
        return None
    if metrics[f"{learner}/gradient_norm"] == 0:
        return NO_GRADIENT
    return UNMOVED if metrics[f"{learner}/weights_changed"] < HARDLY else None


def summary(lines: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Count the RL steps of a run, those that taught nothing, and how many did so for which
    reason."""
    found = [reason(line) for line in lines]
    counts = Counter(why for why in found if why is not None)
    return {"steps": len(lines), "without": counts.total(), "reasons": dict(counts.most_common())}


def _unmoved(metrics: Mapping[str, float]) -> str | None:
    """Why updates that were made have come to nothing."""
    if metrics["policy/gradient_norm"] == 0:
        whole = (why for name, why in WHOLE.items() if metrics.get(name, 0.0) >= 1)
        return next(whole, NO_GRADIENT)
    return UNMOVED if metrics["policy/weights_changed"] < HARDLY else None
