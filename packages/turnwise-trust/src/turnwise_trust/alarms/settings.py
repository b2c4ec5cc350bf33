"""Settings of the alarms: `[alarms]`."""

from typing import ClassVar

from turnwise.config.wing_section import WingSection
from turnwise.errors import unknown_name
from turnwise.parts.components import Components


class AlarmsConfig(WingSection):
    """Alarms while a run trains."""

    always: ClassVar[bool] = True

    heldout_reward: str = ""
    """A held-out verifier, which is measured and not trained on: a number of the environment's
    verdicts, or a part of the reward with weight 0. Without it success alone is watched."""


def checked(section: AlarmsConfig, components: Components) -> Components:
    """Raise ConfigError for a held-out verifier that no episode is measured by."""
    reward, name = components.recipe.reward, section.heldout_reward
    known = {*components.environment.spec.parts, *(reward.parts if reward else ())}
    if name and name not in known:
        raise unknown_name("alarms.heldout_reward", name, known)
    return components
