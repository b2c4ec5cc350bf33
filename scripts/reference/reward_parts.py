"""reward_parts.md: what a recipe can make a reward of, from the declarations in the code."""

import inspect
import sys
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from scripts.reference.text import allowed, default_text, table
from turnwise.commands.rewards import described, range_text
from turnwise.config import (
    LearningConfig,
    PairwiseJudgeConfig,
    PointwiseJudgeConfig,
    RewardModelConfig,
    RubricJudgeConfig,
    ScriptedJudgeModel,
)
from turnwise.environments.guarded import RULED
from turnwise.environments.registry import ENVIRONMENTS
from turnwise.parts.judge import Judge
from turnwise.parts.reward_model import RewardModel
from turnwise.rewards.model_parts import CERTAINTY
from turnwise.rewards.parts import REWARD_PARTS, RewardPart, Scope
from turnwise.wings import wings

MEASURED = {
    Scope.TRAJECTORY: "an episode: a number of the whole",
    Scope.TURNS: "turns: a number of each, which is that turn's reward",
    Scope.GROUP: "a group: a number of each graded member; not measured in evaluations",
}


def reward_page() -> str:
    """Every built-in part, and what each environment reports."""
    text = (
        "# Parts of rewards\n\nWhat a recipe's `[reward.parts]` can name, besides one's own as "
        "`file.py:function`: [Write a reward](../how-to/reward.md#in-a-recipe). `turnwise rewards` "
        "prints the first table, `turnwise rewards NAME` one part, or what an environment "
        "reports.\n\n## Built in\n\n"
    )
    parts = {name: REWARD_PARTS.get(name) for name in REWARD_PARTS.names()}
    rows = [(f"[`{name}`](#{name})", *_row(part)) for name, part in parts.items()]
    text += table(rows, "part", "measured of", "range", "meaning")
    for name, part in parts.items():
        text += (
            f"\n### {name}\n\nOf {MEASURED[part.scope]}. Range: {range_text(described(part))}.\n"
        )
        text += f"\n{inspect.getdoc(part.function)}\n"
        options = [
            (f"`{key}`", allowed(one.annotation, []), default_text(one.default))
            for key, one in part.options.items()
        ]
        text += f"\n{table(options, 'option', 'value', 'default')}" if options else ""
    text += (
        "\n## Measured by models\n\nThey are there in a run, with their models: "
        "[judges](../how-to/judges.md) under `[judge]`, "
        "[reward models](../how-to/reward.md#learned-rewards) under `[reward_model]`, and the "
        "policy itself.\n\n"
    )
    rows = [(f"`{name}`", setting, *_row(part)) for name, setting, part in _of_models()]
    text += table(rows, "part", "with", "measured of", "range", "meaning")
    text += (
        "\n## What environments report\n\nThey have no options. A part whose range is not known "
        "needs a `range` in the recipe, or `reward.dominance = false`. What a recipe does not "
        "name is reported only: it stands in metrics and trajectories, and counts for nothing.\n\n"
    )
    reported = {name: _reported(name) for name in ENVIRONMENTS.descriptions()}
    text += (
        "Every verdict has an outcome, success or failure, which dominates: `reward.outcome` and "
        "`reward.failure` are its rewards in a recipe's own `[reward]`, and without one it is all "
        "that an environment rewards, but for the ones marked. What follows is reported only.\n\n"
    )
    rows = []
    for name, own in reported.items():
        rows += [(f"`{name}`", "outcome", *_outcome(name))]
        rows += [("", f"`{key}`", *_row(part), "reported only") for key, part in own.items()]
    rows += [("any, with `environment.consequential`", *_ruled("held_back"))]
    rows += [("", *_ruled("consequential"))]
    return text + table(rows, "environment", "part", "measured of", "range", "meaning", "counts")


def _of_models() -> Iterator[tuple[str, str, RewardPart]]:
    """Name, setting and part of what models measure."""
    model, criteria = ScriptedJudgeModel(kind="scripted"), {"clear": "It is."}
    for config in (
        PointwiseJudgeConfig(model=model),
        RubricJudgeConfig(form="rubric", model=model, criteria=criteria),
        PairwiseJudgeConfig(form="pairwise"),
    ):
        judge: Judge = wings().section("judge")(config, 0, None, None)
        yield "judge", f'`judge.form = "{config.form}"`', judge.part
    for form in get_args(RewardModelConfig.model_fields["form"].annotation):
        settings = RewardModelConfig(form=form, data=("data",))
        learned: RewardModel = wings().section("reward_model")(settings, LearningConfig(), None)
        yield "reward_model", f'`reward_model.form = "{form}"`', learned.part
    for name, part in CERTAINTY.items():
        yield name, "the policy", part


def _row(part: RewardPart) -> tuple[str, str, str]:
    return str(part.scope), range_text(described(part)), part.description


def _outcome(name: str) -> tuple[str, str, str, str]:
    """The cells of an environment's outcome."""
    kind: Any = ENVIRONMENTS.get(name)
    rewards = kind.facts.rewards if kind.facts else "unknown"
    meaning = {
        "unknown": "success",
        "shares": "success; its own reward has shares of it too",
        "signed": "success; its own reward may be below 0 too",
    }[rewards]
    return str(Scope.TRAJECTORY), "0 or 1", meaning, "**dominant**"


def _ruled(name: str) -> tuple[str, str, str, str, str]:
    """The cells of a part that rules report."""
    return f"`{name}`", *_row(RULED[name]), "reported only"


def _reported(name: str) -> Mapping[str, RewardPart]:
    """The parts that an environment declares. One whose spec depends on its options has them in its
    module; making it would take seconds, or files."""
    kind: Any = ENVIRONMENTS.get(name)
    module = vars(sys.modules[kind.__module__])
    found: Mapping[str, RewardPart] = kind.facts.parts if kind.facts else module.get("PARTS", {})
    return found
