"""Settings of the RL loop, of what it plays, and of what is measured of a run."""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from turnwise.config.section import IS_MODEL, Choice, Section
from turnwise.conflicts import Claim, Need


class TrainConfig(Section):
    """The RL loop."""

    steps: int = Field(40, ge=0)
    """Steps of RL, each with new trajectories; 0 skips the stage."""
    tasks_per_step: int = Field(16, ge=1)
    """Tasks of one step, each with a group of trajectories."""
    group_size: int = Field(8, ge=1)
    """Trajectories per task."""
    dynamic_sampling_rounds: int = Field(0, ge=0)
    """Times that a step may sample as many groups again because the algorithm's filter left fewer
    than `tasks_per_step` (DAPO's dynamic sampling)."""
    max_staleness: int = Field(0, ge=0)
    """Updates between the weights that sampled a token and the update that trains on it, at most.
    0: sampling and learning take turns. More: so many steps are sampled ahead while learning goes
    on, with a copy of the weights."""
    oversample: int = Field(0, ge=0)
    """Episodes of each task begun beyond `group_size`; when that many have a grade, the others are
    cancelled. No step waits for the slowest then, but short episodes are favoured."""
    checkpoint_every: int = Field(5, ge=1)
    """Steps between two checkpoints."""
    keep_checkpoints: int = Field(2, ge=1)
    """Newest checkpoints of a stage that are kept."""

    def claims(self) -> Iterator[Claim]:
        if not self.steps:
            yield Claim("train.steps = 0", denies={Need.STEPS_OF_RL: "makes none"})
        ahead = f"train.max_staleness = {self.max_staleness}"
        if self.max_staleness:
            learning = {Need.STILL_POLICY: "samples while it learns"}
            remedy = "set train.max_staleness=0"
            yield Claim(ahead, (Need.FREE_SAMPLING,), learning, remedy)
        else:
            yield Claim(ahead, denies={Need.TURNS_UNDER_WAY: "has none then"})
        if self.oversample:
            needs = (Need.FREE_SAMPLING, Need.SPARE_EPISODES)
            setting = f"train.oversample = {self.oversample}"
            yield Claim(setting, needs, remedy="set train.oversample=0")
        if self.dynamic_sampling_rounds:
            yield Claim("train.dynamic_sampling_rounds", (Need.GROUPS_LEFT_OUT,))


class AllTasks(Section):
    """Shuffled passes over all tasks."""

    kind: Literal["all"] = "all"
    """Every task comes once in each pass."""


class BySuccess(Section):
    """Tasks that are solved neither always nor never."""

    kind: Literal["by_success"]
    """Tasks are chosen by their success rates so far."""
    target: float = Field(0.5, ge=0, le=1)
    """Success rate of the tasks that teach most."""
    margin: float = Field(0.3, ge=0, le=1)
    """Tasks whose success rate is at most so far from `target` are preferred."""
    window: int = Field(16, ge=1)
    """Episodes of a task, its last graded ones, that its success rate is measured over."""
    random_share: float = Field(0.25, gt=0, lt=1)
    """Share of each step's tasks that is drawn from all, so that no task is lost for ever."""

    def claims(self) -> Iterator[Claim]:
        yield Claim("curriculum.kind = 'by_success'", (Need.STILL_POLICY,))

    @property
    def band(self) -> tuple[float, float]:
        """The lowest and the highest of the preferred success rates."""
        return self.target - self.margin, self.target + self.margin


Curriculum = Annotated[AllTasks | BySuccess, Choice("kind")]
"""The choice of the tasks that RL plays."""


class EchoTrapConfig(Section):
    """The reaction to an agent that begins to repeat itself."""

    highest_reward: float = Field(1.0, gt=0)
    """Highest reward of the task: near it, a small spread of rewards is success, not a trap."""


class PlainReaction(EchoTrapConfig):
    """A reaction without a number of its own."""

    reaction: Literal["off", "warn", "stop", "filter"] = "warn"
    """Nothing (`off`); say so (`warn`); and save and stop (`stop`); train on the groups that differ
    most (`filter`)."""
    learning_rate_factor: ClassVar[float] = 1.0


class LearningRateReaction(EchoTrapConfig):
    """A reaction that may lower the learning rate."""

    reaction: str
    """Lower the learning rate (`lower_learning_rate`); and go back to the best checkpoint
    (`roll_back`); or your own function."""
    learning_rate_factor: float = Field(0.5, gt=0, lt=1)
    """Factor on the learning rate, at each reaction."""

    def claims(self) -> Iterator[Claim]:
        if self.reaction == "roll_back":
            yield Claim("monitor.echo_trap.reaction = 'roll_back'", (Need.STILL_POLICY,))


EchoTrapReaction = Annotated[PlainReaction | LearningRateReaction, Choice("reaction")]


class MutualInformationConfig(Section):
    """Estimates of how much the reasoning depends on the task."""

    every: int = Field(ge=1)
    """Steps between two estimates."""
    tasks: int = Field(16, ge=2)
    """Number N of tasks in an estimate: it costs N² forward passes, and is at most log N."""

    def claims(self) -> Iterator[Claim]:
        yield Claim("monitor.mutual_information", (Need.WORDS,))


class MonitorConfig(Section):
    """Monitoring of a run: signs of collapse, costly estimates, trackers."""

    echo_trap: EchoTrapReaction = PlainReaction()
    mutual_information: MutualInformationConfig | None = None
    """None is made where this is left out."""
    gradient_variance_every: int = Field(0, ge=0)
    """Steps between two measurements of the gradient's noise; 0 makes none. One costs a backward
    pass for each group, and memory for one more gradient."""
    trackers: tuple[str, ...] = ()
    """Trackers that get the metrics besides the run folder: `tensorboard`, `wandb`, `mlflow`,
    `trackio`, or your own class."""


class ValidationConfig(Section):
    """Evaluations during RL, on held-out tasks that the others do not play."""

    every: int = Field(ge=1)
    """RL steps between two evaluations."""
    tasks: int = Field(100, ge=1)
    """Tasks of each evaluation."""
    keep_best: bool = False
    """RL ends with the weights that did best in these evaluations, not the last ones. `every` is
    then a multiple of `train.checkpoint_every`."""
    patience: int = Field(0, ge=0)
    """RL stops after so many evaluations without a better one; 0 for never."""

    def claims(self) -> Iterator[Claim]:
        yield Claim("evaluation.during_rl", (Need.STILL_POLICY,))
        if self.keep_best:
            yield Claim("evaluation.during_rl.keep_best", (Need.FIXED_REWARD,))


class PriceConfig(Section):
    """Prices of what an evaluation takes; it is multiplied with them, and nothing is looked up."""

    hour: float = Field(0.0, ge=0)
    """Price of an hour of the machine."""
    million_sampled_tokens: float = Field(0.0, ge=0)
    """Price of a million tokens that the model samples."""
    million_read_tokens: float = Field(0.0, ge=0)
    """Price of a million tokens that the model is given. Each counts once in an episode, as where
    its cache is kept between turns."""
    tool_call: float = Field(0.0, ge=0)
    """Price of a tool call."""


class EvaluationConfig(Section):
    """The held-out evaluation after the cold start and after RL, and its comparisons."""

    tasks: int = Field(1000, ge=0)
    """Distinct held-out tasks; 0 skips the evaluation."""
    episodes_per_task: int = Field(1, ge=1)
    """Episodes of each task. Several give pass@k and pass^k, and intervals clustered by task."""
    k: tuple[int, ...] = ()
    """Each k of pass@k and pass^k, at most `episodes_per_task`; the powers of two if empty."""
    best_of: str = ""
    """The part of the reward by which the best of k episodes is chosen, whose success is reported
    beside pass@k; empty for none."""
    temperature: float = Field(0.0, ge=0)
    """The temperature of evaluations: see `rollout.temperature`."""
    base: Annotated[bool | str, IS_MODEL] = False
    """Evaluate the weights that the run begins with, too; or, given the name of a model with the
    same tokenizer, that one: such as what an earlier cold start was made of."""
    sft: bool = False
    """Evaluate imitation alone: the weights that the run begins with, after as many updates on the
    cold start's demonstrations as the cold start and RL have together."""
    ablations: bool = True
    """Evaluate the trained policy also in the environment's variants in which something needed is
    taken away."""
    during_rl: ValidationConfig | None = None
    """None is made where this is left out."""
    prices: PriceConfig | None = None
    """Reports have no cost where this is left out."""
    seed: int = 0
    """Chooses the tasks, so that runs with different seeds are compared on the same ones."""

    @model_validator(mode="after")
    def _best_is_of_several(self) -> "EvaluationConfig":
        if self.best_of and self.episodes_per_task == 1:
            raise ValueError(
                "evaluation.best_of chooses among a task's episodes, and there is one: raise "
                "evaluation.episodes_per_task"
            )
        return self

    @model_validator(mode="after")
    def _k_is_within_the_episodes(self) -> "EvaluationConfig":
        wrong = [k for k in self.k if not 1 <= k <= self.episodes_per_task]
        if wrong:
            raise ValueError(
                f"evaluation.k has {wrong[0]}: give numbers from 1 to "
                f"evaluation.episodes_per_task = {self.episodes_per_task}"
            )
        return self
