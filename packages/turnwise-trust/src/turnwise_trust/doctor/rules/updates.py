"""Whether updates move the policy, by how much, and whether it is the one that samples."""

from collections.abc import Iterable

import numpy as np

from turnwise_trust.doctor.log import Log
from turnwise_trust.doctor.rules.base import Cause, Rule, cause, fallen, learns
from turnwise_trust.doctor.trends import Values, change

MOST = 0.5
NEARLY_ALL = 0.95
HARDLY = 0.01
"""Share of weights that an update changes, as in turnwise's own warning."""
STANDS_STILL = 1e-4
"""Nats from the reference model: below it a policy is what it was."""
LOWEST_RATE = 1e-7
"""Learning rate: below it float32 rounds most updates of weights near 1 away, as Adam's are about
the rate."""
GAP = 0.1
"""Nats of a sampled token, in the mean: it is 10% likelier to one than to the other. Engines and
learners in bfloat16 differ by 0.005 to 0.03."""
MISMATCH_KL = 0.05
"""Nats: five times what prime-rl's own tests allow."""
FAR = 0.3
"""Distance of the mean importance ratio from 1, which it is where both are the same policy."""
OLD = 4.0
"""Updates, in the mean, between a token's weights and the update that it is in."""
LARGE_UPDATE = 0.1
"""Nats between the policies before and after a step's updates; usual early stopping: 0.01 to 0.05.
"""
RUNAWAY = 1.0
"""Nats a token from the reference."""
SPIKE = 20.0
"""Multiple of the median gradient norm."""
FINITE = ("policy/gradient_norm", "policy/loss", "reward/mean", "policy/entropy")


def not_finite(log: Log) -> Iterable[Cause]:
    """Gradients, losses and rewards that are NaN or infinite."""
    for name in FINITE:
        if name in log.broken:
            count, first = log.broken[name]
            steps = count + len(log.values(name))
            weight = 1.0 if count > steps / 3 else 0.7
            note = f"{name} is NaN or infinite in {count} of {steps} steps, first in step {first}."
            yield cause(log, "numbers that are not finite", weight, note, float(count), 0.0)
            return


def no_rate(log: Log) -> Iterable[Cause]:
    """A learning rate of 0."""
    rates = log.values("policy/learning_rate")
    zero = float((rates == 0).mean()) if len(rates) else 0.0
    if zero > MOST and len(rates) > 1:
        note = f"The learning rate is 0 in {int((rates == 0).sum())} of {len(rates)} steps."
        yield cause(log, "learning rate", 1.0, note, zero, why="learning rate 0")


def no_gradient(log: Log) -> Iterable[Cause]:
    """A gradient of 0 although groups differ."""
    norms = log.values("policy/gradient_norm")
    zero = float((norms == 0).mean()) if len(norms) else 0.0
    equal = [log.mean(name) for name in ("groups/all_equal", "batch/all_equal") if name in log]
    if zero > MOST and max(equal, default=0.0) < NEARLY_ALL and not learns(log):
        note = f"The gradient is exactly 0 in {zero:.0%} of the steps"
        note += ", though rewards differ." if equal else "; whether rewards differ is not logged."
        yield cause(log, "gradient", zero, note, zero, why="gradient 0")


def stopped_tokens(log: Log) -> Iterable[Cause]:
    """Tokens that clipping, a filter or a correction takes out of the loss."""
    for name, what in STOPPED.items():
        values = log.values(name)
        if len(values) and values.mean() > MOST and not learns(log):
            share = float(values.mean())
            note = f"{share:.0%} of the trained tokens {what}, so they have no gradient."
            yield cause(log, "stopped tokens", share, note, share, MOST, why=name)


STOPPED = {
    "policy/clip_fraction": "are clipped by the objective",
    "correction/rejected_fraction": "are rejected by the off-policy correction",
    "policy/filtered_fraction": "are taken out by a filter",
}


STILL = ("policy/weights_changed", "policy/kl_reference", "policy/learning_rate")


def standing_still(log: Log) -> Iterable[Cause]:
    """A policy that updates do not move."""
    if learns(log) or not log.steps:
        return
    changed, reference = log.values("policy/weights_changed"), log.values("policy/kl_reference")
    rates = log.values("policy/learning_rate")
    if len(changed) and changed.mean() < HARDLY:
        note = f"An update changes {changed.mean():.2%} of the weights."
    elif len(reference) > 9 and 0 < np.abs(reference).max() < STANDS_STILL:
        note = (
            f"After {len(reference)} steps the policy is {reference[-1]:.1g} nats from where it "
            "began: it has not moved."
        )
    elif len(rates) and 0 < rates.max() < LOWEST_RATE and _flat(log, "policy/entropy"):
        note = f"The learning rate is {rates.max():.1g} at most, and the entropy does not change."
    else:
        return
    rate = float(rates.max()) if len(rates) else None
    if rate != 0:
        yield cause(log, "learning rate", 0.95, note, rate, why="learning rate too low")


def _flat(log: Log, name: str) -> bool:
    found = change(log.values(name))
    return found is not None and abs(found.difference) < 0.02 * abs(found.before)


def mismatch(log: Log) -> Iterable[Cause]:
    """An engine and a learner that do not have the same policy."""
    gap, kl = log.mean("policy/logprob_gap"), log.mean("policy/mismatch_kl")
    ratio = log.mean("correction/weight")
    weight = 0.3 if learns(log) else 0.75
    if gap > GAP:
        note = f"Log-probabilities of learner and engine differ by {gap:.3g} nats a token."
        yield cause(log, "engine and learner", weight, note, gap, GAP)
    elif kl > MISMATCH_KL:
        note = f"The learner's policy is {kl:.3g} nats from the one that sampled."
        yield cause(log, "engine and learner", weight, note, kl, MISMATCH_KL)
    elif abs(ratio - 1) > FAR and "correction/rejected_fraction" not in log:
        note = f"The mean importance ratio is {ratio:.3g}, and would be 1 of the same policy."
        yield cause(log, "engine and learner", weight, note, ratio, 1 + FAR)


def stale(log: Log) -> Iterable[Cause]:
    """Tokens that weights of long ago have sampled."""
    mean = log.mean("staleness/mean")
    if mean > OLD and not learns(log):
        note = f"Tokens are {mean:.1f} updates old in the mean when they are trained on."
        yield cause(log, "staleness", 0.6, note, mean, OLD)


def large_updates(log: Log) -> Iterable[Cause]:
    """Updates that move the policy further than its samples can vouch for."""
    moved, norms = log.values("policy/approx_kl"), log.values("policy/gradient_norm")
    if learns(log):
        return
    middle = float(np.median(np.abs(moved))) if len(moved) else 0.0
    if middle > LARGE_UPDATE:
        note = f"A step's updates move the policy by {middle:.2g} nats (median)."
        yield cause(log, "update size", 0.85, note, middle, LARGE_UPDATE)
    elif (spikes := _spikes(norms)) > 0.05 or _explodes(log):
        largest, middle = float(norms.max()), float(np.median(norms))
        note = (
            f"The gradient norm is {middle:.3g} in the middle and up to {largest:.3g}; "
            f"{spikes:.0%} of the steps are above {SPIKE:.0f} times the middle."
        )
        yield cause(log, "exploding gradient", 0.8, note, largest)


def _spikes(norms: Values) -> float:
    middle = float(np.median(norms)) if len(norms) else 0.0
    return float((norms > SPIKE * middle).mean()) if middle > 0 else 0.0


def _explodes(log: Log) -> bool:
    """Whether the gradient norm has grown tenfold while the outcome fell."""
    found = change(log.values("policy/gradient_norm"))
    return bool(found and found.rises and found.factor > 10 and fallen(log))


def runaway(log: Log) -> Iterable[Cause]:
    """A policy that drifts from its reference while the outcome does not rise."""
    found = change(log.values("policy/kl_reference"))
    if found and found.rises and found.after > RUNAWAY and not learns(log):
        note = f"The divergence from the reference model rises from {found} nats a token."
        yield cause(log, "divergence from the reference", 0.7, note, change=found)


RULES = (
    Rule("numbers that are not finite", FINITE, not_finite),
    Rule("learning rate", ("policy/learning_rate",), no_rate),
    Rule("gradient", ("policy/gradient_norm",), no_gradient),
    Rule("stopped tokens", tuple(STOPPED), stopped_tokens),
    Rule("learning rate", STILL, standing_still),
    Rule("update size", ("policy/approx_kl", "policy/gradient_norm"), large_updates),
    Rule(
        "engine and learner",
        ("policy/logprob_gap", "policy/mismatch_kl", "correction/weight"),
        mismatch,
    ),
    Rule("staleness", ("staleness/mean",), stale),
    Rule("divergence from the reference", ("policy/kl_reference",), runaway),
)
