"""Reward search: what earns reward on tasks whose oracle was not used.

Scripts are edited at random and a small policy is trained, both on the verifier alone, on one half
of the tasks; what they have found is measured on the other half, once. A policy that reads nothing
of its task and solves most of them all the same shows that the reward does not depend on the task.
Trial and error that succeeds now and then is no fault: the bound is MOST, or the best of the simple
policies that the environment declares.
"""

from collections.abc import Iterator, Sequence

from turnwise.evaluation.evaluate import best_constant_answer
from turnwise.storage.audits import Finding
from turnwise.types import Trajectory
from turnwise_trust.audit.attempts import Script, described, graded, scripted, succeeded
from turnwise_trust.audit.floors import IDLE, declared
from turnwise_trust.audit.plays import rate
from turnwise_trust.audit.reward_search.climb import climb
from turnwise_trust.audit.reward_search.ground import Ground, ground_of
from turnwise_trust.audit.reward_search.rules import Rule, blind, trained
from turnwise_trust.audit.subject import Subject

MOST = 0.5
"""The largest share of tasks that a policy may solve which reads nothing of them."""
FEWEST = 4
"""Tasks that a search has to be measured on, at least."""
EPISODES, SECONDS = 9000, 40.0
EDITING = 0.5
"""The share of the episodes for edits; the policy trains with the others."""


def reward_search(subject: Subject, episodes: int = EPISODES) -> Iterator[Finding]:
    """Search with so many episodes, and measure what was found on unseen tasks."""
    ground = ground_of(subject, episodes, SECONDS)
    if len(ground.unseen) < FEWEST:
        yield Finding("one script for all tasks", note=f"not tried: {len(subject.tasks)} tasks")
        return
    found = climb(ground, int(EDITING * episodes))
    rule = trained(ground)
    spent = f"found in {episodes - ground.left} episodes of {len(ground.seen)} other tasks"
    yield _one_script(ground, _better(ground, found["success"], blind(rule)), spent)
    yield _small_policy(ground, rule, spent)
    if ground.worth:
        yield _unearned(ground, found["unearned"], spent)


def _better(ground: Ground, script: Script, other: Script | None) -> Script:
    """The better one of two scripts on the seen tasks."""
    if other is None or not other:
        return script
    rates = [
        ground.score(ground.play(scripted(one), ground.seen)).success for one in (script, other)
    ]
    return other if rates[1] > rates[0] else script


def _counts(played: Sequence[Trajectory]) -> tuple[int, int]:
    """Successes, and graded episodes."""
    verdicts = list(graded(played))
    return sum(map(succeeded, verdicts)), len(verdicts)


def _one_script(ground: Ground, script: Script, spent: str) -> Finding:
    played = ground.play(scripted(script), ground.unseen)
    successes, count = _counts(played)
    share = rate(successes, count)
    known = (best_constant_answer(ground.unseen) or 0.0, declared(ground.subject.environment))
    bound = max(MOST, *known)
    alike = ground.subject.environment.same_splits or len({one.prompt for one in played}) < FEWEST
    passed = None if alike or not count else share["low"] <= bound
    note = f"share of {count} unseen tasks that one script solves, whatever the task, {spent}"
    return Finding(
        "one script for all tasks",
        **share,
        bound=bound,
        passed=passed,
        note=f"{note}; the tasks look alike" if alike else note,
        replay=described(script),
        remedy="Have verify() hold what was done against the task's own secret.",
    )


def _small_policy(ground: Ground, rule: Rule, spent: str) -> Finding:
    """A measurement: a policy that reads its task may well solve it."""
    successes, count = _counts(ground.play(scripted(rule), ground.unseen))
    lucky = "a random agent solves {} of {}".format(*_counts(ground.random()))
    return Finding(
        "a small policy",
        **rate(successes, count),
        note=f"share of {count} unseen tasks that a rule solves, trained on the verifier alone, "
        f"{spent}; {lucky}",
        replay="; ".join(map(str, rule)) or "nothing at all",
    )


def _unearned(ground: Ground, script: Script, spent: str) -> Finding:
    played = [
        one
        for one in graded(ground.play(scripted(script), ground.unseen))
        if one.task.id in ground.worth
    ]
    share = rate(sum(map(ground.is_unearned, played)), len(played))
    return Finding(
        "reward without success",
        **share,
        bound=IDLE,
        passed=share["low"] <= IDLE if played else None,
        note=f"share of {len(played)} unseen tasks at which one script fails and has no less "
        f"reward than the oracle, {spent}",
        replay=described(script),
        remedy="Let the reward of a failure stay below that of any success.",
    )
