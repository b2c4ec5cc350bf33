"""Settings of a reward model: its form, its data, and how long it is trained.

Not here: the model itself (a wing's).
"""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from turnwise.config.section import Section
from turnwise.conflicts import Claim, Need


class RewardModelConfig(Section):
    """A learned reward: the part `reward_model` of the reward, trained before anything else."""

    form: Literal["outcome", "process", "pairs"] = "outcome"
    """The chance of success after an episode (`outcome`), the change of that chance by each turn
    (`process`), or the chance of being preferred to the mean episode (`pairs`: Bradley-Terry)."""
    data: tuple[str, ...] = Field(min_length=1)
    """Run folders, whose RL steps are read, files of trajectories (.parquet), and files of
    conversations (.jsonl): `messages` with `success`, or `prompt`, `chosen` and `rejected`."""
    steps: int = Field(200, ge=1)
    """Updates before the run's other stages."""
    batch_size: int = Field(16, ge=1)
    """Episodes, or pairs, of an update."""
    learning_rate: float = Field(1e-4, gt=0)
    """Constant learning rate of AdamW, after a warm-up."""
    heldout_share: float = Field(0.1, ge=0, lt=1)
    """Share of the data's tasks on which the model is measured and not trained."""
    beside_policy: bool = False
    """One more update in each step of RL, on that step's episodes and what the verifier says of
    them; without it the model is frozen."""

    def claims(self) -> Iterator[Claim]:
        yield Claim("reward_model", (Need.WORDS,))
        if self.beside_policy:
            later = {Need.FIXED_REWARD: "would leave the best policy with a later one"}
            yield Claim("reward_model.beside_policy", (Need.STILL_POLICY,), later)
