"""Settings of model, environment, scaffold and episodes."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StrictInt, model_validator

from turnwise.config.section import IS_MODEL, Section
from turnwise.conflicts import Claim, Need


class ModelConfig(Section):
    """The weights that are trained."""

    name: Annotated[str, IS_MODEL] = "tiny"
    """`tiny` (embedded), a folder, a GGUF file, `smollm2-135m`, or a hub name: anything
    AutoModelForCausalLM loads."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """The type that the model computes and samples in. Weights trained in bfloat16 have masters in
    float32: training takes 18 bytes for each of them, and 16 in float32."""
    device: str = "auto"
    """`cpu`, `cuda`, `cuda:1`, …; `auto` is the first GPU if there is one."""
    lora_rank: int = Field(0, ge=0)
    """0 trains all weights; otherwise LoRA adapters of this rank on all linear layers."""
    gradient_checkpointing: bool = False
    """Compute activations again in the backward pass in place of keeping them: less memory, a third
    more time."""
    offload_activations: bool = False
    """Keep what `gradient_checkpointing` keeps of each layer in the processor's memory: less of a
    GPU's memory, and time to move it."""

    def claims(self) -> Iterator[Claim]:
        checkpoints = f"model.gradient_checkpointing = {str(self.gradient_checkpointing).lower()}"
        if self.gradient_checkpointing:
            yield Claim(checkpoints, denies={Need.ONE_PASS: "computes them again"})
        else:
            remedy = "set model.gradient_checkpointing=true"
            yield Claim(checkpoints, denies={Need.INPUTS_KEPT: "keeps none"}, remedy=remedy)
        if self.offload_activations:
            yield Claim("model.offload_activations", (Need.INPUTS_KEPT,))
        if not self.lora_rank:
            without = {Need.ADAPTERS: "trains all weights"}
            yield Claim("model.lora_rank = 0", denies=without, remedy="set model.lora_rank")


class LatencyConfig(Section):
    """Seconds that each tool call waits before it is run, drawn from a log-normal distribution: for
    measuring what slow tools cost."""

    mean: float = Field(gt=0)
    """Mean seconds of a call."""
    spread: float = Field(0.0, ge=0, le=3)
    """Standard deviation of the logarithm of the seconds. 0: all calls take the mean; at 1.25 half
    of them take less than 0.46 times the mean, and one in a hundred more than 8 times."""


class EnvironmentConfig(Section):
    """The agent's environment."""

    name: str
    """A name from `turnwise list`, or `path/to/file.py:Class`."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the environment's constructor."""
    tools: list[str] = Field(default_factory=list)
    """Functions marked `@tool`, such as `mine.py:convert`, beside the environment's own tools."""
    consequential: dict[str, Literal["allow", "confirm", "dry_run", "refuse"] | StrictInt] = Field(
        default_factory=dict
    )
    """Rules for tools that write, send or delete, by a tool's name or one of these words: refuse,
    dry_run, confirm (by making the call again), or how many may succeed in an episode."""
    latency: LatencyConfig | None = None
    """Seconds that tools are made to take; without it they take their own time alone."""

    def claims(self) -> Iterator[Claim]:
        for key in ("tools", "consequential", "latency"):
            if getattr(self, key):
                yield Claim(f"environment.{key}", (Need.OWN_LOOP,))


class ScaffoldConfig(Section):
    """The scaffold, between messages and tokens."""

    name: str = "tags"
    """A name from `turnwise list`, or `path/to/file.py:Class`."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the scaffold's constructor."""


class TemperatureScheduleConfig(Section):
    """A temperature that changes over the steps of RL, in a straight line between two of them."""

    temperature: float = Field(gt=0)
    """The temperature from `to_step` on."""
    from_step: int = Field(0, ge=0)
    """The step until which `rollout.temperature` holds."""
    to_step: int = Field(ge=1)
    """The step from which the new temperature holds."""

    @model_validator(mode="after")
    def _goes_forward(self) -> Self:
        if self.to_step <= self.from_step:
            raise ValueError(
                f"rollout.temperature_schedule ends at to_step = {self.to_step}, which is not "
                f"after from_step = {self.from_step}"
            )
        return self


class HorizonConfig(Section):
    """A number of turns that grows with success, from few to `rollout.max_turns`."""

    turns: int = Field(ge=1)
    """Turns of an episode at first."""
    grow_by: int = Field(1, ge=1)
    """Turns that are added at a time."""
    target: float = Field(0.6, gt=0, le=1)
    """Success in training, over the last `window` steps at one horizon, from which it grows."""
    window: int = Field(3, ge=1)
    """Steps that success is averaged over."""
    part: str = ""
    """A number that the environment reports (`turnwise rewards ENVIRONMENT`), held against `target`
    in place of success, for episodes that cannot succeed in fewer turns than
    `rollout.max_turns`."""


class RolloutConfig(Section):
    """Budgets of one episode. An episode that reaches one is truncated, graded and flagged."""

    temperature: float = Field(1.0, ge=0)
    """Divisor of the logits when RL samples; 0 takes the likeliest token."""
    top_k: int = Field(0, ge=0)
    """Sample only among this many most likely tokens; 0 is all."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Then sample only among the fewest tokens that have this share of the probability."""
    min_p: float = Field(0.0, ge=0, le=1)
    """Then sample only among tokens at least this many times as likely as the most likely one. The
    learner's probabilities are over what these three leave: docs/how-to/corrections.md."""
    routing_replay: bool = False
    """Keep with each token the experts of a mixture that sampled it, and let the learner's routers
    choose the same (R3): docs/how-to/corrections.md."""
    max_turns: int = Field(6, ge=1)
    """Turns of the model."""
    max_turn_tokens: int = Field(64, ge=1)
    """Tokens sampled in one turn."""
    max_tokens: int = Field(768, ge=16)
    """Tokens of the whole trajectory, observations included; of each context where they follow one
    another."""
    context: Literal["fail", "drop", "truncate", "summarise"] = "fail"
    """Reaction when the next turn might not fit into `max_tokens`. `fail`: truncate the episode.
    Else a new context follows, with the latest turns (`drop`), with earlier observations cut short
    (`truncate`), or with a summary by the model (`summarise`)."""
    max_tool_calls: int = Field(8, ge=0)
    """Tool calls in all turns together."""
    max_seconds: float = Field(120.0, gt=0)
    """Time limit of one episode's environment in all, and of each reset, step, verify and close.
    Waiting for the model is not counted."""
    max_ungraded_share: float = Field(0.05, ge=0, le=1)
    """The run stops when more of a step's episodes end without a grade."""

    temperature_schedule: TemperatureScheduleConfig | None = None
    """The temperature stays as it is where this is left out."""
    horizon: HorizonConfig | None = None
    """RL plays episodes of `max_turns` from the first step on where this is left out."""

    def claims(self) -> Iterator[Claim]:
        if self.routing_replay:
            needs = (Need.ONE_PASS, Need.WHOLE_ROWS, Need.PLAIN_ROWS, Need.OWN_LOOP)
            yield Claim("rollout.routing_replay", needs, remedy="set rollout.routing_replay=false")
        if self.context != "fail":
            several = {Need.ONE_CONTEXT: "lets several follow one another"}
            if self.context == "truncate":
                several[Need.IMAGES] = "would cut them"
            setting = f"rollout.context = {self.context!r}"
            yield Claim(setting, (Need.OWN_LOOP,), several, "set rollout.context to 'fail'")
        if self.temperature > 0 and self.top_p < 1 and self.min_p > 0:
            both = "set rollout.top_p or rollout.min_p, not both"
            yield Claim("rollout.top_p with rollout.min_p", (Need.MIN_P_LAST,), remedy=both)
        if self.truncates:
            some = {Need.WHOLE_VOCABULARY: "leaves some out"}
            yield Claim("rollout.top_k, top_p or min_p", denies=some, remedy="leave it out")

    @property
    def truncates(self) -> bool:
        """Whether some tokens are left out of the distribution that is sampled."""
        return self.top_k > 0 or self.top_p < 1 or self.min_p > 0

    @property
    def returns_kept(self) -> bool:
        """Whether each token is recorded with those that it was drawn among."""
        return self.truncates

    def unlearned(self, temperature: float) -> "UnlearnedRolloutConfig":
        """The limits of episodes at a temperature that nothing is learned from."""
        changes = {"temperature": temperature, "routing_replay": False}
        return UnlearnedRolloutConfig.model_construct(**dict(self) | changes)

    @model_validator(mode="after")
    def _horizon_is_shorter(self) -> Self:
        if self.horizon is not None and self.horizon.turns >= self.max_turns:
            raise ValueError(
                f"rollout.horizon.turns = {self.horizon.turns} is not below rollout.max_turns = "
                f"{self.max_turns}, to which it grows"
            )
        return self

    @model_validator(mode="after")
    def _new_contexts_have_room(self) -> "RolloutConfig":
        if self.context != "fail" and self.max_tokens < 4 * self.max_turn_tokens:
            raise ValueError(
                f"rollout.context is {self.context}, but rollout.max_tokens = {self.max_tokens} is "
                f"less than four turns of rollout.max_turn_tokens = {self.max_turn_tokens}: a new "
                "context would be full at once; raise one or lower the other"
            )
        return self


class UnlearnedRolloutConfig(RolloutConfig):
    """Limits of episodes that nothing is learned from, as those of an evaluation: neither experts
    nor the tokens that truncation left are kept."""

    @property
    def returns_kept(self) -> bool:
        return False
