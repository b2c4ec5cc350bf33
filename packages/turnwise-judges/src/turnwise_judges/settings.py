"""Settings of a judge, its form, its model, and its bounds: `[judge]`."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self, cast

from pydantic import Field, model_validator

from turnwise.algorithms.parts import Requirement
from turnwise.config.loading import check_section, parse_override, read_toml, set_key
from turnwise.config.section import IS_PATH, Choice, Section
from turnwise.config.wing_section import WingSection
from turnwise.conflicts import Claim, Need
from turnwise.seeds import derive
from turnwise_judges.preferences.settings import A_JUDGE, PreferencesConfig

if TYPE_CHECKING:
    from turnwise.config import Recipe
    from turnwise.rewards.parts import RewardPart

OF_ANY_GROUP = frozenset({Requirement.CRITIC, Requirement.STATES, Requirement.SCORE_NORMS})
"""Signals that replies of one turn have too, of whatever task."""
MODELS = {"judge": A_JUDGE, "reward_model": "a reward model"}
"""The need of each part of the reward that such a model measures."""


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
    """Length of the record that the judge is shown, as it is quoted; longer texts in it are cut in
    the middle. In a comparison each of the two has half of it."""
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

    def reward_parts(self, recipe: "Recipe") -> Mapping[str, "RewardPart"]:
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
        if not self.low < self.high:
            raise ValueError(
                f"a judge's scores go from {self.low:g} to {self.high:g}: give a low below the high"
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


def claims_of(recipe: "Recipe") -> Iterator[Claim]:
    """The needs of the parts that the reward names, and the models that a recipe lacks."""
    used, described = set() if recipe.reward is None else recipe.reward.used, recipe.added()
    for name, need in MODELS.items():
        if name in used:
            yield Claim(f"reward.parts.{name}", (need,))
        if name not in described:
            remedy = f"describe one in [{name}]"
            yield Claim("the recipe", denies={need: "describes none"}, remedy=remedy)
