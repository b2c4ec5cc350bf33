"""The teacher of on-policy distillation: a second model, of the same tokens, that scores what the
policy sampled."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import nn
from transformers import PreTrainedTokenizerBase

from turnwise.config import LearningConfig, Recipe
from turnwise.errors import ConfigError
from turnwise.forward.hidden import note_packing
from turnwise.forward.logprobs import check_supported
from turnwise.learning.ranks import ALONE, Ranks
from turnwise.learning.scoring import sampled_logprobs
from turnwise.learning.signals.base import SignalArrays, Signals, by_trajectory, graded
from turnwise.learning.signals.makers import SignalMaker, Sources
from turnwise.models.load import load_tokenizer
from turnwise.types import Group


class Teacher:
    """Log-probabilities of sampled tokens under a model that never changes. Its logits are divided
    by `temperature`, 0 for 1. All ranks are to make the same calls."""

    def __init__(
        self, model: nn.Module, config: LearningConfig, temperature: float, ranks: Ranks = ALONE
    ) -> None:
        self.model = model.requires_grad_(False).eval()
        self.config = config
        self.temperature = temperature or 1.0
        check_supported(model)
        self._ranks = ranks
        note_packing(model, config.autocast)
        self._compute = ranks.shard(model)

    def measure(self, groups: Sequence[Group]) -> Signals:
        """The `teacher_logprobs` of every graded trajectory: float32[n], NaN where nothing was
        sampled, and at a first token. The metric estimates the reverse divergence; it is absent
        without tokens."""
        members = graded(groups)
        given = members, self.config, self.temperature, self._ranks, self._compute
        scores = sampled_logprobs(self.model, *given)
        pairs = zip(members, scores, strict=True)
        gaps = [(member.tokens.logprob - own)[~np.isnan(own)] for member, own in pairs]
        flat = np.concatenate([np.zeros(0), *gaps])
        return Signals(
            by_trajectory(
                members, [SignalArrays(teacher_logprobs=own.astype(np.float32)) for own in scores]
            ),
            {"teacher/reverse_kl": float(flat.mean())} if len(flat) else {},
        )


class TeacherMaker(SignalMaker):
    def check(self, run: Sources) -> None:
        check_vocabulary(run.recipe, run.tokenizer)

    def teacher(
        self, model: nn.Module, config: LearningConfig, temperature: float, ranks: Ranks
    ) -> Teacher:
        return Teacher(model, config, temperature, ranks)


def check_vocabulary(recipe: Recipe, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise ConfigError for a teacher that reads other tokens than the policy does."""
    teacher = recipe.algorithm.teacher
    if teacher is None:
        return
    theirs: Any = load_tokenizer(recipe.model.model_copy(update={"name": teacher.model}))
    if theirs.get_vocab() != tokenizer.get_vocab():
        raise ConfigError(
            f"algorithm.teacher.model {teacher.model} has another vocabulary than the "
            "policy: distillation compares probabilities token by token, so choose a model of the "
            "same family"
        )
