"""A recipe: every choice of a run, as TOML checked by pydantic, with `key=value` overrides.

Not here: what the names of environments, algorithms and engines stand for; each registry checks its
own. A recipe that names something unknown is refused before anything is loaded.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, StrictInt, ValidationError

from turnwise.errors import ConfigError, unknown_name, wrong_value

EXACT_PARITY = 0.001
"""Default of `engine.parity_bound` where everything is computed in float32: 2^13 units of its
rounding."""
ROUNDED_PARITY = 0.05
"""Default of `engine.parity_bound` on servers, and with bfloat16, where gaps reached 0.03."""


class Section(BaseModel):
    """A part of a recipe: unknown keys are errors, values do not change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class ModelConfig(Section):
    """The weights that are trained."""

    name: str = "tiny"
    """`tiny` (embedded), a folder, or a hub name: anything AutoModelForCausalLM loads."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """The type that the model computes and samples in. Where weights in bfloat16 are trained, the
    optimizer keeps masters in float32: training then takes 18 bytes for each of them, and 16 in
    float32."""
    device: str = "auto"
    """`cpu`, `cuda`, `cuda:1`, …; `auto` is the first GPU if there is one."""
    lora_rank: int = Field(0, ge=0)
    """0 trains all weights; otherwise LoRA adapters of this rank on all linear layers."""
    gradient_checkpointing: bool = False
    kernels: Literal["auto", "off"] = "auto"
    """`off` computes without compiled kernels, in engine and learner; `auto` with them where this
    machine has them for such a model. `TURNWISE_KERNELS=off` does the same for every model."""


class EnvironmentConfig(Section):
    """The agent's environment: a name from `turnwise list`, or `path/to/file.py:Class`."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the environment's constructor."""
    consequential: dict[str, Literal["allow", "confirm", "dry_run", "refuse"] | StrictInt] = Field(
        default_factory=dict
    )
    """Rules for tools that write, send or delete, by a tool's name or one of these words: refuse,
    dry_run, confirm (by making the call again), or how many may succeed in an episode."""


class ScaffoldConfig(Section):
    """The scaffold, between messages and tokens: a name from `turnwise list`, or
    `path/to/file.py:Class`."""

    name: str = "tags"
    options: dict[str, Any] = Field(default_factory=dict)


class EngineConfig(Section):
    """The engine that samples tokens: a name from `turnwise list`, or `path/to/file.py:Class`."""

    name: str = "embedded"
    options: dict[str, Any] = Field(default_factory=dict)
    """Arguments of your own engine."""
    max_sequences: int = Field(64, ge=1)
    """Trajectories whose KV cache is held at once, at most."""
    kv_cache_tokens: int = Field(0, ge=0)
    """Tokens of all trajectories together whose keys and values are held: it bounds the cache's
    memory. A sequence without room waits, or is computed again. 0 is `max_sequences` times
    `rollout.max_tokens`."""
    max_concurrent_episodes: int = Field(0, ge=0)
    """Episodes under way at once; 0 is `max_sequences`. With more, others sample while slow tools
    keep many waiting; a waiting episode may lose its cache, which is then computed again."""
    deterministic: bool = True
    """Sample in lockstep, so that the same seed gives the same run; waits for the slowest tool."""
    compute_dtype: Literal["auto", "bfloat16"] = "auto"
    """The type that sampling computes in: `auto` is `model.dtype`. `bfloat16` beside weights in
    float32 is for small models of Llama's and Qwen3's shapes. Log-probabilities are those of the
    sampled distribution, and differ from the learner's by its rounding."""
    parity_bound: float = Field(0.0, ge=0)
    """Largest mean distance of the engine's log-probabilities of sampled tokens from the model's
    own, in nats. A run does not begin beyond it (docs/reference/models.md); it stops when
    `policy/logprob_gap` is beyond it, or a server's gap after new weights. 0 is 0.001 where all is
    computed in float32, else 0.05."""


class VllmConfig(Section):
    """The servers of `engine.name = "vllm"`, each with all of the model: docs/how-to/vllm.md."""

    python: str = ""
    """Interpreter of the environment that has vLLM, to start servers with; this one if empty."""
    urls: tuple[str, ...] = ()
    """Servers that run already, to be used instead: `["http://127.0.0.1:8000"]`. They must see the
    run's folder by the same name."""
    replicas: int = Field(1, ge=1)
    """Servers to start, with `engine.max_sequences` among them."""
    devices: tuple[str, ...] = ()
    """CUDA_VISIBLE_DEVICES of each server that is started: `["0", "1"]`; the same if empty."""
    arguments: tuple[str, ...] = ()
    """Further command-line arguments of each server that is started."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Data type that started servers compute in; `auto` is `model.dtype`."""
    colocated: bool = False
    """Servers share their GPU with the learner: they give its memory back while it learns."""
    max_restarts: int = Field(3, ge=0)
    """Restarts of crashed servers over the whole run, at most."""
    start_seconds: float = Field(600.0, gt=0)
    """Deadline of a server's start, and of its reading new weights."""
    request_seconds: float = Field(300.0, gt=0)
    """Deadline of a turn; an episode whose turn takes longer is ungraded."""


class RolloutConfig(Section):
    """Budgets of one episode. An episode that reaches one is truncated, graded and flagged."""

    temperature: float = Field(1.0, ge=0)
    top_k: int = Field(0, ge=0)
    """Sample only among this many most likely tokens; 0 is all."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Then sample only among the fewest tokens that have this share of the probability."""
    min_p: float = Field(0.0, ge=0, le=1)
    """Then sample only among tokens at least this many times as likely as the most likely one."""
    max_turns: int = Field(6, ge=1)
    max_turn_tokens: int = Field(64, ge=1)
    """Tokens sampled in one turn."""
    max_tokens: int = Field(768, ge=16)
    """Tokens of the whole trajectory, observations included; of each context where they follow one
    another."""
    context: Literal["fail", "drop", "truncate", "summarise"] = "fail"
    """Reaction when the next turn might not fit into `max_tokens` any more. `fail`: truncate the
    episode. Else a new context follows, with only the latest turns (`drop`), with earlier
    observations cut short (`truncate`), or with a summary that the model writes (`summarise`)."""
    max_tool_calls: int = Field(8, ge=0)
    max_seconds: float = Field(120.0, gt=0)
    """Time limit of one episode's environment in all, and of each reset, step, verify and close.
    Waiting for the model is not counted."""
    max_ungraded_share: float = Field(0.05, ge=0, le=1)
    """The run stops when more of a step's episodes end without a grade."""


class AlgorithmConfig(Section):
    """The objective of the update: a named algorithm, and beside its name its changed parts and
    numbers, such as `aggregation = "token_mean"`."""

    model_config = ConfigDict(extra="allow")

    name: str = "grpo"

    @property
    def overrides(self) -> dict[str, Any]:
        """The parts and numbers that replace those of the named algorithm."""
        return dict(self.model_extra or {})


class LearningConfig(Section):
    """The optimizer and the batch."""

    learning_rate: float = Field(3e-4, gt=0)
    warmup_steps: int = Field(0, ge=0)
    weight_decay: float = Field(0.0, ge=0)
    betas: tuple[float, float] = (0.9, 0.95)
    max_gradient_norm: float = Field(1.0, gt=0)
    updates_per_step: int = Field(1, ge=1)
    """Optimizer updates in one pass over a step's trajectories, each on an equal share of its
    groups (PPO's minibatches)."""
    epochs: int = Field(1, ge=1)
    """Passes over a step's trajectories, of the policy and of the critic alike."""
    tokens_per_micro_batch: int = Field(4096, ge=64)
    """Padded tokens in one forward pass. Changes memory and speed, never the gradient."""
    share_prefixes: bool = False
    """Compute the common prefixes of a group's trajectories once in the policy update, where that
    is less work. The gradient is the same; the model must have full attention."""
    compute_dtype: Literal["auto", "bfloat16"] = "auto"
    """The type of matrix products: `auto` is `model.dtype`; `bfloat16` beside weights in float32 is
    PyTorch's autocast."""
    mask_observations: bool = True
    """False trains on tool output as if the model had written it: only to show what that does."""

    @property
    def autocast(self) -> bool:
        """Whether matrix products run in PyTorch's autocast to bfloat16."""
        return self.compute_dtype == "bfloat16"


class CriticConfig(Section):
    """The model of values, for algorithms that need one. Other settings are those of `learning`."""

    kind: Literal["separate", "head"] = "separate"
    """A separate model, begun as a copy of the policy's body; or a head on that body itself."""
    body_coefficient: float = Field(0.1, ge=0)
    """Weight of the value loss in updates of the policy's body, for `head`; 0 keeps it out."""
    learning_rate: float = Field(1e-3, gt=0)
    pretraining_steps: int = Field(0, ge=0)
    """Steps at the beginning in which the critic alone is trained."""
    clip: float = Field(0.5, gt=0)
    """Largest change of a value in one step; beyond it the gradient stops."""


class ImplicitRewardConfig(Section):
    """The model of process rewards, for algorithms that need one. Other settings are those of
    `learning`."""

    learning_rate: float = Field(6e-4, gt=0)
    beta: float = Field(0.05, gt=0)
    """The reward of a token is beta log(model / reference)."""


class SftConfig(Section):
    """The cold start: supervised learning on demonstrations, before RL. `steps = 0` skips it."""

    steps: int = Field(0, ge=0)
    batch_size: int = Field(64, ge=1)
    """Demonstrations per update."""
    learning_rate: float = Field(1e-3, gt=0)
    warmup_steps: int = Field(10, ge=0)
    demonstrations: int = Field(2048, ge=1)
    behaviours: dict[str, float] = Field(default_factory=dict)
    """Share of each scripted behaviour, by its name; your own is a function."""
    file: str = ""
    """Conversations to learn from in place of scripted demonstrations: JSON lines of chat messages
    with tool calls (docs/how-to/cold_start.md)."""
    checkpoint_every: int = Field(50, ge=1)


class TeacherConfig(Section):
    """The second model of algorithms that distil one."""

    model: str = ""
    """A folder or a hub name, as `model.name`; it must have the policy's vocabulary."""


class SelfTeacherConfig(Section):
    """The policy's average as a teacher, for algorithms with a self_teacher_coefficient."""

    rate: float = Field(0.05, gt=0, le=1)
    """Share of the average that the policy replaces in each step."""
    alpha: float = Field(0.5, gt=0, lt=1)
    """Weight of the teacher in the Jensen-Shannon divergence."""
    cap: float = Field(2.0, gt=0)
    """Upper bound of a token's importance weight."""


class PreferencesConfig(Section):
    """Learning from pairs of the policy's own trajectories, after RL. `steps = 0` skips it."""

    steps: int = Field(0, ge=0)
    pairs: int = Field(256, ge=1)
    """Groups to sample, of `train.group_size` trajectories each; a group whose rewards differ gives
    a pair, its best and its worst."""
    batch_size: int = Field(16, ge=1)
    """Pairs per update."""
    beta: float = Field(0.1, gt=0)
    """Strength that holds the policy to the one that the stage began with."""
    learning_rate: float = Field(5e-6, gt=0)


class TrainConfig(Section):
    """The RL loop."""

    steps: int = Field(40, ge=0)
    tasks_per_step: int = Field(16, ge=1)
    group_size: int = Field(8, ge=1)
    """Trajectories per task."""
    dynamic_sampling_rounds: int = Field(0, ge=0)
    """Times that a step may sample as many groups again because the algorithm's filter left fewer
    than `tasks_per_step` (DAPO's dynamic sampling). All kept groups are trained on."""
    max_staleness: int = Field(0, ge=0)
    """Updates between the weights that sampled a token and the update that trains on it, at most.
    0: sampling and learning take turns. More: so many steps are sampled ahead while learning goes
    on, with a copy of the weights; which step ahead gets which weights depends on the clock."""
    oversample: int = Field(0, ge=0)
    """Episodes of each task begun beyond `group_size`; when that many have a grade, the others are
    cancelled. No step waits for the slowest then, but short episodes are favoured."""
    checkpoint_every: int = Field(5, ge=1)
    keep_checkpoints: int = Field(2, ge=1)


class CurriculumConfig(Section):
    """The choice of the tasks that RL plays."""

    tasks: Literal["all", "by_success"] = "all"
    """`all`: shuffled passes over all. `by_success`: tasks solved neither always nor never."""
    lowest: float = Field(0.2, ge=0, le=1)
    highest: float = Field(0.8, ge=0, le=1)
    """Tasks whose success rate is from `lowest` to `highest` are preferred."""
    window: int = Field(16, ge=1)
    """Episodes of a task, its last graded ones, that its success rate is measured over."""
    random_share: float = Field(0.25, gt=0, lt=1)
    """Share of each step's tasks that is drawn from all, so that no task is lost for ever."""


class MonitorConfig(Section):
    """Monitoring of a run: signs of collapse, costly estimates, trackers."""

    echo_trap: str = "warn"
    """Reaction when the agent begins to repeat itself: nothing (`off`); say so (`warn`); and save
    and stop (`stop`); lower the learning rate (`lower_learning_rate`); train on the groups that
    differ most (`filter`); go back to the best checkpoint (`roll_back`); or your own function."""
    learning_rate_factor: float = Field(0.5, gt=0, lt=1)
    """Factor on the learning rate where `echo_trap` lowers it."""
    highest_reward: float = Field(1.0, gt=0)
    """Highest reward of the task: near it, a small spread of rewards is success, not a trap."""
    mutual_information_every: int = Field(0, ge=0)
    """Steps between two estimates of how much the reasoning depends on the task; 0 makes none."""
    mutual_information_tasks: int = Field(16, ge=2)
    """Number N of tasks in an estimate: it costs N² forward passes of a prompt with a first turn,
    and is at most log N."""
    gradient_variance_every: int = Field(0, ge=0)
    """Steps between two measurements of how much of the gradient is noise; 0 makes none. One costs
    a backward pass for each group, and memory for one more gradient."""
    trackers: tuple[str, ...] = ()
    """Trackers that get the metrics besides the run folder: `tensorboard`, `wandb`, `mlflow`,
    `trackio`, or your own class."""


class EvaluationConfig(Section):
    """The held-out evaluation after the cold start and after RL, and its comparisons."""

    tasks: int = Field(1000, ge=0)
    """Distinct held-out tasks; 0 skips the evaluation."""
    temperature: float = Field(0.0, ge=0)
    base: bool = False
    """Evaluate the weights that the run begins with, too, before the cold start."""
    sft: bool = False
    """Evaluate imitation alone: the weights that the run begins with, after as many updates on the
    cold start's demonstrations as the cold start and RL have together."""
    every: int = Field(0, ge=0)
    """RL steps between two evaluations during RL, on held-out tasks that the others do not play;
    0 for none. A multiple of `train.checkpoint_every`."""
    every_tasks: int = Field(100, ge=1)
    """Tasks of each evaluation during RL."""
    keep_best: bool = False
    """RL ends with the weights that did best in the evaluations during RL, not the last ones."""
    patience: int = Field(0, ge=0)
    """RL stops after so many evaluations during RL without a better one; 0 for never."""
    seed: int = 0
    """Chooses the tasks, so that runs with different seeds are compared on the same ones."""


class Recipe(Section):
    """A whole run. `turnwise train RECIPE key=value` changes any leaf: `train.steps=10`.

    >>> demo = turnwise.load_recipe("demo", "train.steps=10")
    """

    name: str
    seed: int = 0
    threads: int = Field(2, ge=1)
    """Threads of the numerical library; more than there are cores slows everything down."""
    model: ModelConfig = ModelConfig()
    environment: EnvironmentConfig
    sandbox: dict[str, Any] = Field(default_factory=dict)
    """Settings of the sandbox, for environments that run code: see docs/reference/sandbox.md."""
    scaffold: ScaffoldConfig = ScaffoldConfig()
    engine: EngineConfig = EngineConfig()
    vllm: VllmConfig = VllmConfig()
    rollout: RolloutConfig = RolloutConfig()
    algorithm: AlgorithmConfig = AlgorithmConfig()
    learning: LearningConfig = LearningConfig()
    critic: CriticConfig = CriticConfig()
    implicit_reward: ImplicitRewardConfig = ImplicitRewardConfig()
    sft: SftConfig = SftConfig()
    teacher: TeacherConfig = TeacherConfig()
    self_teacher: SelfTeacherConfig = SelfTeacherConfig()
    train: TrainConfig = TrainConfig()
    curriculum: CurriculumConfig = CurriculumConfig()
    preferences: PreferencesConfig = PreferencesConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    monitor: MonitorConfig = MonitorConfig()

    @property
    def parity_bound(self) -> float:
        """The bound `engine.parity_bound`, or its default."""
        types = self.model.dtype, self.engine.compute_dtype, self.learning.compute_dtype
        rounded = "bfloat16" in types or self.engine.name != "embedded"
        return self.engine.parity_bound or (ROUNDED_PARITY if rounded else EXACT_PARITY)


FREE_TABLES = (
    "environment.options",
    "environment.consequential",
    "sandbox",
    "scaffold.options",
    "engine.options",
    "algorithm",
    "sft.behaviours",
)
"""Tables whose keys are checked where they are used, not here."""

NAMED = ("engine",)
"""Tables that may be written as their name alone: `engine = "vllm"` is `engine.name = "vllm"`."""


def load_recipe(source: str, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe: a path to a TOML file, or the name of one that comes with turnwise.

    Overrides are `dotted.key=value`, the value in TOML syntax or a bare string. Raises ConfigError
    for a missing or malformed file, an unknown key (naming the nearest known one) or a bad value.
    """
    values = _read(source)
    for table in NAMED:
        if isinstance(values.get(table), str):
            values[table] = {"name": values[table]}
    for override in overrides:
        apply_override(values, override)
    return check_recipe(values, source)


def check_recipe(values: Mapping[str, Any], source: str) -> Recipe:
    """Validate a recipe's values; `source` names them in errors."""
    known = list(recipe_keys())
    for key in _flatten(values):
        inside = any(key == table or key.startswith(f"{table}.") for table in FREE_TABLES)
        if key not in known and not inside:
            raise ConfigError(f"{source}: {unknown_name('key', key, known)}")
    try:
        return Recipe.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise wrong_value(f"{source}: {where}", first) from None


def dump_recipe(recipe: Recipe) -> str:
    """The recipe as TOML with every value spelled out; `load_recipe` reads it back."""
    return tomli_w.dumps(recipe.model_dump(mode="json"))


def recipe_keys() -> Iterator[str]:
    """Every dotted key a recipe may have."""
    for name, section in Recipe.model_fields.items():
        if isinstance(section.annotation, type) and issubclass(section.annotation, Section):
            yield from (f"{name}.{key}" for key in section.annotation.model_fields)
        else:
            yield name


def shipped_recipes() -> dict[str, Path]:
    """Recipes that come with turnwise, by name."""
    folder = Path(str(resources.files("turnwise") / "recipes"))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def _read(source: str) -> dict[str, Any]:
    shipped = shipped_recipes()
    path = shipped.get(source, Path(source))
    if not path.is_file():
        if path.suffix or "/" in source:
            raise ConfigError(f"recipe {source}: there is no such file")
        raise unknown_name("recipe", source, shipped)
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"recipe {source} is not valid TOML: {error}") from None


def apply_override(values: dict[str, Any], override: str) -> None:
    """Set a `dotted.key=value` in nested tables, the value in TOML syntax or a bare string.

    Raises ConfigError for any other text."""
    key, separator, text = override.partition("=")
    if not separator or not key:
        raise ConfigError(f"override {override!r}: write key=value, as in train.steps=10")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    except RecursionError:
        raise ConfigError(f"override {key}: its value is nested too deeply") from None
    if key in NAMED:
        key += ".name"
    *tables, leaf = key.split(".")
    for table in tables:
        values = values.setdefault(table, {})
        if not isinstance(values, dict):
            raise ConfigError(f"override {override!r}: {table!r} is a value, not a table")
    values[leaf] = value


def _flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in values.items():
        dotted = f"{prefix}{key}"
        if isinstance(value, Mapping) and dotted not in FREE_TABLES and "." not in dotted:
            yield from _flatten(value, f"{dotted}.")
        else:
            yield dotted
