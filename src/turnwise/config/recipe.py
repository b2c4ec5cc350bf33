"""A recipe: every choice of a run, as sections checked by pydantic.

Not here: what the names of environments, algorithms and engines stand for; each registry checks its
own. Nor how a recipe is read (`loading.py`).

Next: `parts/components.py`.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Any

from pydantic import Field, ValidationInfo, field_validator, model_validator

from turnwise.config.agent import AnyAgentConfig
from turnwise.config.bounds import misfits
from turnwise.config.cluster import ClusterConfig
from turnwise.config.engine import (
    EXACT_PARITY,
    ROUNDED_PARITY,
    AnyEngineConfig,
    EmbeddedEngineConfig,
    OpenAIEngineConfig,
    TokenEngineConfig,
    VllmEngineConfig,
)
from turnwise.config.judge import AnyJudgeConfig
from turnwise.config.learning import (
    ADAPTERS_RATE,
    FULL_RATE,
    AlgorithmConfig,
    LearningConfig,
    PreferencesConfig,
    SftConfig,
)
from turnwise.config.reward import RewardConfig
from turnwise.config.reward_model import RewardModelConfig
from turnwise.config.rollout import (
    EnvironmentConfig,
    ModelConfig,
    RolloutConfig,
    ScaffoldConfig,
)
from turnwise.config.run import (
    AllTasks,
    Curriculum,
    EvaluationConfig,
    MonitorConfig,
    TrainConfig,
)
from turnwise.config.section import Section
from turnwise.conflicts import Claim, conflicts
from turnwise.errors import ConfigError
from turnwise.threads import physical_cores
from turnwise.wings import wings


class Recipe(Section):
    """A whole run. `turnwise train RECIPE key=value` changes any leaf: `train.steps=10`.

    >>> demo = turnwise.load_recipe("demo", "train.steps=10")
    """

    name: str
    """The run's name, in reports and in `runs/NAME`."""
    seed: int = 0
    """All that is drawn at random in the run follows from it."""
    threads: int = Field(
        default_factory=physical_cores, ge=1, json_schema_extra={"default": "auto"}
    )
    """Threads of the numerical library: `auto`, the physical cores that this process may use, or a
    number; more than there are cores slows everything down. The run's config has the number, since
    rounding depends on it."""
    model: ModelConfig = ModelConfig()
    environment: EnvironmentConfig
    sandbox: dict[str, Any] = Field(default_factory=dict)
    """Settings of the sandbox, for environments that run code: see docs/reference/sandbox.md."""
    scaffold: ScaffoldConfig = ScaffoldConfig()
    engine: AnyEngineConfig = EmbeddedEngineConfig()
    rollout: RolloutConfig = RolloutConfig()
    agent: AnyAgentConfig | None = None
    """An agent of one's own that plays the episodes; without it, turnwise's own loop does."""
    reward: RewardConfig | None = None
    """The reward that the recipe puts together; without it, the environment's own."""
    judge: AnyJudgeConfig | None = None
    """A language model that scores episodes: the part `judge` of the reward, and preference
    pairs."""
    reward_model: RewardModelConfig | None = None
    """A model that learns to reward from episodes: the part `reward_model` of the reward."""
    algorithm: AlgorithmConfig = AlgorithmConfig()
    learning: LearningConfig = Field(LearningConfig(), validate_default=True)
    sft: SftConfig = SftConfig()
    train: TrainConfig = TrainConfig()
    curriculum: Curriculum = AllTasks()
    preferences: PreferencesConfig = PreferencesConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    monitor: MonitorConfig = MonitorConfig()
    cluster: ClusterConfig = ClusterConfig()

    def claims(self) -> Iterator[Claim]:
        """The claims of wings, of what they find in the recipe."""
        for claims in wings().claims():
            yield from claims(self)

    def check_tokens(self) -> None:
        """Raise ConfigError for an engine that says words."""
        if isinstance(self.engine, OpenAIEngineConfig):
            raise ConfigError(
                'engine.name = "openai" says words: which tokens were sampled, and how likely they '
                "were, is not known, so that nothing can be trained with it. It is for `turnwise "
                "evaluate`, without --inject and --without-instructions: else choose embedded or "
                "vllm"
            )

    @property
    def token_engine(self) -> TokenEngineConfig:
        """The engine, all of whose tokens are known, as `check_tokens` has seen."""
        assert not isinstance(self.engine, OpenAIEngineConfig)
        return self.engine

    @property
    def parity_bound(self) -> float:
        """The bound `engine.parity_bound`, or its default."""
        return self.token_engine.parity_bound or (ROUNDED_PARITY if self.rounded else EXACT_PARITY)

    @property
    def rounded(self) -> bool:
        """Whether engine or learner may compute in bfloat16."""
        types = {self.model.dtype, self.learning.compute_dtype}
        return not isinstance(self.engine, EmbeddedEngineConfig) or "bfloat16" in types

    @property
    def policy_in_files(self) -> bool:
        """Whether this process leaves the policy's weights in files: they are divided over
        learners, and sampled from in other processes."""
        return self.cluster.learners > 1 and isinstance(self.engine, VllmEngineConfig)

    @field_validator("threads", mode="before")
    @classmethod
    def _cores_of_this_machine(cls, value: Any) -> Any:
        return physical_cores() if value == "auto" else value

    @field_validator("learning")
    @classmethod
    def _rate_of_what_is_trained(
        cls, value: LearningConfig, info: ValidationInfo
    ) -> LearningConfig:
        model = info.data.get("model")  # none where it was refused
        if model is None or "learning_rate" in value.model_fields_set:
            return value
        rate = ADAPTERS_RATE if model.lora_rank else FULL_RATE
        return value.model_copy(update={"learning_rate": rate})

    @field_validator("agent", mode="before")
    @classmethod
    def _list_is_a_command(cls, value: Any) -> Any:
        return {"command": value} if isinstance(value, list | tuple) else value

    @model_validator(mode="after")
    def _sections_go_together(self) -> "Recipe":
        # The claims of all sections (`section.py`), those of wings, and numbers that do not fit.
        for sentence in chain(conflicts(self.all_claims()), misfits(self)):
            raise ValueError(sentence)
        return self
