"""Floors: what an agent earns that does nothing, and one that does everything."""

from collections.abc import Iterator

from turnwise.evaluation.intervals import wilson
from turnwise.storage.audits import Finding
from turnwise_trust.audit.attempts import graded
from turnwise_trust.audit.subject import Subject, success

IDLE = 0.05
"""The largest share of tasks that may be solved by doing nothing, unless the environment declares
more: above it, a policy that has learned to do nothing is paid for it."""


def floors(subject: Subject) -> Iterator[Finding]:
    """The success of an idle agent, and of the oracle, against what the environment declares, where
    their episodes get a verdict."""
    declared = subject.environment.spec.reference_scores
    most, least = max(IDLE, declared.get("noop", 0.0)), declared.get("oracle", 1.0)
    share, count = success(subject.idle_at_work), len(list(graded(subject.idle_at_work)))
    low, high = wilson(round(share * count), count)
    if not count:
        why = next((one.problem for one in subject.idle), "there was no time")
        yield Finding("an agent that does nothing", note=f"no episode got a verdict: {why}")
    else:
        yield Finding(
            "an agent that does nothing",
            share,
            low,
            high,
            bound=most,
            passed=low <= most,
            note=f"share of {count} tasks that an empty answer solves",
            remedy="" if low <= most else "Have verify() ask for what only acting can bring about.",
        )
    share, count = success(subject.of_oracle), len(list(graded(subject.of_oracle)))
    low, high = wilson(round(share * count), count)
    if count:
        yield Finding(
            "the oracle",
            share,
            low,
            high,
            passed=high >= least,
            note=f"share of {count} tasks that the environment's own oracle solves",
            remedy="" if high >= least else "Mend the verifier, or the labels that it refuses.",
        )
