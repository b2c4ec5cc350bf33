"""Settings of the audit before a training and of the alarms in it: `[audit]`, `[alarms]`."""

from typing import ClassVar

from pydantic import Field

from turnwise.config.wing_section import WingSection


class AuditConfig(WingSection):
    """The quick part of `turnwise audit`, before anything is trained."""

    always: ClassVar[bool] = True

    seconds: float = Field(20.0, ge=0)
    """Seconds that it may take; 0 leaves it out."""
    accept: tuple[str, ...] = ()
    """Checks that may fail, by their names; the report says so. Any other that fails refuses the
    run."""


class AlarmsConfig(WingSection):
    """Alarms while a run trains."""

    always: ClassVar[bool] = True

    heldout_reward: str = ""
    """A verifier that is measured and not trained on: a number of the environment's verdicts, or a
    part of the reward with weight 0. Without it success alone is watched."""
