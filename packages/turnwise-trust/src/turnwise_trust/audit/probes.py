"""The probes of an audit, in order."""

from collections.abc import Mapping

from turnwise_trust.audit.constants import constants
from turnwise_trust.audit.data import data
from turnwise_trust.audit.escapes import escapes
from turnwise_trust.audit.faults import faults
from turnwise_trust.audit.leaks import leaks
from turnwise_trust.audit.noise import noise
from turnwise_trust.audit.quick import QUICK
from turnwise_trust.audit.readers import prompts
from turnwise_trust.audit.replay import replay
from turnwise_trust.audit.rewards import rewards
from turnwise_trust.audit.search import reward_search
from turnwise_trust.audit.speed import speed
from turnwise_trust.audit.steps import unneeded
from turnwise_trust.audit.subject import Probe
from turnwise_trust.audit.table import ATTACKS

PROBES: Mapping[str, Probe] = {
    **QUICK,
    "overlap and soundness of the tasks": data,
    "the reward's form": rewards,
    "determinism of verdicts, and variance of the reward": noise,
    "determinism and isolation of episodes": replay,
    "infrastructure faults": faults,
    "speed of verdicts": speed,
    "a constant answer": constants,
    "the prompt searched for the answer": prompts,
    "secrets and answers that are shown": leaks,
    **{one.check: one for one in ATTACKS},
    "strange answers and calls that escape a grade": escapes,
    "steps that are left out": unneeded,
    "one script for all tasks": reward_search,
}
"""All of them by their names; each plays as many episodes as the subject has tasks, some several
times."""
