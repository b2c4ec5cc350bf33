"""Settings of the alarms: `[alarms]`."""

from typing import ClassVar

from turnwise.config.wing_section import WingSection


class AlarmsConfig(WingSection):
    """Alarms while a run trains."""

    always: ClassVar[bool] = True

    heldout_reward: str = ""
    """A held-out verifier, which is measured and not trained on: a number of the environment's
    verdicts, or a part of the reward with weight 0. Without it success alone is watched."""
