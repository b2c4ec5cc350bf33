"""Settings of a synthesis: `[synthesis]`."""

from typing import Any

from pydantic import Field

from turnwise.config.wing_section import WingSection
from turnwise_judges.settings import AnyJudgeModel, PolicyJudgeModel


class SynthesisConfig(WingSection):
    """The items that `turnwise synthesise` makes; a training leaves the section alone."""

    method: str
    """The method's name, or `path/to/file.py:Class`."""
    items: int = Field(1000, ge=1)
    """Items to make."""
    seed: int = 0
    """All that is drawn at random follows from it."""
    max_refused_share: float = Field(0.95, gt=0, lt=1)
    """Largest share of refused attempts, once there are a hundred; beyond it the synthesis ends."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the method."""
    model: AnyJudgeModel = PolicyJudgeModel()
    """The model that a method asks, if it asks one."""
