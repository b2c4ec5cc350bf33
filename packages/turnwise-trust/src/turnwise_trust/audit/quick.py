"""How probes are tried, and those of the quick audit, which a run begins with.

Not here: all the others (`probes.py`), which a run does not import.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from turnwise.storage.audits import Finding
from turnwise_trust.audit.attack import HEDGED, OBSERVED, UNGRADED
from turnwise_trust.audit.calls import EnvironmentRaised
from turnwise_trust.audit.constants import one_answer
from turnwise_trust.audit.floors import NO_ORACLE, floors
from turnwise_trust.audit.openenv import CHECK_IDS
from turnwise_trust.audit.steps import farmable
from turnwise_trust.audit.subject import OutOfTime, Probe, Subject, Ungraded
from turnwise_trust.page import Page

QUICK: Mapping[str, Probe] = {
    "an agent that does nothing, and the oracle": floors,
    "a repeated step": farmable,
    OBSERVED.check: OBSERVED,
    HEDGED.check: HEDGED,
    "one answer for all tasks": one_answer,
}
"""The probes before a training, by their names: of a few episodes for each task."""


CODE = "the environment's code"
Told = tuple[Sequence[Finding], Sequence[str]]
"""The findings of an audit so far, and the probes and parts of probes that were not measured."""


def tried(subject: Subject, probes: Mapping[str, Probe]) -> Page:
    """Try each probe on an environment, in its share of the time. What failed comes first."""
    *_, told = findings(subject, probes)
    return paged(subject.title, *told)


def findings(subject: Subject, probes: Mapping[str, Probe]) -> Iterator[Told]:
    """Yield what there is after each probe; those to come are not measured."""
    found: dict[Finding, None] = {}
    names = [*probes]
    check = "known, stated by the environment"
    stated = [Finding(check, note=one) for one in subject.environment.weaknesses]
    for number, name in enumerate(subject.shared(names), 1):
        found |= dict.fromkeys(_findings(name, probes[name], subject))
        yield [*found, *stated], [*subject.unmeasured, *names[number:]]


def paged(title: str, found: Sequence[Finding], unmeasured: Sequence[str]) -> Page:
    """The page of an audit: what failed first, with the command that shows it again where the probe
    says no more; all else without a remedy."""
    again = f"turnwise audit {title}"
    failed = [replace(one, replay=one.replay or again) for one in found if one.passed is False]
    others = [replace(one, remedy="") for one in found if one.passed is not False]
    verdict = "Certified for RL: nothing that was tried earned what the task did not ask for"
    if any(one.note == NO_ORACLE for one in found):
        verdict += (
            "; there is no oracle, so that nothing was tried which begins with a right answer"
        )
    if unmeasured:
        said = "; ".join(dict.fromkeys(unmeasured))
        others.append(Finding("not measured for want of time", note=said))
        verdict = verdict.replace("for RL", "for RL in part", 1)
        verdict += "; not all was tried, for want of time"
    if failed:
        verdict = f"Not certified for RL: {'; '.join(one.check for one in failed)}"
    return Page(f"Audit of {title}", f"{verdict}.", [*failed, *others], CHECK_IDS)


def _findings(name: str, probe: Probe, subject: Subject) -> Iterator[Finding]:
    """The findings of a probe, as far as there is time; that it could not go on, where the
    environment raised."""
    try:
        yield from probe(subject)
    except OutOfTime:
        subject.unmeasured.append(name)
    except Ungraded:
        yield Finding(name, note=UNGRADED)
    except EnvironmentRaised as error:
        remedy = "Mend what raises or hangs: no probe can go on after it."
        yield Finding(CODE, passed=False, note=str(error), remedy=remedy)
