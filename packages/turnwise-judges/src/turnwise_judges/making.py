"""Makes a working judge from its settings (`settings.py`)."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from turnwise.chat.endpoint import check_endpoint
from turnwise.chat.recording import Recording
from turnwise.errors import InfrastructureError, unknown_name
from turnwise.registry import load_function
from turnwise.rewards.parts import RewardPart, Scope
from turnwise_judges import pairwise, pointwise, rubric
from turnwise_judges.asking import Asker, Limits
from turnwise_judges.base import JudgeModel, Message
from turnwise_judges.models import EndpointModel, EngineModel, Policy, ScriptedModel, example_reply
from turnwise_judges.pairwise import PairwiseJudge
from turnwise_judges.pointwise import PointwiseJudge
from turnwise_judges.rubric import RUBRICS, Criterion, RubricJudge
from turnwise_judges.settings import (
    AnyJudgeConfig,
    AnyJudgeModel,
    EndpointJudgeModel,
    PointwiseJudgeConfig,
    PolicyJudgeModel,
    RubricJudgeConfig,
    RubricSettings,
    ScriptedJudgeModel,
)

ANSWERS = "judge.jsonl"
Judge = PointwiseJudge | PairwiseJudge | RubricJudge


def _no_policy(messages: Sequence[Message]) -> str:
    raise InfrastructureError("there is no policy to judge")


def part_of(config: AnyJudgeConfig, judge: Judge) -> RewardPart:
    """The judge as a part of rewards. Comparisons are of groups, and so is all that the policy is
    asked: a lockstep engine waits for every open episode of a group."""
    function: Callable[..., Any]
    if isinstance(judge, PairwiseJudge) or isinstance(config.model, PolicyJudgeModel):
        scope, function = Scope.GROUP, judge.measure
    else:
        scope, function = Scope.TRAJECTORY, judge.measure_one
    meaning = "a language model's judgement"
    return RewardPart(config.low, config.high, meaning, scope, function=function)


def make_judge(
    config: AnyJudgeConfig, folder: Path | None, seed: int, policy: Policy | None = None
) -> Judge:
    """The judge of a configuration. Answers are kept in its own folder, or `folder`, or in memory;
    `seed` is for the nonces. Without a policy one that asks it has no judgements. Raises
    ConfigError, in one line, for what cannot work: an endpoint without a url, an unknown rubric or
    criterion, a policy without a chat template."""
    kept_in = Path(config.cache) if config.cache else folder
    cache = Recording(None if kept_in is None else kept_in / ANSWERS, "the judge")
    limits = Limits(
        config.seconds, config.max_concurrent, config.max_calls or None, config.max_tokens or None
    )
    model = make_model(config.model, policy, config.seconds)
    asker = Asker(model, limits, cache, seed)
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


def unasked_part(config: AnyJudgeConfig, seed: int) -> RewardPart:
    """The part of a judge without a policy, whose settings are checked as by `make_judge`."""
    unread = config.model_copy(update={"cache": ""})  # nothing is asked, so nothing is read
    return part_of(config, make_judge(unread, None, seed))


def make_model(
    model: AnyJudgeModel, policy: Policy | None, seconds: float, section: str = "judge"
) -> JudgeModel:
    """The model that a section's `model` names, with `seconds` for each of its replies. Raises
    ConfigError for one that cannot be asked."""
    if isinstance(model, ScriptedJudgeModel):
        script = load_function(model.script, section) if model.script else example_reply
        return ScriptedModel(script, model.script or "example_reply")
    if isinstance(model, EndpointJudgeModel):
        check_endpoint(f"{section}.model", model.url, model.name, model.key_variable)
        return EndpointModel(
            model.url,
            model.name,
            key_variable=model.key_variable,
            temperature=model.temperature,
            max_tokens=model.max_tokens,
            seconds=seconds,
        )
    if policy is None:
        return ScriptedModel(_no_policy)
    return EngineModel(policy, temperature=model.temperature, max_tokens=model.max_tokens)


def _criteria(config: RubricSettings) -> list[Criterion]:
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
