"""Makes a working judge from its settings.

Not here: the settings (`config/judge.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from turnwise.chat.endpoint import check_endpoint
from turnwise.chat.recording import Recording
from turnwise.config import (
    AnyJudgeConfig,
    EndpointJudgeModel,
    PairwiseJudgeConfig,
    PointwiseJudgeConfig,
    PolicyJudgeModel,
    RubricJudgeConfig,
    ScriptedJudgeModel,
)
from turnwise.config.judge import RubricSettings
from turnwise.engines.base import Engine
from turnwise.errors import ConfigError, unknown_name
from turnwise.judges import pairwise, pointwise, rubric
from turnwise.judges.asking import Asker, Limits
from turnwise.judges.base import JudgeModel
from turnwise.judges.endpoint_model import EndpointModel
from turnwise.judges.engine_model import EngineModel
from turnwise.judges.pairwise import PairwiseJudge
from turnwise.judges.pointwise import PointwiseJudge
from turnwise.judges.rubric import RUBRICS, Criterion, RubricJudge, check_criteria
from turnwise.judges.scripted_model import ScriptedModel
from turnwise.registry import load_function
from turnwise.rewards.parts import RewardPart, Scope

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


ANSWERS = "judge.jsonl"
"""The file in which answers are kept, in a run's folder or in the one that is given."""


@dataclass(frozen=True)
class Policy:
    """The policy as a judge's model: its engine, its tokenizer, and the name of its present
    weights, under which answers are kept."""

    engine: Engine
    tokenizer: "PreTrainedTokenizerBase"
    weights: Callable[[], str]
    date: str = ""
    """The run's, for chat templates that write today's."""


Judge = PointwiseJudge | PairwiseJudge | RubricJudge


def check_judge(config: AnyJudgeConfig) -> None:
    """Raise ConfigError for what cannot work, as `make_judge` does, but for the policy."""
    if isinstance(config, RubricSettings):
        criteria = _criteria(config)
        if isinstance(config, RubricJudgeConfig):
            check_criteria(criteria)
    if not isinstance(config.model, PolicyJudgeModel):
        _model(config, None)


def part_of(config: AnyJudgeConfig, judge: Judge | None = None) -> RewardPart:
    """The judge as a part of rewards; without a judge it has the same range, and no number.

    Comparisons are of groups, and so is all that the policy is asked: it samples when the episodes
    of its group have ended, since a lockstep engine waits for every open one.
    """
    compares = isinstance(config, PairwiseJudgeConfig)
    of_groups = compares or isinstance(config.model, PolicyJudgeModel)
    part = RewardPart(
        config.low,
        config.high,
        "a language model's judgement",
        Scope.GROUP if of_groups else Scope.TRAJECTORY,
    )
    if judge is None:
        return part
    if of_groups or isinstance(judge, PairwiseJudge):
        return replace(part, function=judge.measure)
    return replace(part, function=judge.measure_one)


def make_judge(
    config: AnyJudgeConfig, folder: Path | None, seed: int, policy: Policy | None = None
) -> Judge:
    """The judge of a configuration.

    Answers are kept in `folder`, unless the configuration names another one, and in memory where
    there is neither; `seed` is for the nonces. Raises ConfigError, in one line, for what cannot
    work: an endpoint without a url, a rubric or a criterion that there is not, a policy that is not
    there or has no chat template.
    """
    kept_in = Path(config.cache) if config.cache else folder
    cache = Recording(None if kept_in is None else kept_in / ANSWERS, "the judge")
    limits = Limits(
        config.seconds, config.max_concurrent, config.max_calls or None, config.max_tokens or None
    )
    asker = Asker(_model(config, policy), limits, cache, seed)
    if isinstance(config, PointwiseJudgeConfig):
        question = config.question or pointwise.QUESTION
        return PointwiseJudge(asker, config.low, config.high, question, config.max_characters)
    if isinstance(config, RubricJudgeConfig):
        question = config.question or rubric.QUESTION
        return RubricJudge(asker, _criteria(config), question, config.max_characters)
    return PairwiseJudge(
        asker,
        _criteria(config),
        config.opponents or None,
        config.question or pairwise.QUESTION,
        config.max_characters,
    )


def _model(config: AnyJudgeConfig, policy: Policy | None) -> JudgeModel:
    model = config.model
    if isinstance(model, ScriptedJudgeModel):
        return ScriptedModel(load_function(model.script, "judge"), model.script)
    if isinstance(model, EndpointJudgeModel):
        check_endpoint("judge.model", model.url, model.name, model.key_variable)
        return EndpointModel(
            model.url,
            model.name,
            key_variable=model.key_variable,
            temperature=model.temperature,
            max_tokens=model.max_tokens,
            seconds=config.seconds,
        )
    if policy is None:
        raise ConfigError('judge.model.kind = "policy": there is no policy here: name an endpoint')
    return EngineModel(
        policy.engine,
        policy.tokenizer,
        policy.weights,
        temperature=model.temperature,
        max_tokens=model.max_tokens,
        date=policy.date,
    )


def _criteria(config: RubricSettings) -> list[Criterion]:
    """The criteria of the named rubric and the configuration's own, with their weights."""
    if config.rubric and config.rubric not in RUBRICS:
        raise unknown_name("rubric", config.rubric, RUBRICS)
    named = RUBRICS[config.rubric] if config.rubric else ()
    sentences = {one.name: one.sentence for one in named} | config.criteria
    weights = config.weights if isinstance(config, RubricJudgeConfig) else {}
    for name in weights:
        if name not in sentences:
            raise unknown_name("criterion", name, sentences)
    return [
        Criterion(name, sentence, weights.get(name, 1.0)) for name, sentence in sentences.items()
    ]
