"""The page of a preflight: the verdict, and each figure that it rests on."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from turnwise.config import ScriptedDemonstrations
from turnwise.evaluation.evaluate import successes_by_task
from turnwise.evaluation.intervals import powers_of_two, reliability
from turnwise.evaluation.paired import POWER
from turnwise.storage.audits import Finding
from turnwise.types import Trajectory
from turnwise_trust.audit.data import overlap
from turnwise_trust.audit.floors import IDLE
from turnwise_trust.page import Page
from turnwise_trust.preflight.costs import costs, episode_seconds
from turnwise_trust.preflight.decision import FAILING_ORACLE, GO, NOISY, decide
from turnwise_trust.preflight.facts import Facts, facts_of, malformed
from turnwise_trust.preflight.power import SAME_TASKS, detectable, difficulty, tasks_needed
from turnwise_trust.preflight.rehearsal import Rehearsal
from turnwise_trust.preflight.updating import Update

EPISODES = (1, 2, 4, 8)
"""Episodes of a task, for which the power analysis gives a number of tasks."""
SCARCEST, COMMONEST = 0.05, 0.25
"""The share of informative groups that RL needs is one group a step, between these: with fewer than
one in twenty, twenty groups are paid for each that teaches; and a step of one or two groups may be
idle three times of four."""
SUCCESSES = 500
"""Demonstrations to begin with, a rule of thumb: no figure of a preflight says how many suffice.
Shipped recipes of small models that know nothing take 640 to 6,000, a model that follows
instructions has less to learn, and a cold start has to make successes possible, not frequent."""
THUMB = (
    f"{SUCCESSES} is a rule of thumb: take twice as many as long as preflight of what came of them "
    "says the same."
)


def page_of(played: Rehearsal, update: Update, effect: float) -> Page:
    """The page; `effect` is the difference, a share in (0, 1), that evaluations are to show."""
    facts = facts_of(played)
    bounds = bounds_of(played, effect)
    decision = decide(facts, bounds, demonstrations(played, facts))
    findings = [
        *_policy(played, facts, bounds),
        *_trust(played, facts, bounds),
        *costs(played, facts, update),
        *_power(played, effect),
    ]
    findings.sort(key=lambda one: one.passed is not False)
    failed = "; ".join(one.check for one in findings if one.passed is False)
    but = f"But first see to: {failed}." if failed and decision.verdict in GO else ""
    extent = f"From {len(played.groups)} groups in {played.seconds:.0f} seconds."
    verdict = " ".join(filter(None, (decision.sentence, but, extent)))
    return Page(f"Preflight of {played.recipe.name}", verdict, findings)


def bounds_of(played: Rehearsal, effect: float) -> Mapping[str, float]:
    """The bounds of the decision that depend on the recipe and the effect."""
    needed = 1 / played.recipe.train.tasks_per_step
    declared = played.runner.environment.spec.reference_scores
    return {
        "allowed ungraded": played.recipe.rollout.max_ungraded_share,
        "allowed idle": max(IDLE, declared.get("noop", 0.0)),
        "least oracle": min(FAILING_ORACLE, declared.get("oracle", 1.0)),
        "ceiling": 1 - effect,
        "enough signal": min(max(needed, SCARCEST), COMMONEST),
    }


def demonstrations(played: Rehearsal, facts: Facts) -> str:
    """How many demonstrations, and where from, in sentences."""
    sft = played.recipe.sft
    train = "train with train.steps=0, then let preflight look at that run's folder"
    if sft.steps and isinstance(sft.demonstrations, ScriptedDemonstrations):
        return f"The recipe's cold start imitates {sft.demonstrations.count:,}: {train}."
    if sft.steps:
        return f"The recipe's cold start imitates those of its file: {train}."
    if "oracle" in facts:
        keys = f"sft.steps=100 sft.demonstrations.count={SUCCESSES}"
        return (
            f"The environment's oracle plays them: about {SUCCESSES}, with {keys}; {train}. {THUMB}"
        )
    rate = facts["success"].figure if "success" in facts else 0.0
    if not rate:
        return (
            f"There is no oracle and no success to sample: about {SUCCESSES} successes of a "
            "stronger model or of people (sft.demonstrations.file), or easier tasks; unless the "
            f"verifier refuses all that there is: turnwise audit. {THUMB}"
        )
    episodes = SUCCESSES / rate
    minutes = episodes * episode_seconds(played) / 60
    return (
        f"By rejection sampling {SUCCESSES} successes take about {episodes:,.0f} episodes, "
        f"{minutes:,.0f} minutes (turnwise export --successes), if not a stronger "
        f"model's. {THUMB}"
    )


def _policy(played: Rehearsal, facts: Facts, bounds: Mapping[str, float]) -> Iterator[Finding]:
    """The policy's own figures."""
    if "signal" in facts:
        rate, needed = facts["signal"], bounds["enough signal"]
        step = played.recipe.train.tasks_per_step
        yield Finding(
            "groups with mixed rewards",
            *rate[:3],
            passed=rate.figure >= needed,
            note=f"of {rate.number}: {rate.figure * step:.2g} of the {step} of a step; RL needs "
            f"{needed:.0%}",
        )
    yield from _reliability(played)
    yield Finding("outcomes", note=_outcomes(played.episodes))
    rate, allowed = facts["ungraded"], bounds["allowed ungraded"]
    note = _first(one.problem for one in played.episodes if one.reward is None)
    yield Finding("ungraded episodes", *rate[:3], allowed, rate.figure <= allowed, note)
    errors = (one.turns[-1].action.error or "" for one in played.episodes if malformed(one))
    yield Finding("malformed episodes", *facts["malformed"][:3], note=_first(errors))
    yield Finding("truncated episodes", *facts["truncated"][:3])
    yield Finding("turns of an episode", facts["turns"].figure, note="median")
    yield Finding("tool calls of an episode", facts["calls"].figure, note="median")
    if "turn signal" in facts:
        note = "groups in which rewards of turns or parts of the verdict differ"
        yield Finding("turn signal", *facts["turn signal"][:3], note=note)


def _outcomes(episodes: Sequence[Trajectory]) -> str:
    """How many have ended in which way, most first."""
    counts = Counter(str(one.outcome) for one in episodes)
    return ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())


def _first(messages: Iterable[str]) -> str:
    found = next(filter(None, messages), "")
    return f"the first: {found}" if found else ""


def _reliability(played: Rehearsal) -> Iterator[Finding]:
    """pass@k for the powers of two up to the group's size, over tasks with as many grades."""
    counts, size = successes_by_task(played.episodes), played.recipe.train.group_size
    for k, found in reliability(counts, powers_of_two(size))["pass@k"].items():
        left_out = (
            f", {found['undefined']} have fewer than {k} grades" if found["undefined"] else ""
        )
        yield Finding(
            f"pass@{k}",
            found["mean"],
            found["low"] if found["tasks"] else None,
            found["high"] if found["tasks"] else None,
            note=f"over {found['tasks']} tasks{left_out}",
        )


def _trust(played: Rehearsal, facts: Facts, bounds: Mapping[str, float]) -> Iterator[Finding]:
    """Figures of the environment."""
    if "agreement" in facts:
        rate = facts["agreement"]
        beyond = facts.get("beyond chance")
        kappa = f", {beyond.figure:.2f} beyond chance (Cohen's kappa)" if beyond else ""
        note = f"of {rate.number} episodes, the same actions under the same seed{kappa}; a policy "
        note += f"that is always right would be seen to succeed in {_ceiling(rate.figure):.1%}"
        yield Finding(
            "agreement of repeated verdicts", *rate[:3], passed=rate.high >= NOISY, note=note
        )
    else:
        why = played.not_again or "no episode ended by itself"
        yield Finding("agreement of repeated verdicts", note=f"not measured: {why}")
    if "idle" in facts:
        rate = facts["idle"]
        note = f"of {rate.number} tasks that an empty answer solves"
        most = bounds["allowed idle"]
        yield Finding("an agent that does nothing", *rate[:3], most, rate.low <= most, note)
    if played.problem:
        yield Finding("the oracle", passed=False, note=played.problem, remedy="Mend oracle().")
    elif "oracle" in facts:
        rate = facts["oracle"]
        note = f"of {rate.number} tasks that the environment's own oracle solves"
        yield Finding(
            "the oracle", *rate[:3], passed=rate.high >= bounds["least oracle"], note=note
        )
    found = overlap(played.runner.environment, {"train": played.train, "heldout": played.heldout})
    yield replace(found, remedy="" if found.passed is not False else found.remedy)


def _ceiling(agreement: float) -> float:
    """The success that noise leaves a perfect policy. A verifier that errs with probability e,
    either way alike, agrees with itself in 1 - 2e(1 - e), and such a policy is seen at 1 - e.

    >>> round(_ceiling(0.905), 3), _ceiling(0.4)
    (0.95, 0.5)
    """
    return (1 + math.sqrt(max(0.0, 2 * agreement - 1))) / 2


def _power(played: Rehearsal, effect: float) -> Iterator[Finding]:
    """The tasks and episodes that a comparison of two policies needs, and what the recipe's has."""
    tasks = difficulty(successes_by_task(played.episodes))
    config, there = played.recipe.evaluation, len(played.heldout)
    needed = {m: tasks_needed(tasks, effect, m) for m in EPISODES}
    each = ", ".join(f"{count:,} with {m}" for m, count in needed.items())
    likeness = "measured" if tasks.measured else "the worst case, as nothing varies yet"
    points = f"{100 * effect:g} points"
    own = config.episodes_per_task
    yield Finding(
        f"held-out tasks to see {points}",
        tasks_needed(tasks, effect, own),
        note=f"tasks by episodes of each: {each}; paired, {POWER:.0%} power at two-sided 5%, from "
        f"success {tasks.success:.1%} on; intraclass correlation {tasks.likeness:.2f} "
        f"({likeness}), rates of the two policies assumed to correlate by {SAME_TASKS}",
    )
    asked = min(config.tasks, there)
    seen = detectable(tasks, asked, own)
    enough = [(m, count) for m, count in needed.items() if count <= there]
    remedy = f"There are {there:,} held-out tasks: too few for {points}; have more."
    if enough:
        episodes, count = min(enough, key=lambda one: one[0] * one[1])
        remedy = f"evaluation.tasks={count} evaluation.episodes_per_task={episodes}"
    passed = seen is not None and seen <= effect
    yield Finding(
        "effect that the evaluation can see",
        seen,
        bound=effect,
        passed=passed,
        note=f"{asked:,} held-out tasks, {own} of each" if asked else "no held-out task",
        remedy="" if passed else remedy,
    )
