"""A recipe: every choice of a run, as sections checked by pydantic; `loading.py` reads it.

Next: `parts/components.py`.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Any, TypeVar

from pydantic import Field, ValidationInfo, field_validator, model_validator

from turnwise.config.bounds import misfits
from turnwise.config.engine import (
    EXACT_PARITY,
    ROUNDED_PARITY,
    AnyEngineConfig,
    EmbeddedEngineConfig,
    EngineConfig,
    OpenAIEngineConfig,
)
from turnwise.config.learning import (
    ADAPTERS_RATE,
    FULL_RATE,
    AlgorithmConfig,
    LearningConfig,
    SftConfig,
)
from turnwise.config.reward import RewardConfig
from turnwise.config.rollout import EnvironmentConfig, ModelConfig, RolloutConfig, ScaffoldConfig
from turnwise.config.run import AllTasks, Curriculum, EvaluationConfig, MonitorConfig, TrainConfig
from turnwise.config.section import Section
from turnwise.config.wing_section import WingSection
from turnwise.conflicts import Claim, conflicts
from turnwise.errors import ConfigError
from turnwise.threads import physical_cores
from turnwise.wings import wings

Added = TypeVar("Added", bound=WingSection)


class Recipe(Section):
    """A whole run. `turnwise train RECIPE key=value` changes any leaf: `train.steps=10`.

    >>> demo = turnwise.load_recipe("demo", "train.steps=10")
    """

    name: str
    """The run's name, in reports and in `runs/NAME`."""
    seed: int = 0
    """All that is drawn at random in the run follows from it."""
    threads: int = Field(
        default_factory=physical_cores, ge=1, le=1024, json_schema_extra={"default": "auto"}
    )
    """Threads of the numerical library: `auto`, the physical cores that this process may use, or a
    number. The run's config has the number, since rounding depends on it."""
    model: ModelConfig = ModelConfig()
    environment: EnvironmentConfig
    sandbox: dict[str, Any] = Field(default_factory=dict)
    """Settings of the sandbox, for environments that run code: see docs/reference/sandbox.md."""
    scaffold: ScaffoldConfig = ScaffoldConfig()
    engine: AnyEngineConfig = EmbeddedEngineConfig()
    rollout: RolloutConfig = RolloutConfig()
    reward: RewardConfig | None = None
    """The reward that the recipe puts together; without it, the environment's own."""
    algorithm: AlgorithmConfig = AlgorithmConfig()
    # validate_default: its rate is set by the model, also where the table is left out.
    learning: LearningConfig = Field(LearningConfig(), validate_default=True)
    sft: SftConfig = SftConfig()
    train: TrainConfig = TrainConfig()
    curriculum: Curriculum = AllTasks()
    evaluation: EvaluationConfig = EvaluationConfig()
    monitor: MonitorConfig = MonitorConfig()

    def added(self) -> dict[str, WingSection]:
        """The sections of wings that the recipe has, by their names."""
        names = type(self).model_fields.keys() - Recipe.model_fields.keys()
        found = {name: getattr(self, name) for name in sorted(names)}
        return {name: section for name, section in found.items() if section is not None}

    def find(self, kind: type[Added]) -> Added | None:
        """The section of a wing's class; None where the recipe has none."""
        return next((one for one in self.added().values() if isinstance(one, kind)), None)

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
    def token_engine(self) -> EngineConfig:
        """The engine, all of whose tokens are known, as `check_tokens` has seen."""
        assert isinstance(self.engine, EngineConfig)
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
        divided = any(section.divides_policy for section in self.added().values())
        return divided and self.token_engine.has_servers

    @property
    def policy_updates(self) -> int:
        """Updates of the policy that the recipe asks for outside of RL and the cold start."""
        return sum(section.policy_updates for section in self.added().values())

    @field_validator("threads", mode="before")
    @classmethod
    def _cores_of_this_machine(cls, value: Any) -> Any:
        return physical_cores() if value == "auto" else value

    @field_validator("learning")
    @classmethod
    def _rate_of_what_is_trained(
        cls, value: LearningConfig, info: ValidationInfo
    ) -> LearningConfig:
        # Fields are checked in their order, and `model` stands before.
        model = info.data.get("model")  # none where it was refused
        if model is None or "learning_rate" in value.model_fields_set:
            return value
        rate = ADAPTERS_RATE if model.lora_rank else FULL_RATE
        return value.model_copy(update={"learning_rate": rate})

    @model_validator(mode="after")
    def _sections_go_together(self) -> "Recipe":
        # The claims of all sections (`section.py`), those of wings, and numbers that do not fit.
        of_wings = (section.misfits(self) for section in self.added().values())
        found = chain(conflicts(self.all_claims()), misfits(self), *of_wings)
        if sentence := next(found, ""):
            raise ValueError(sentence)
        return self
