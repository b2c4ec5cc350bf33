"""Settings of the reward: which numbers of an episode count, and how much."""

from collections.abc import Iterator
from typing import Any, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from turnwise.config.section import Section
from turnwise.conflicts import Claim, Need

OF_MODELS = {
    "judge": (Need.OWN_PROCESS,),
    "reward_model": (Need.OWN_PROCESS,),
    "entropy": (Need.OWN_PROCESS, Need.STILL_POLICY),
    "self_certainty": (Need.OWN_PROCESS, Need.STILL_POLICY),
}
"""The needs of parts that ask a model, by their names."""
GATES = ("always", "success", "failure")
"""Gates that are no names of parts."""


class Finite(Section):
    """A section whose numbers are finite."""

    model_config = ConfigDict(**Section.model_config, allow_inf_nan=False)


class RewardScheduleConfig(Finite):
    """A weight that changes over the steps of RL, in a straight line between two of them."""

    weight: float
    """The weight from `to_step` on."""
    from_step: int = Field(0, ge=0)
    """The step until which the part's own weight holds."""
    to_step: int = Field(ge=0)
    """The step from which the new weight holds; `from_step` itself makes it change at once."""

    @model_validator(mode="after")
    def _goes_forward(self) -> Self:
        if self.to_step < self.from_step:
            raise ValueError(
                f"a schedule ends at to_step = {self.to_step}, before from_step = {self.from_step}"
            )
        return self


class PartConfig(Finite):
    """The settings of a number of an episode."""

    use: str = ""
    """The part: one that the environment reports, a built-in one, or one's own as
    file.py:function; empty is the table's own name."""
    range: tuple[float, float] | None = None
    """Lowest and highest number that it can be, where nothing declares them; an episode with
    another one is ungraded."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Arguments of a function."""


class RewardPartConfig(PartConfig):
    """A part of the reward. A number alone is its weight."""

    weight: float = 1.0
    """The factor of the part's number."""
    schedule: RewardScheduleConfig | None = None
    """A change of the weight over the steps."""
    gate: str = "always"
    """When it counts: `always`, after `success`, after `failure`, or where another part, named
    here, is above 0."""

    @property
    def changes_the_sum(self) -> bool:
        """Whether its settings do more than to have it measured."""
        return self.weight not in (0, 1) or self.schedule is not None or self.gate != "always"


class CostConfig(PartConfig):
    """A number of 0 or more whose mean has to stay below a limit. It is taken off the reward with a
    multiplier that rises while the mean is above the limit, and falls while it is below."""

    limit: float = Field(ge=0)
    """The mean of an episode that is allowed."""
    learning_rate: float = Field(0.1, gt=0)
    """The change of the multiplier in a step, for each unit of the mean above the limit."""
    multiplier: float = Field(0.0, ge=0)
    """The multiplier at the first step."""
    highest: float = Field(1.0, gt=0)
    """The highest multiplier."""

    @model_validator(mode="after")
    def _begins_below_the_highest(self) -> Self:
        if self.multiplier > self.highest:
            raise ValueError(
                f"a cost's multiplier begins at {self.multiplier:g}, above highest = "
                f"{self.highest:g}"
            )
        return self


class RewardConfig(Finite):
    """A reward that is put together, in place of the environment's own."""

    outcome: float = 1.0
    """The reward of success."""
    failure: float = 0.0
    """The reward of failure: -1 makes rewards of 1 and -1."""
    noise: float = Field(0.0, ge=0, le=1)
    """The chance that an episode is graded wrongly, success as failure and failure as success: for
    experiments on bad verifiers. The success that is reported stays true."""
    dominance: bool = True
    """Whether every success has to have a higher reward than every failure, over all that the parts
    can be."""
    parts: dict[str, RewardPartConfig] = Field(default_factory=dict)
    """The other parts, by names of one's own."""
    costs: dict[str, CostConfig] = Field(default_factory=dict)
    """Costs beside the reward, by names of one's own."""

    @field_validator("parts", mode="before")
    @classmethod
    def _weights_alone(cls, parts: Any) -> Any:
        if not isinstance(parts, dict):
            return parts
        # By type: a bool is an int, and no weight.
        plain = {k: v for k, v in parts.items() if type(v) in (int, float)}
        return parts | {name: {"weight": weight} for name, weight in plain.items()}

    def claims(self) -> Iterator[Claim]:
        for name in sorted(self.used & set(OF_MODELS)):
            yield Claim(f"part {name} of the reward", OF_MODELS[name])
        changed = [f"costs.{name}" for name in self.costs]
        changed += [f"parts.{name}" for name, part in self.parts.items() if part.changes_the_sum]
        for key in changed:
            yield Claim(f"reward.{key}", (Need.SUMMED_REWARD,))

    @property
    def used(self) -> set[str]:
        """The parts that it is made of, by the names that they are known by."""
        return {part.use or name for name, part in (self.parts | self.costs).items()}

    @model_validator(mode="after")
    def _has_each_name_once(self) -> Self:
        for name in (*self.parts, *self.costs):
            if name in GATES:
                raise ValueError(f"a part is called {name}, which is a gate: give it another name")
            if name in self.parts and name in self.costs:
                raise ValueError(
                    f"a part and a cost are both called {name}: give one of them another name"
                )
        return self
