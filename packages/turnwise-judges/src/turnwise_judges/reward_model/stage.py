"""The training of a reward model, before the policy learns from it."""

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from transformers import PreTrainedModel

from turnwise.config import ScriptedDemonstrations
from turnwise.errors import DataError
from turnwise.learning.sft import batch_of_step
from turnwise.parts.one_process import OneProcess
from turnwise.rollout.demonstrations import demonstrate
from turnwise.rollout.order import choose_tasks
from turnwise.storage import checkpoint
from turnwise.storage.tensors import read
from turnwise.training.context import RunContext
from turnwise.training.offline import learn_offline, save_offline
from turnwise.types import Group, Trajectory
from turnwise_judges.agreement import agreement, ranking
from turnwise_judges.reward_model.data import parted, read_lessons
from turnwise_judges.reward_model.model import Lesson, PairsRewardModel, RewardModel
from turnwise_judges.reward_model.section import NAME, RewardModelOfRun
from turnwise_judges.settings import RewardModelConfig

TOGETHER = 4
"""Scripted episodes of a task, in the mean."""


class RewardModelLearner(OneProcess):
    """The steps of a reward model on given lessons; a batch follows from the seed and the step
    alone. Raises DataError without a lesson."""

    name = "reward_model"
    """The beginning of its metrics' names."""

    def __init__(
        self,
        policy: PreTrainedModel,
        model: RewardModel,
        lessons: Sequence[Lesson],
        config: RewardModelConfig,
        seed: int,
    ) -> None:
        """`policy` is the model whose weights checkpoints have too."""
        if not lessons:
            raise DataError(
                "no episode is left to train the reward model on: give it more data, or lower "
                "reward_model.heldout_share"
            )
        self.model, self.reward_model = policy, model
        self.lessons, self.config, self.seed = lessons, config, seed
        self.steps_done = 0

    @property
    def finished(self) -> bool:
        return self.steps_done >= self.config.steps

    def step(self) -> dict[str, float]:
        count, size = len(self.lessons), self.config.batch_size
        chosen = batch_of_step(count, size, self.steps_done, self.seed, "reward model")
        self.steps_done += 1
        return self.reward_model.update([self.lessons[place] for place in chosen])

    def state(self) -> dict[str, Any]:
        return {"reward_model": self.reward_model.state(), "steps_done": self.steps_done}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.reward_model.load_state(read(state["reward_model"]))
        self.steps_done = int(state["steps_done"])


class RewardLearning:
    """Trains the reward model and measures it on held-out tasks. Its last checkpoint is kept:
    whatever comes later loads the model from it."""

    async def run(self, context: RunContext, step: int) -> int:
        recipe, saved = context.recipe, context.saved_in(NAME)
        found = context.components.reward_sources[NAME]
        assert isinstance(found, RewardModelOfRun)  # whose section this package has too
        config, model = found.settings, found.model
        if model.trained:
            return step
        lessons, heldout = parted(
            await _lessons(context, config, model), config.heldout_share, recipe.seed
        )
        learner = RewardModelLearner(context.components.model, model, lessons, config, recipe.seed)
        if saved is not None:
            learner.load_state(saved.learner)
        context.display.phase("reward model", config.steps)
        every = recipe.train.checkpoint_every
        await learn_offline(context, learner, NAME, "reward_model.jsonl", every)
        model.finish(lessons)
        facts = {"form": config.form, "trained_on": len(lessons), **measured(model, heldout)}
        context.folder.write_text("reward_model.json", json.dumps(facts, indent=2) + "\n")
        context.display.say(_sentence(facts))
        save_offline(context, learner, NAME)
        checkpoint.prune(checkpoint.root_of(context.folder.checkpoints, NAME), 1)
        return step


async def _lessons(
    context: RunContext, config: RewardModelConfig, model: RewardModel
) -> list[Lesson]:
    """Read the lessons of the data, and play those of scripted behaviours."""
    parts = context.components
    found = read_lessons(config.data, model, parts.scaffold, parts.tokenizer)
    if config.demonstrations is not None:
        found += model.lessons_of_step(await _played(context, config.demonstrations))
    return found


async def _played(context: RunContext, chosen: ScriptedDemonstrations) -> list[Group]:
    """Scripted episodes on so few tasks that those of a task can be compared."""
    parts, display, seed = context.components, context.display, context.recipe.seed
    tasks = parts.environment.tasks("train")
    display.phase("episodes for the reward model", chosen.count)
    played = await demonstrate(
        parts.environment,
        parts.scaffold,
        context.recipe.rollout,
        choose_tasks(tasks, max(1, chosen.count // TOGETHER), seed),
        chosen.behaviours,
        chosen.count,
        seed,
        lambda _: display.advance(),
        turns=chosen.turns,
    )
    groups: dict[str, list[Trajectory]] = defaultdict(list)
    for one in played:
        groups[one.task.id].append(one)
    return [Group(task, tuple(own)) for task, own in groups.items()]


def measured(model: RewardModel, lessons: Sequence[Lesson]) -> dict[str, Any]:
    """How far a model is right: lessons `heldout`, `accuracy` with its interval (95%, Wilson's),
    and for single episodes `ranking`: that a success is above a failure. None for what does not
    exist."""
    margins = model.margins(lessons)
    gold = [lesson.success for lesson in lessons]
    found = agreement([margin > 0 for margin in margins], gold)
    numbers: dict[str, Any] = {
        "heldout": found.n,
        "accuracy": found.accuracy,
        "accuracy_interval": list(found.accuracy_interval),
    }
    if not isinstance(model, PairsRewardModel):
        numbers["ranking"] = ranking(margins, gold)
        numbers["successes"] = sum(gold) / len(gold) if gold else math.nan
    return {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in numbers.items()
    }


def _sentence(found: Mapping[str, Any]) -> str:
    if not found["heldout"]:
        return "reward model: no held-out task of its data to measure it on"
    low, high = found["accuracy_interval"]
    of_pairs = found["form"] == "pairs"
    ranked = found.get("ranking")
    return (
        f"reward model: right about {found['accuracy']:.1%} ({low:.1%} to {high:.1%}) of "
        f"{found['heldout']} held-out {'pairs' if of_pairs else 'episodes'}"
        + ("" if of_pairs else f", of which {found['successes']:.1%} are successes")
        + ("" if ranked is None else f"; a success is above a failure in {ranked:.1%}")
    )
