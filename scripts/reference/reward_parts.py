"""reward_parts.md: what a recipe can make a reward of, from the declarations in the code."""

import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from scripts.reference.text import SETTINGS, setting
from turnwise.config import load_recipe
from turnwise.environments.derived import RULED
from turnwise.environments.registry import ENVIRONMENTS
from turnwise.rewards.parts import CERTAINTY, REWARD_PARTS, RewardPart, Scope


def reward_page() -> str:
    """Every built-in part, and what each environment reports."""
    text = (
        "# Parts of rewards\n\nWhat a recipe's `[reward.parts]` can name, besides one's own as "
        "`file.py:function`: [Write a reward](../how-to/reward.md#in-a-recipe). `turnwise rewards` "
        "prints the built-in ones, `turnwise rewards NAME` one part, or what an environment "
        "reports.\n\nA part is measured of a trajectory (one number), of turns (a number of each, "
        "which is that turn's reward) or of a group (a number of each graded member; not in "
        f"evaluations).\n\n## Built in\n\nOptions: {SETTINGS[0].lower()}{SETTINGS[1:]}\n"
    )
    for name in REWARD_PARTS.names():
        part = REWARD_PARTS.get(name)
        text += f"\n### {name}\n\n*{_measured(part)}.* {inspect.getdoc(part.function)}\n"
        options = part.options.items()
        lines = "".join(setting(key, one.annotation, [], one.default) for key, one in options)
        text += f"\n{lines}" if lines else ""
    text += (
        "\n## Measured by models\n\nThey are there in a run, with their models: "
        "[judges](../how-to/judges.md) under `[judge]`, "
        "[reward models](../how-to/reward.md#learned-rewards) under `[reward_model]`, and the "
        "policy itself.\n\n"
    )
    for name, where, part in _of_models():
        text += f"- `{name}`, {where} ({_measured(part).lower()}): {part.description}\n"
    text += (
        "\n## What environments report\n\nEvery verdict has an outcome, success or failure, which "
        "dominates: `reward.outcome` and `reward.failure` are its rewards in a recipe's own "
        "`[reward]`, and without one it is all that an environment rewards, but for the ones "
        "marked. The parts below are reported only, unless a recipe names them: they stand in "
        "metrics and trajectories, and count for nothing. They have no options. Where nothing else "
        "is said, they are of the trajectory, and from 0 to 1. A part whose range is not known "
        "needs a `range` in the recipe, or `reward.dominance = false`.\n\n"
    )
    silent: dict[bool, list[str]] = {True: [], False: []}
    said: dict[str, str] = {}
    for name in ENVIRONMENTS.descriptions():
        parts, note = _reported(name), _outcome(name)
        if parts or note:
            text += f"- `{name}`{f' ({note})' if note else ''}\n{_lines(name, parts, said)}"
        else:
            silent[ENVIRONMENTS.get(name).facts is None].append(f"`{name}`")
    text += f"- any, with `environment.consequential`\n{_lines('any', RULED, said)}"
    text += f"\nThe outcome alone: {', '.join(silent[False])}. "
    return f"{text}What their tasks report: {', '.join(silent[True])}.\n"


def _measured(part: RewardPart) -> str:
    """What a part is measured of, and its range."""
    from turnwise_environments.commands import described, range_text

    found = range_text(described(part)).replace("not known", "range not known")
    return f"{str(part.scope).capitalize()}, {found}"


def _lines(environment: str, parts: Mapping[str, RewardPart], said: dict[str, str]) -> str:
    """The parts that an environment reports, below its name; of those that others before it report
    alike, the names, by the first of these. `said` has the lines by then, each with its own."""
    text, alike = "", dict[str, list[str]]()
    for name, part in parts.items():
        note = re.sub(", 0 to 1(?=,|$)", "", _measured(part).lower())
        note = note.removeprefix(Scope.TRAJECTORY).removeprefix(", ")
        line = f"    - `{name}`{f' ({note})' if note else ''}: {part.description}\n"
        first = said.setdefault(line, environment)
        if first == environment:
            text += line
        else:
            alike.setdefault(first, []).append(f"`{name}`")
    return text + "".join(
        f"    - {', '.join(names)}, as `{first}`\n" for first, names in alike.items()
    )


def _of_models() -> Iterator[tuple[str, str, RewardPart]]:
    """Name, setting and part of what models measure."""
    from turnwise_judges.settings import (
        PairwiseJudgeConfig,
        PointwiseJudgeConfig,
        RewardModelConfig,
        RubricJudgeConfig,
        ScriptedJudgeModel,
    )

    model, criteria = ScriptedJudgeModel(kind="scripted"), {"clear": "It is."}
    recipe = load_recipe("demo")
    for config in (
        PointwiseJudgeConfig(model=model),
        RubricJudgeConfig(form="rubric", model=model, criteria=criteria),
        PairwiseJudgeConfig(form="pairwise"),
    ):
        yield "judge", f'with `judge.form = "{config.form}"`', config.reward_parts(recipe)["judge"]
    for form in get_args(RewardModelConfig.model_fields["form"].annotation):
        (part,) = RewardModelConfig(form=form, data=("data",)).reward_parts(recipe).values()
        yield "reward_model", f'with `reward_model.form = "{form}"`', part
    for name, part in CERTAINTY.items():
        yield name, "by the policy", part


def _outcome(name: str) -> str:
    """How the reward of an environment differs from its outcome; empty where it does not."""
    kind: Any = ENVIRONMENTS.get(name)
    return {
        "unknown": "",
        "shares": "its own reward has shares of success too",
        "signed": "its own reward may be below 0 too",
    }[kind.facts.rewards if kind.facts else "unknown"]


def _reported(name: str) -> Mapping[str, RewardPart]:
    """The parts that an environment declares. One whose spec depends on its options has them in its
    module, in names that end with PARTS; making it would take seconds, or files."""
    kind: Any = ENVIRONMENTS.get(name)
    if kind.facts:
        declared: Mapping[str, RewardPart] = kind.facts.parts
        return declared
    module = vars(sys.modules[kind.__module__])
    named = [
        one for each, one in module.items() if each.endswith("PARTS") and isinstance(one, dict)
    ]
    return {part: found for one in named for part, found in one.items()}
