"""Whether steps can teach at all: grades, groups that differ, answers that are not cut off."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from turnwise_trust.doctor.log import Log
from turnwise_trust.doctor.rules.base import Cause, Rule, cause, fallen, learns, outcome
from turnwise_trust.doctor.trends import FEWEST, Values

SELDOM = 0.2
"""Share of groups that differ: below it most of a step's episodes are played for nothing."""
MOST = 0.5
NEARLY_ALL = 0.9
SYMPTOM = 0.95
"""Factor on the weight of what a run says itself, so that a rule which knows more stands first."""
ALARM = 0.92
"""Weight of an alarm: above it is only what leaves nothing to learn from."""
UNGRADED = 0.2
"""Share of episodes: turnwise itself stops a run at 5% by default, others go on."""
EQUAL = ("groups/all_equal", "groups/all_failed", "batch/all_equal")


def said_by_the_run(log: Log) -> Iterable[Cause]:
    """Alarms of the run, and steps of which the log itself says that they taught nothing."""
    yield from (Cause(ALARM, one) for one in log.alarms)
    without = sum(map(len, log.reasons.values()))
    if learns(log) or not log.steps or without < MOST * log.steps:
        return
    why, steps = max(log.reasons.items(), key=lambda item: len(item[1]))
    what, _, advice = why.partition(": ")
    note = (
        f"{without} of {log.steps} steps taught nothing, {len(steps)} of them (first: step "
        f"{steps[0]}) since {what}."
    )
    share = without / log.steps
    found = cause(log, "learning signal", SYMPTOM * share, note, share, example="latest")
    if advice:
        fix = f"{advice[0].upper()}{advice[1:]}."
        found = found._replace(finding=replace(found.finding, remedy=fix))
    yield found


def ungraded(log: Log) -> Iterable[Cause]:
    """Episodes without a grade."""
    share = log.mean("rollout/ungraded_share")
    if share > UNGRADED:
        note = f"{share:.0%} of the episodes have no grade: what they did teaches nothing."
        if outcome(log) is None:
            note = "No episode of the log has a number as its reward: none was graded or logged."
        weight = 1.0 if share >= NEARLY_ALL else share
        yield cause(log, "ungraded episodes", weight, note, share, UNGRADED, "ungraded")


def truncated(log: Log) -> Iterable[Cause]:
    """Answers that a budget cut off from the beginning on."""
    values = log.values("rollout/truncated")
    share, paid = _first_third(values), _paid(log)
    if paid and len(values) < FEWEST:
        return
    if share >= MOST and not learns(log):
        weight = 1.0 if share >= NEARLY_ALL and not paid else share / 2
        note = f"{values.mean():.0%} of the episodes are cut off by a budget, from the beginning."
        kind = "truncated" if "truncated" in log.examples else "latest"
        yield cause(log, "truncated answers", weight, note, float(values.mean()), MOST, kind)


def _paid(log: Log) -> bool:
    """Whether episodes get rewards that differ, although most of them are cut off."""
    equal = _equal(log)
    return len(equal) > 0 and float(equal.mean()) < 1 - SELDOM


def malformed(log: Log) -> Iterable[Cause]:
    """Turns that cannot be read as an action, for themselves or since they are cut off."""
    values = log.values("rollout/malformed")
    if not len(values) or values.mean() < MOST or learns(log):
        return
    share = float(values.mean())
    weight = 1.0 if share >= NEARLY_ALL else share / 2
    note = f"{share:.0%} of what the policy says cannot be read as an action or an answer"
    limit, length = log.settings.get("rollout.max_turn_tokens", np.inf), _turn_length(log)
    if length >= NEARLY_ALL * limit:
        note += f", and turns have {length:.3g} of the {limit:.0f} tokens that they may have."
        yield cause(log, "truncated answers", weight, note, length, limit, "malformed")
    else:
        yield cause(log, "malformed turns", weight, f"{note}.", share, MOST, "malformed")


def _turn_length(log: Log) -> float:
    return log.mean("rollout/length_mean") / log.mean("rollout/turns")


def dead_groups(log: Log) -> Iterable[Cause]:
    """Groups in which all rewards are equal, from the beginning on."""
    equal = _equal(log)
    if not len(equal) or learns(log) or fallen(log):
        return
    share = float(equal.mean())
    enough = max(len(equal), log.groups) >= FEWEST
    if share < 1 - SELDOM or _first_third(equal) < MOST or not enough:
        return
    rewards = log.values("reward/mean")
    constant = len(rewards) > 1 and float(np.ptp(rewards)) < 1e-9
    unexplained = constant and share == 1 and outcome(log) == "reward/mean"
    kind = "constant reward" if unexplained else _kind(log)
    note = (
        f"In {share:.0%} of the groups all rewards are equal, so no episode is better than another "
        f"({_level(log)}): {KINDS[kind]}."
    )
    yield cause(log, "dead groups", share, note, share, 1 - SELDOM, "latest", why=kind)


KINDS = {
    "constant reward": "every episode of the log has the same reward",
    "all failed": "nearly none succeeds",
    "all solved": "nearly all succeed",
    "dead groups": "episodes of a task end alike",
}


def _kind(log: Log) -> str:
    name = outcome(log)
    level = log.mean(name) if name else np.nan
    failed, solved = log.mean("groups/all_failed"), log.mean("groups/all_solved")
    if failed > MOST or (level <= 0.05 and name != "reward/mean") or level == 0:
        return "all failed"
    if solved > MOST or (level >= 0.95 and name != "reward/mean") or level == 1:
        return "all solved"
    return "dead groups"


def _level(log: Log) -> str:
    name = outcome(log)
    return "no outcome is known" if name is None else f"mean {name}: {log.mean(name):.3g}"


def _equal(log: Log) -> Values:
    """The share of equal groups by step, by the best number that the log has."""
    if "groups/all_equal" in log:
        return log.values("groups/all_equal")
    failed, solved = log.values("groups/all_failed"), log.values("groups/all_solved")
    if len(failed) and len(failed) == len(solved):
        return failed + solved
    return log.values("batch/all_equal")


def _first_third(values: Values) -> float:
    """The mean of the first third, of one step at least; 0 of none."""
    return float(values[: max(1, len(values) // 3)].mean()) if len(values) else 0.0


RULES = (
    Rule("ungraded episodes", ("rollout/ungraded_share",), ungraded),
    Rule("truncated answers", ("rollout/truncated",), truncated),
    Rule("malformed turns", ("rollout/malformed",), malformed),
    Rule("dead groups", EQUAL, dead_groups),
)
