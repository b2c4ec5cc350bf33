"""How probes are tried, and those of the quick audit, which a run begins with.

Not here: all the others (`probes.py`), which a run does not import.
"""

from collections.abc import Sequence
from dataclasses import replace

from turnwise.monitor.display import Display
from turnwise.storage.audits import Finding
from turnwise_trust.audit.calls import EnvironmentRaised
from turnwise_trust.audit.floors import floors
from turnwise_trust.audit.steps import farmable
from turnwise_trust.audit.subject import Probe, Subject
from turnwise_trust.page import Page

QUICK: Sequence[Probe] = (floors, farmable)
"""The probes before a training: of a few episodes for each task."""


def tried(subject: Subject, probes: Sequence[Probe], display: Display) -> Page:
    """Try each probe on an environment. What failed comes first."""
    findings: dict[Finding, None] = {}
    display.phase(f"audit of {subject.name}", len(probes))
    for probe in probes:
        findings |= dict.fromkeys(_findings(probe, subject))
        display.advance(f"{probe.__name__} is done")
    display.close()
    told = [_replayable(one, subject) for one in findings]
    ordered = sorted(told, key=lambda one: one.passed is not False)
    return Page(f"Audit of {subject.name}", _verdict(ordered), ordered)


def _findings(probe: Probe, subject: Subject) -> list[Finding]:
    """The findings of a probe; that it could not go on, where the environment raised."""
    try:
        return list(probe(subject))
    except EnvironmentRaised as error:
        remedy = "Mend what raises or hangs: no probe can go on after it."
        return [Finding("the environment's code", passed=False, note=str(error), remedy=remedy)]


def _replayable(finding: Finding, subject: Subject) -> Finding:
    """A finding that failed, with the command that shows it again where the probe says no more."""
    if finding.replay or finding.passed is not False:
        return finding
    return replace(finding, replay=subject.command)


def _verdict(findings: Sequence[Finding]) -> str:
    failed = [one.check for one in findings if one.passed is False]
    if failed:
        return f"Not certified for RL: {'; '.join(failed)}."
    return "Certified for RL: nothing that was tried earned what the task did not ask for."
