"""Settings of a synthesis and of what learns from its texts: `[synthesis]`, `[cpt]`."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from turnwise.config.section import IS_PATH
from turnwise.config.wing_section import WingSection
from turnwise_judges.settings import AnyJudgeModel, PolicyJudgeModel, check_sources


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


class CptConfig(WingSection):
    """Continual pre-training before all else of a run: the next token, on all tokens of texts."""

    file: tuple[Annotated[str, IS_PATH], ...] = Field(min_length=1)
    """Files of JSON lines, each with a `text`, as a synthesis writes them."""
    steps: int = Field(ge=1)
    """Updates."""
    batch_size: int = Field(64, ge=1)
    """Texts of an update; one longer than `rollout.max_tokens` is cut, and counts as several."""
    learning_rate: float = Field(1e-3, gt=0)
    """Highest rate, after a warm-up; then it falls to a tenth along half a cosine."""

    @property
    def policy_updates(self) -> int:
        return self.steps

    @property
    def trains(self) -> str:
        return f"continual pre-training, {self.steps} steps"

    def check_new_run(self, folder: Path) -> None:
        check_sources("cpt.file", self.file, folder)
