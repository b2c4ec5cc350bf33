"""The probes of an audit, in order."""

from collections.abc import Sequence

from turnwise.monitor.display import Display, SilentDisplay
from turnwise_trust.audit.data import data
from turnwise_trust.audit.escapes import escapes
from turnwise_trust.audit.faults import faults
from turnwise_trust.audit.floors import floors
from turnwise_trust.audit.leaks import leaks
from turnwise_trust.audit.noise import noise
from turnwise_trust.audit.quick import tried
from turnwise_trust.audit.readers import constants, prompts
from turnwise_trust.audit.replay import replay
from turnwise_trust.audit.rewards import rewards
from turnwise_trust.audit.search import reward_search
from turnwise_trust.audit.speed import speed
from turnwise_trust.audit.steps import farmable, unneeded
from turnwise_trust.audit.subject import Probe, Subject
from turnwise_trust.audit.table import ATTACKS
from turnwise_trust.page import Page

PROBES: Sequence[Probe] = (
    *(floors, data, rewards, noise, replay, faults, speed),
    *(constants, prompts, leaks),
    *ATTACKS,
    *(escapes, farmable, unneeded, reward_search),
)
"""All of them; each plays as many episodes as the subject has tasks, some several times. Those that
a run begins with are in `quick.QUICK` too."""


def audited(
    subject: Subject, probes: Sequence[Probe] = PROBES, display: Display | None = None
) -> Page:
    """Try probes on an environment. What failed comes first."""
    return tried(subject, probes, display or SilentDisplay())
