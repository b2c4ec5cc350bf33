"""Settings of a judge, of learned rewards and of preferences: `[judge]`, `[reward_model]`,
`[preferences]`."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self, cast

from pydantic import Field, model_validator

from turnwise.algorithms.parts import Requirement
from turnwise.config.learning import ScriptedDemonstrations
from turnwise.config.loading import check_section, parse_override, read_toml, set_key
from turnwise.config.section import IS_PATH, Choice, Section
from turnwise.config.wing_section import WingSection
from turnwise.conflicts import Claim, Need
from turnwise.errors import ConfigError, DataError
from turnwise.rewards.parts import RewardPart, Scope
from turnwise.rollout.demonstrations import check_behaviours
from turnwise.seeds import derive

if TYPE_CHECKING:
    from turnwise.config import Recipe

OF_ANY_GROUP = frozenset({Requirement.CRITIC, Requirement.STATES, Requirement.SCORE_NORMS})
"""Signals that replies of one turn have too, of whatever task."""
A_JUDGE = "a judge"
"""The need of a judge, which a recipe without the section `judge` denies."""
MODELS = {"judge": A_JUDGE, "reward_model": "a reward model"}
"""The need of each part of the reward that such a model measures."""
LEARNED_PARTS: Mapping[str, RewardPart] = {
    "outcome": RewardPart(0, 1, "chance of success, by a reward model"),
    "process": RewardPart(
        -1, 1, "change of the chance of success, by a reward model", Scope.TURNS, (-1, 1)
    ),
    "pairs": RewardPart(0, 1, "chance of being preferred, by a reward model"),
}
"""Parts of a reward model by its form, known before any is loaded."""


class SampledModel(Section):
    """The settings of a model that is sampled from."""

    temperature: float = Field(0.0, ge=0)
    """Temperature of its replies; 0 is greedy."""
    max_tokens: int = Field(512, ge=16)
    """Longest reply in tokens, thinking included."""


class PolicyJudgeModel(SampledModel):
    """The policy itself, through its tokenizer's chat template."""

    kind: Literal["policy"] = "policy"
    """The policy's present weights, in the run's engine."""


class EndpointJudgeModel(SampledModel):
    """A model behind an OpenAI-compatible endpoint."""

    kind: Literal["endpoint"]
    """A server, of this machine or of others."""
    url: str
    """The endpoint up to `/v1`."""
    name: str
    """The model's name at the endpoint."""
    key_variable: str = ""
    """The environment variable that has the endpoint's key, if it needs one."""


class ScriptedJudgeModel(Section):
    """A function in a model's place, for tests and dry runs."""

    kind: Literal["scripted"]
    """No model: nothing is sampled."""
    script: str = ""
    """A function from messages to the reply's text, `path/to/file.py:function`; empty for one that
    gives every episode the middle of the range."""


AnyJudgeModel = Annotated[
    PolicyJudgeModel | EndpointJudgeModel | ScriptedJudgeModel, Choice("kind")
]


class RefinementConfig(Section):
    """The judge's training in RL, on requests whose answer the verifier knows."""

    requests: int = Field(8, ge=1)
    """Requests of a step, at most: fewer where too few of its episodes differ in success."""
    replies: int = Field(4, ge=2)
    """Replies to a request, a group that the algorithm compares."""

    def claims(self) -> Iterator[Claim]:
        lacking = [need.words for need in Requirement if need not in OF_ANY_GROUP]
        why = "learns from replies of one turn with a reward, which have none"
        denies = dict.fromkeys([Need.NAMED_REWARDS, Need.TASK_EPISODES, *lacking], why)
        needs = (Need.OWN_LOOP, Need.STEPS_OF_RL, Need.POLICY_LOSS)
        yield Claim("judge.refinement", needs, denies, "leave judge.refinement out")


class JudgeConfig(WingSection):
    """The settings that every judge has."""

    model: AnyJudgeModel = PolicyJudgeModel()
    question: str = ""
    """The judge's question, after the record; empty for the form's own."""
    max_characters: int = Field(20_000, ge=200)
    """Length of the record that the judge is shown, as it is quoted; longer texts are cut in the
    middle, and too many turns too. In a comparison each of the two has half."""
    seconds: float = Field(60.0, gt=0)
    """Deadline of one call."""
    max_concurrent: int = Field(8, ge=1)
    """Calls under way at once."""
    max_calls: int = Field(0, ge=0)
    """Calls of the model in one process, after which judgements are missing; 0 for any number."""
    max_tokens: int = Field(0, ge=0)
    """Tokens of all calls in one process, after which no call begins; 0 for any number."""
    cache: Annotated[str, IS_PATH] = ""
    """The folder in which answers are kept; empty for the run's own."""
    refinement: RefinementConfig | None = None
    """Training of the judge, for a policy that scores or compares; without it, it is not
    trained."""

    def misfits(self, recipe: "Recipe") -> Iterator[str]:
        """A judge without a use, and a call that outlasts a verdict."""
        rewards = recipe.reward is not None and "judge" in recipe.reward.used
        preferences = recipe.find(PreferencesConfig)
        if not (rewards or (preferences is not None and preferences.asks_judge)):
            yield (
                "nothing asks the judge: name it in reward.parts, as in reward.parts.judge = 0.5, "
                "or set preferences.by=judge, or leave [judge] out"
            )
        most = recipe.rollout.max_seconds
        if rewards and self.seconds > most:
            yield (
                f"judge.seconds is {self.seconds:g}, but all that is asked about an episode or a "
                f"group has rollout.max_seconds = {most:g}: lower the one or raise the other"
            )

    def group_sizes(self) -> Mapping[str, int]:
        refinement = self.refinement
        return {} if refinement is None else {"judge.refinement.replies": refinement.replies}

    def reward_parts(self, recipe: "Recipe") -> Mapping[str, RewardPart]:
        from turnwise_judges.making import unasked_part

        return {"judge": unasked_part(cast("AnyJudgeConfig", self), derive(recipe.seed, "judge"))}

    @model_validator(mode="after")
    def _keeps_answers_of_the_policy_with_it(self) -> Self:
        if self.cache and isinstance(self.model, PolicyJudgeModel):
            raise ValueError(
                "a judge's cache is for several runs, and the policy is another one in each: leave "
                "cache out, or name another model"
            )
        return self

    @model_validator(mode="after")
    def _trains_the_policy_alone(self) -> Self:
        if self.refinement is not None and not isinstance(self.model, PolicyJudgeModel):
            raise ValueError(
                f"judge.refinement trains the policy as its own judge, and judge.model.kind is "
                f"{self.model.kind!r}: leave refinement out, or set judge.model=policy"
            )
        return self


class PointwiseJudgeConfig(JudgeConfig):
    """A score for an episode."""

    form: Literal["pointwise"] = "pointwise"
    """A number from `low` to `high`."""
    low: float = 0.0
    """The worst score."""
    high: float = 10.0
    """The best score."""

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if not -math.inf < self.low < self.high < math.inf:
            raise ValueError(
                f"a judge's scores go from {self.low:g} to {self.high:g}: give a low below the "
                "high, both finite"
            )
        return self


class RubricSettings(JudgeConfig):
    """Criteria of a judge."""

    low: ClassVar[float] = 0.0
    high: ClassVar[float] = 1.0

    rubric: str = ""
    """A rubric of turnwise's, `self_critique`; empty for none."""
    criteria: dict[str, str] = Field(default_factory=dict)
    """More criteria: sentences that hold of a good episode, by a short name each."""


class RubricJudgeConfig(RubricSettings):
    """Criteria that are checked one by one."""

    form: Literal["rubric"]
    """The weight of the criteria that hold, as a share of all."""
    weights: dict[str, float] = Field(default_factory=dict)
    """Weights of criteria by their names; 1 for the others."""

    @model_validator(mode="after")
    def _cannot_be_refined(self) -> Self:
        if self.refinement is not None:
            raise ValueError(
                "judge.refinement needs requests whose answer the verifier knows, and it knows "
                "none of a rubric's criteria: set judge.form to pairwise or pointwise, or leave "
                "refinement out"
            )
        return self


class PairwiseJudgeConfig(RubricSettings):
    """Comparisons of episodes, under criteria if there are some."""

    form: Literal["pairwise"]
    """The better one of two, asked for in both orders."""
    opponents: int = Field(0, ge=0)
    """Members of the group that each one is compared with, at least; 0 for all of them."""


AnyJudgeConfig = Annotated[
    PointwiseJudgeConfig | PairwiseJudgeConfig | RubricJudgeConfig, Choice("form")
]


class JudgeFile(Section):
    """A file with a judge's settings, under `[judge]`."""

    judge: AnyJudgeConfig = PointwiseJudgeConfig()


def load_judge(file: Path, overrides: Sequence[str] = ()) -> AnyJudgeConfig:
    """Read a judge's settings from a TOML file that has them under `[judge]`; overrides are as a
    recipe's, as in `judge.model.url=http://localhost:8000/v1`. Raises ConfigError, in one line, for
    a file that is not there and for what is wrong in it."""
    _, values = read_toml("judge", str(file), {})
    for override in overrides:
        set_key(values, *parse_override(override))
    return check_section(JudgeFile, values, str(file)).judge


def check_sources(key: str, sources: Sequence[str], folder: Path) -> None:
    """Raise DataError for what a key names and is not there, or lies in the folder of a run which
    is about to begin, and would delete it."""
    for source in map(Path, sources):
        if source.resolve().is_relative_to(folder.resolve()):
            raise DataError(
                f"{key}: {source} lies in {folder}, which the new run replaces: choose another "
                "folder with --run"
            )
        if not source.exists():
            raise DataError(f"{key}: there is no {source}")


class PreferencesConfig(WingSection):
    """Learning from pairs of the policy's own trajectories, after RL. `steps = 0` skips it."""

    always: ClassVar[bool] = True

    steps: int = Field(0, ge=0)
    """Updates."""
    pairs: int = Field(256, ge=1)
    """Groups to sample, of `train.group_size` trajectories each; a group whose rewards differ gives
    a pair, its best and its worst."""
    file: Annotated[str, IS_PATH] = ""
    """Pairs to learn from in place of sampled ones: JSON lines of `prompt`, `chosen` and
    `rejected`, as `turnwise export --guided` writes them."""
    by: Literal["reward", "judge"] = "reward"
    """The numbers that best and worst are found by: rewards, or those of `[judge]` in their place
    (RLAIF)."""
    batch_size: int = Field(16, ge=1)
    """Pairs per update."""
    beta: float = Field(0.1, gt=0)
    """Strength that holds the policy to the one that the stage began with."""
    learning_rate: float = Field(5e-6, gt=0)
    """The rate of this stage: see `learning.learning_rate`."""

    @property
    def policy_updates(self) -> int:
        return self.steps

    @property
    def trains(self) -> str:
        return f"preferences, {self.steps} steps" if self.steps else ""

    @property
    def asks_judge(self) -> bool:
        """Whether best and worst are found by a judge."""
        return self.by == "judge" and self.steps > 0 and not self.file

    def misfits(self, recipe: "Recipe") -> Iterator[str]:
        """A group without a pair."""
        size = recipe.train.group_size
        if self.steps and not self.file and size < 2:
            yield (
                f"train.group_size is {size}, and preferences are learned from pairs of one group: "
                "give at least 2"
            )

    def check_new_run(self, folder: Path) -> None:
        if self.steps and self.file:
            check_sources("preferences.file", [self.file], folder)
            from turnwise_judges.reward_model.data import check_pairs

            check_pairs(Path(self.file))

    def claims(self) -> Iterator[Claim]:
        if self.steps:
            needs = (Need.ONE_CONTEXT, A_JUDGE) if self.asks_judge else (Need.ONE_CONTEXT,)
            yield Claim("preferences.steps", needs)


class RewardModelConfig(WingSection):
    """A learned reward: the part `reward_model` of the reward, trained before anything else."""

    form: Literal["outcome", "process", "pairs"] = "outcome"
    """The chance of success after an episode (`outcome`), its change by each turn (`process`), or
    the chance of being preferred to the mean episode (`pairs`: Bradley-Terry)."""
    data: tuple[Annotated[str, IS_PATH], ...] = ()
    """Run folders, whose RL steps are read, files of trajectories (.parquet), and files of
    conversations (.jsonl): `messages` with `success`, or `prompt`, `chosen` and `rejected`."""
    demonstrations: ScriptedDemonstrations | None = None
    """Episodes of scripted behaviours, played when the stage begins and judged by the verifier, to
    learn from beside `data`; those of a task are a group."""
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

    @property
    def trains(self) -> str:
        return f"reward model ({self.form}), {self.steps} steps"

    def misfits(self, recipe: "Recipe") -> Iterator[str]:
        """A reward model without a use."""
        if recipe.reward is None or "reward_model" not in recipe.reward.used:
            yield (
                "nothing asks the reward model: name it in reward.parts, as in "
                "reward.parts.reward_model = 0.5 (a weight of 0 measures it alone), or leave "
                "[reward_model] out"
            )
        if not self.data and self.demonstrations is None:
            yield (
                "the reward model has nothing to learn from: give reward_model.data, or "
                "reward_model.demonstrations with shares of behaviours"
            )

    def reward_parts(self, recipe: "Recipe") -> Mapping[str, RewardPart]:
        return {"reward_model": LEARNED_PARTS[self.form]}

    def check_new_run(self, folder: Path) -> None:
        check_sources("reward_model.data", self.data, folder)
        if self.demonstrations is not None:
            check_behaviours(self.demonstrations.behaviours, "reward_model")

    def for_evaluation(self, of_run: bool) -> Self:
        if of_run:
            return self
        raise ConfigError(
            "the reward model is trained by a run, and a recipe alone has none: evaluate the run's "
            "folder, or leave it out with reward=false reward_model=false evaluation.best_of="
        )

    def claims(self) -> Iterator[Claim]:
        yield Claim("reward_model", (Need.WORDS,))
        if self.beside_policy:
            later = {Need.FIXED_REWARD: "would leave the best policy with a later one"}
            yield Claim("reward_model.beside_policy", (Need.STILL_POLICY,), later)


def claims_of(recipe: "Recipe") -> Iterator[Claim]:
    """The needs of the parts that the reward names, and the models that a recipe lacks."""
    used, described = set() if recipe.reward is None else recipe.reward.used, recipe.added()
    for name, need in MODELS.items():
        if name in used:
            yield Claim(f"reward.parts.{name}", (need,))
        if name not in described:
            remedy = f"describe one in [{name}]"
            yield Claim("the recipe", denies={need: "describes none"}, remedy=remedy)
