"""Settings of learning: optimizer, algorithm and what it measures with, imitation, preferences."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from turnwise.config.section import IS_MODEL, IS_PATH, Choice, Section
from turnwise.conflicts import Claim, Need

ADAPTERS_RATE, FULL_RATE = 1e-4, 1e-6
"""Learning rates where a recipe names none: of LoRA's adapters, and of all weights."""


class LearningConfig(Section):
    """The optimizer and the batch."""

    learning_rate: float = Field(ADAPTERS_RATE, gt=0)
    """Highest rate of AdamW, after the warm-up; 1e-6 if a recipe names none and trains all weights
    (`model.lora_rank` is 0). Tiny models take 100 to 1000 times as much."""
    warmup_steps: int = Field(0, ge=0)
    """Updates in which the rate rises linearly to `learning_rate`."""
    weight_decay: float = Field(0.0, ge=0)
    """AdamW's decay of matrices; norms and biases have none."""
    betas: tuple[float, float] = (0.9, 0.95)
    """AdamW's decay rates of its two moments."""
    max_gradient_norm: float = Field(1.0, gt=0)
    """Longer gradients are scaled down to this norm."""
    updates_per_step: int = Field(1, ge=1)
    """Optimizer updates in one pass over a step's trajectories, each on an equal share of its
    groups (PPO's minibatches)."""
    epochs: int = Field(1, ge=1)
    """Passes over a step's trajectories, of the policy and of the critic alike."""
    tokens_per_micro_batch: int = Field(4096, ge=64)
    """Padded tokens in one forward pass. Changes memory and speed, never the gradient."""
    offload_optimizer: bool = False
    """Keep AdamW's moments, and the float32 weights that it moves, in the processor's memory: 8 to
    12 bytes less for each trained weight on a GPU, and a slower update."""
    share_prefixes: bool = False
    """Compute the common prefixes of a group's trajectories once in the policy update, where that
    is less work. The gradient is the same; the model must have full attention."""
    compute_dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """The type of an update's matrix products. `auto` takes bfloat16, by PyTorch's autocast, for
    models of 20 million parameters and more where a trial on this machine finds it 1.2 times as
    fast, and float32 otherwise; weights in bfloat16 are computed in it. The run's config has what
    was chosen."""
    mask_observations: bool = True
    """False trains on tool output as if the model had written it: only to show what that does."""

    def claims(self) -> Iterator[Claim]:
        if self.share_prefixes:
            needs = (Need.ONE_PASS, Need.WHOLE_ROWS, Need.WORDS)
            trees = {Need.PLAIN_ROWS: "computes trees of them"}
            yield Claim(
                "learning.share_prefixes", needs, trees, "set learning.share_prefixes=false"
            )
        if not self.mask_observations:
            yield Claim("learning.mask_observations = false", (Need.POLICY_LOSS, Need.OBSERVATIONS))

    @property
    def autocast(self) -> bool:
        """Whether matrix products run in PyTorch's autocast to bfloat16."""
        return self.compute_dtype == "bfloat16"


class CriticConfig(Section):
    """The model of values, for algorithms with a critic. Other settings are those of `learning`."""

    learning_rate: float = Field(1e-3, gt=0)
    """The critic's rate: see `learning.learning_rate`."""
    pretraining_steps: int = Field(0, ge=0)
    """Steps at the beginning in which the critic alone is trained."""
    clip: float = Field(0.5, gt=0)
    """Largest change of a value in one step; beyond it the gradient stops."""


class SeparateCriticConfig(CriticConfig):
    """A separate model, begun as a copy of the policy's body."""

    kind: Literal["separate"] = "separate"
    """A model of its own: it takes the memory of a second policy."""


class ValueHeadConfig(CriticConfig):
    """A head on the policy's body."""

    kind: Literal["head"]
    """One number beside the policy's logits: no second model."""
    body_coefficient: float = Field(0.1, ge=0)
    """Weight of the value loss in updates of the policy's body; 0 keeps it out."""


AnyCriticConfig = Annotated[SeparateCriticConfig | ValueHeadConfig, Choice("kind")]


class ImplicitRewardConfig(Section):
    """The model of process rewards, for algorithms with one. Other settings are those of
    `learning`."""

    learning_rate: float = Field(6e-4, gt=0)
    """The rate of this model: see `learning.learning_rate`."""
    beta: float = Field(0.05, gt=0)
    """The reward of a token is beta log(model / reference)."""


class TeacherConfig(Section):
    """The second models of algorithms that distil them."""

    model: Annotated[str | dict[str, str], IS_MODEL]
    """A folder or a hub name, as `model.name`, with the policy's vocabulary; or a table of them by
    environments of `joint`, of which all others are not distilled."""

    @property
    def by_environment(self) -> dict[str, str]:
        """The names of models by environments; a single one, of all, has the key ""."""
        return {"": self.model} if isinstance(self.model, str) else self.model

    def claims(self) -> Iterator[Claim]:
        yield Claim("algorithm.teacher", (Need.WORDS,))


class SelfTeacherConfig(Section):
    """The policy's average as a teacher, for algorithms with a self- or feedback teacher."""

    rate: float = Field(0.05, gt=0, le=1)
    """Share of the average that the policy replaces in each step."""
    alpha: float = Field(0.5, gt=0, lt=1)
    """Weight of the teacher in the Jensen-Shannon divergence."""
    cap: float = Field(2.0, gt=0)
    """Upper bound of a token's importance weight."""


class AlgorithmConfig(Section):
    """The objective of the update: a named algorithm, and beside its name its changed parts and
    numbers, such as `aggregation = "token_mean"`.

    The settings of its signals are tables of it, as in `[algorithm.critic]`: only those that the
    algorithm has may be given, and those that are left out have their defaults.
    """

    model_config = ConfigDict(extra="allow")

    name: str = "grpo"
    """A name from `turnwise algorithms`."""
    critic: AnyCriticConfig | None = None
    implicit_reward: ImplicitRewardConfig | None = None
    teacher: TeacherConfig | None = None
    self_teacher: SelfTeacherConfig | None = None

    @property
    def overrides(self) -> dict[str, Any]:
        """The parts and numbers that replace those of the named algorithm."""
        return dict(self.model_extra or {})


class ScriptedDemonstrations(Section):
    """Demonstrations that scripted behaviours play."""

    count: int = Field(2048, ge=1)
    """Demonstrations to play, each on a task of training."""
    behaviours: dict[str, float] = Field(default_factory=dict)
    """Share of each scripted behaviour, by its name; your own is a function."""
    turns: int | None = Field(None, ge=1)
    """Turns of a demonstration at most, where the first ones show all that is to be imitated;
    `rollout.max_turns` if not given."""


class RecordedDemonstrations(Section):
    """Conversations of a file."""

    file: Annotated[str, IS_PATH]
    """JSON lines of chat messages with tool calls, a trajectory in ATIF, or a folder of those
    (docs/how-to/cold_start.md)."""


Demonstrations = Annotated[RecordedDemonstrations | ScriptedDemonstrations, Choice("file")]


class SftConfig(Section):
    """The cold start: supervised learning on demonstrations, before RL. `steps = 0` skips it."""

    steps: int = Field(0, ge=0)
    """Updates."""
    batch_size: int = Field(64, ge=1)
    """Demonstrations per update."""
    learning_rate: float = Field(1e-3, gt=0)
    """Highest rate, after the warm-up; then it falls to a tenth along half a cosine."""
    warmup_steps: int = Field(10, ge=0)
    """Updates in which the rate rises linearly to `learning_rate`."""
    demonstrations: Demonstrations = ScriptedDemonstrations()
    """Played by scripted behaviours, or with `file` read from a file."""
    checkpoint_every: int = Field(50, ge=1)
    """Steps between two checkpoints."""
