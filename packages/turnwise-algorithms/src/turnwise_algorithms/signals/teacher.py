"""The teachers of on-policy distillation: models of the same tokens that score what the policy
sampled, in joint RL each the episodes of its environments."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from turnwise.config import Recipe
from turnwise.errors import ConfigError, unknown_name
from turnwise.forward.hidden import note_packing
from turnwise.forward.logprobs import check_supported
from turnwise.learning.ranks import ALONE, Ranks
from turnwise.learning.scoring import sampled_logprobs
from turnwise.learning.signals.base import SignalArrays, Signals, by_trajectory, graded
from turnwise.learning.signals.makers import Models, SignalMaker, Sources
from turnwise.models.load import load_tokenizer
from turnwise.types import Group, Task, Trajectory, TrajectoryId


class Teachers:
    """Log-probabilities of sampled tokens under models that never change: each episode's under the
    teacher of its environment (MOPD, arXiv 2606.30406). Logits are divided by `temperature`. All
    ranks are to make the same calls."""

    def __init__(self, recipe: Recipe, models: Models, ranks: Ranks = ALONE) -> None:
        self.models, self.config = models, recipe.learning
        self.named = _named(recipe)
        self.temperature = recipe.rollout.temperature
        self._ranks = ranks
        for model in models.values():
            check_supported(model.requires_grad_(False).eval())
            note_packing(model, self.config.autocast)
        self._compute = {name: ranks.shard(model) for name, model in models.items()}

    def measure(self, groups: Sequence[Group]) -> Signals:
        """The `teacher_logprobs` of every graded trajectory: float32[n], NaN where nothing was
        sampled, at a first token, and all NaN without a teacher. The metrics estimate the reverse
        divergence, in all and for each environment with a teacher of its own; they are absent
        without tokens."""
        found: dict[TrajectoryId, SignalArrays] = {}
        gaps: dict[str, NDArray[np.float64]] = {}
        for environment, name, members in self._parts(graded(groups)):
            scores = self._scores(name, members)
            arrays = [SignalArrays(teacher_logprobs=own.astype(np.float32)) for own in scores]
            found |= by_trajectory(members, arrays)
            pairs = zip(members, scores, strict=True)
            flat = [(member.tokens.logprob - own)[~np.isnan(own)] for member, own in pairs]
            gaps[f"{environment}/" if environment else ""] = np.concatenate(flat)
        gaps[""] = np.concatenate([np.zeros(0), *gaps.values()])
        metrics = {f"teacher/{at}reverse_kl": own.mean() for at, own in gaps.items() if len(own)}
        return Signals(found, metrics)

    def _parts(
        self, members: Sequence[Trajectory]
    ) -> Iterator[tuple[str, str | None, Sequence[Trajectory]]]:
        """The members of each environment with a teacher of its own, and "" for those of all
        others; with its name and the model's, None where there is none."""
        labels = [_label(member.task) for member in members]
        sources = [label if label in self.named else "" for label in labels]
        for source in sorted(set(sources)):
            chosen = [one for one, at in zip(members, sources, strict=True) if at == source]
            yield source, self.named.get(source), chosen

    def _scores(self, name: str | None, members: Sequence[Trajectory]) -> list[NDArray[np.float64]]:
        if name is None:
            return [np.full(len(member.tokens), np.nan) for member in members]
        given = self.config, self.temperature, self._ranks, self._compute[name]
        return sampled_logprobs(self.models[name], members, *given)


class TeacherMaker(SignalMaker):
    def check(self, run: Sources) -> None:
        check_environments(run.recipe, run.tasks)
        check_vocabulary(run.recipe, run.tokenizer)

    def teacher(self, recipe: Recipe, models: Models, ranks: Ranks) -> Teachers:
        return Teachers(recipe, models, ranks)


def check_environments(recipe: Recipe, tasks: Sequence[Task]) -> None:
    """Raise ConfigError for a teacher of an environment that no task is of."""
    known = {_label(task) for task in tasks}
    for name in _named(recipe):
        if known == {""} and name:
            raise ConfigError(
                "algorithm.teacher.model is a table, for an environment of several, as joint is: "
                "name one model"
            )
        if name and name not in known:
            raise unknown_name("environment in algorithm.teacher.model", name, known - {""})


def check_vocabulary(recipe: Recipe, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise ConfigError for a teacher that reads other tokens than the policy does."""
    for name in sorted(set(_named(recipe).values())):
        theirs: Any = load_tokenizer(recipe.model.model_copy(update={"name": name}))
        if theirs.get_vocab() != tokenizer.get_vocab():
            raise ConfigError(
                f"algorithm.teacher.model is {name}, which has another vocabulary than the policy: "
                "distillation compares probabilities token by token, so choose a model of the "
                "same family"
            )


def _named(recipe: Recipe) -> dict[str, str]:
    """The names of models by environments, "" for that of all."""
    teacher = recipe.algorithm.teacher
    return {} if teacher is None else teacher.by_environment


def _label(task: Task) -> str:
    """The environment that a task is of in joint RL; else empty."""
    return str(task.info.get("environment", ""))
