"""How probes are tried, and those of the quick audit, which a run begins with.

Not here: all the others (`probes.py`), which a run does not import.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from turnwise.monitor.display import Display
from turnwise.storage.audits import Finding
from turnwise_trust.audit.attack import HEDGED, OBSERVED
from turnwise_trust.audit.calls import EnvironmentRaised
from turnwise_trust.audit.floors import floors
from turnwise_trust.audit.steps import farmable
from turnwise_trust.audit.subject import OutOfTime, Probe, Subject
from turnwise_trust.page import Page

QUICK: Mapping[str, Probe] = {
    "an agent that does nothing, and the oracle": floors,
    "a repeated step": farmable,
    OBSERVED.check: OBSERVED,
    HEDGED.check: HEDGED,
}
"""The probes before a training, by their names: of a few episodes for each task."""


def tried(subject: Subject, probes: Mapping[str, Probe], display: Display) -> Page:
    """Try each probe on an environment, in its share of the time. What failed comes first."""
    findings: dict[Finding, None] = {}
    display.phase(f"audit of {subject.name}", len(probes))
    for name in subject.shared([*probes]):
        findings |= dict.fromkeys(_findings(name, probes[name], subject))
        display.advance(f"{name}: done")
    display.close()
    told = [_replayable(one, subject) for one in (*findings, *_stated(subject))]
    ordered = sorted(told, key=lambda one: one.passed is not False)
    return Page(f"Audit of {subject.title}", _verdict(subject, ordered), ordered)


def _findings(name: str, probe: Probe, subject: Subject) -> Iterator[Finding]:
    """The findings of a probe, as far as there is time; that it could not go on, where the
    environment raised."""
    try:
        yield from probe(subject)
    except OutOfTime:
        subject.unmeasured.append(name)
    except EnvironmentRaised as error:
        remedy = "Mend what raises or hangs: no probe can go on after it."
        yield Finding("the environment's code", passed=False, note=str(error), remedy=remedy)


def _stated(subject: Subject) -> Iterator[Finding]:
    """Weaknesses that the environment states itself, and checks for which there was no time."""
    for weakness in subject.environment.weaknesses:
        yield Finding("known, stated by the environment", note=weakness)
    if subject.unmeasured:
        said = "; ".join(dict.fromkeys(subject.unmeasured))
        yield Finding("not measured for want of time", note=said)


def _replayable(finding: Finding, subject: Subject) -> Finding:
    """A finding that failed, with the command that shows it again where the probe says no more;
    another one without a remedy."""
    if finding.passed is not False:
        return replace(finding, remedy="")
    return finding if finding.replay else replace(finding, replay=subject.command)


def _verdict(subject: Subject, findings: Sequence[Finding]) -> str:
    failed = [one.check for one in findings if one.passed is False]
    if failed:
        return f"Not certified for RL: {'; '.join(failed)}."
    less = "; not all was tried, for want of time" if subject.unmeasured else ""
    return f"Certified for RL: nothing that was tried earned what the task did not ask for{less}."
