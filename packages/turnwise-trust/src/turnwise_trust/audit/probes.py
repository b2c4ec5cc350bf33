"""The probes of an audit, in order, and its verdict."""

from collections.abc import Sequence

from turnwise.storage.audits import Finding
from turnwise_trust.audit.floors import floors
from turnwise_trust.audit.subject import Probe, Subject
from turnwise_trust.page import Page

PROBES: Sequence[Probe] = (floors,)
"""All of them; each plays as many episodes as the subject has tasks, some several times."""


def audited(subject: Subject, probes: Sequence[Probe] = PROBES) -> Page:
    """Try each probe on an environment. What failed comes first."""
    findings = [one for probe in probes for one in probe(subject)]
    findings.sort(key=lambda one: one.passed is not False)
    return Page(f"Audit of {subject.name}", _verdict(findings), findings)


def _verdict(findings: Sequence[Finding]) -> str:
    failed = [one.check for one in findings if one.passed is False]
    if failed:
        return f"Not certified for RL: {'; '.join(failed)}."
    return "Certified for RL: nothing that was tried earned what the task did not ask for."
