"""Floors: what an agent earns that does nothing, and one that does everything."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from turnwise.environments.base import Environment
from turnwise.rollout.loop import LATE
from turnwise.seeds import derive
from turnwise.storage.audits import Finding
from turnwise.types import Outcome, Task, Trajectory
from turnwise_trust.audit.attempts import graded, in_time, succeeded
from turnwise_trust.audit.plays import Script, compared, played, rate
from turnwise_trust.audit.subject import OutOfTime, Subject

IDLE = 0.05
"""The largest share of tasks that may be solved by doing nothing, unless the environment declares
more: above it, a policy that has learned to do nothing is paid for it."""
SEEDS = 4
"""Seeds under which an oracle that was refused is played again: it may have had bad luck."""
TRIED = 8
NO_ORACLE = (
    "the environment has none: that verify() pays for a right answer is not known, and attacks "
    "that begin with one are not tried"
)
"""The note of the oracle where there is none."""


def declared(environment: Environment) -> float:
    """The best success that an environment declares of a policy that reads nothing."""
    known = environment.spec.reference_scores
    return max((share for name, share in known.items() if name != "oracle"), default=0.0)


def floors(subject: Subject) -> Iterator[Finding]:
    """Hold the success of an idle agent, and of the oracle, against what is declared."""
    yield _idle(subject)
    yield from _oracle(subject)


def _idle(subject: Subject) -> Finding:
    check, ended = "an agent that does nothing", list(graded(subject.idle_at_work))
    if not ended:
        why = next((one.problem for one in subject.idle), "there was no time")
        return Finding(check, note=f"no episode got a verdict: {why}")
    share = rate(len(ended) - len(_refused(ended)), len(ended))
    most = max(IDLE, subject.environment.spec.reference_scores.get("noop", 0.0))
    passed = share["low"] <= most
    return Finding(
        check,
        **share,
        bound=most,
        passed=passed,
        note=f"share of {len(ended)} tasks that an empty answer solves",
        remedy="Have verify() ask for what only acting can bring about.",
    )


def _oracle(subject: Subject) -> Iterator[Finding]:
    """The oracle's success. What is not declared has to be all of the tasks; where luck is, the
    tasks that are refused under every seed are held against it, and no others."""
    check, ended = "the oracle", list(in_time(subject.of_oracle))
    if subject.problem:
        yield Finding(check, passed=False, note=subject.problem, remedy="Mend oracle().")
        return
    if not subject.oracle:
        yield Finding(check, note=NO_ORACLE)
        return
    others = [one for one in subject.of_oracle if one.verdict is None or one.outcome in LATE]
    lost = [f"{len(others)} without a verdict in time, as {_end(others[0])}"] if others else []
    if not ended:
        raised = all(one.outcome is Outcome.GRADER_ERROR for one in others)
        passed = False if others and raised else None
        remedy = "Have verify() return a Verdict for a right answer."
        yield from (Finding(check, passed=passed, note=said, remedy=remedy) for said in lost)
        return
    refused, declared = _refused(ended), subject.environment.spec.reference_scores.get("oracle")
    share = rate(len(ended) - len(refused), len(ended))
    luck = subject.environment.same_splits and declared is None
    try:
        always = [one.task.id for one in refused[:TRIED] if not _lucky(subject, one.task)]
    except OutOfTime:
        if luck:  # it is not known whether that was all
            raise
        always = []
    whole, spaced = (
        len(_refused_forms(subject, one)) for one in (_whole, lambda text: f"\n{text}\n")
    )
    passed = not whole and (
        (luck and not always) or share["high"] >= (1.0 if declared is None else declared)
    )
    note = f"share of {len(ended)} tasks that the environment's own oracle solves"
    note += f"; refused under {1 + SEEDS} seeds: {', '.join(always)}" if always else ""
    note += f"; {whole} whole numbers are refused whose '.0' passes" if whole else ""
    note += f"; with blank lines around {spaced} of its answers are refused" if spaced else ""
    note = "; ".join([note, *lost])
    remedy = "Mend the verifier, or the labels that it refuses; or declare the share that luck "
    remedy += 'leaves it: TaskSet.of(tasks, {"oracle": 0.9}).'
    yield Finding(check, **share, passed=passed, note=note, remedy=remedy)


def _end(one: Trajectory) -> str:
    return f"task {one.task.id}: {': '.join(filter(None, (one.outcome.value, one.problem)))}"


def _refused(ended: list[Trajectory]) -> list[Trajectory]:
    return [one for one in ended if one.verdict and not one.verdict.success]


def _lucky(subject: Subject, task: Task) -> bool:
    """Whether the oracle succeeds under another seed."""
    seeds = [derive("luck", subject.seed, number) for number in range(SEEDS)]
    script = [Script("oracle", task, subject.oracle[task.id])]
    again = [one for seed in seeds for one in played(replace(subject, seed=seed), script)]
    return any(map(succeeded, again))


def _refused_forms(subject: Subject, form: Callable[[str], str | None]) -> list[Trajectory]:
    """Episodes that are refused for another form of a right answer; None is no other form. None of
    them where the time is over."""
    accepted = {one.task.id for one in subject.of_oracle if succeeded(one)}
    chosen = []
    for task in compared(subject, 1):
        other = form(subject.answers[task.id]) if task.id in subject.answers else None
        if task.id in accepted and other is not None:
            *before, last = subject.oracle[task.id]
            chosen.append(Script("oracle", task, [*before, replace(last, answer=other)]))
    try:
        return _refused(list(in_time(played(subject, chosen)))) if chosen else []
    except OutOfTime:
        return []


def _whole(answer: str) -> str | None:
    """The whole number of a text such as '31.0', which a label is that was a float by mistake.

    >>> _whole("31.0"), _whole("31.5")
    ('31', None)
    """
    number, point, digits = answer.strip().partition(".")
    return (
        number if number.removeprefix("-").isdecimal() and point and not digits.strip("0") else None
    )
