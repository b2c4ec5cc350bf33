"""The preference stage after RL: the policy learns from pairs of its own trajectories.

Pairs are the best and the worst of a group that the policy has just sampled: Tool-Star's
self-critic stage (arXiv 2505.16410), with the verifier as critic. The reference is the policy as it
was when the stage began; it is only asked about the pairs, so its log-probabilities are kept, and
no second model. What a batch is follows from the seed and the step number alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from turnwise.config import LearningConfig, Recipe
from turnwise.forward.hidden import note_packing
from turnwise.forward.logprobs import check_supported
from turnwise.learning.batch import Example, by_length, collate, supervised_examples
from turnwise.learning.optimizer import Optimizer, add_gradient, prepare_for_training
from turnwise.learning.ranks import ALONE, Ranks, is_leader, own_batches
from turnwise.learning.scoring import batch_logprobs, score
from turnwise.learning.sft import batch_of_step
from turnwise.tokens import Image, Tokens
from turnwise.types import Group, Trajectory
from turnwise_judges.settings import PreferencesConfig

Pair = tuple[Tokens, Tokens]
"""The better trajectory's record and the worse one's."""
OTHERS = ("images", "experts", "kept")
ARRAYS = [entry.name for entry in fields(Tokens) if entry.name not in OTHERS]
"""The arrays of a record, as they are saved; the model's routers choose here, among all tokens."""


def best_and_worst(groups: Sequence[Group]) -> list[Pair]:
    """The best and the worst of each group whose rewards differ; the earlier of equals, and only
    those with a sampled token to train."""
    pairs = []
    for group in groups:
        members = [m for m in group.graded if m.tokens.mask[1:].any()]
        if members:
            best, worst = max(members, key=_reward), min(members, key=_reward)
            if _reward(best) > _reward(worst):
                pairs.append((best.tokens, worst.tokens))
    return pairs


def dpo(better: Tensor, worse: Tensor, beta: float) -> tuple[Tensor, Tensor]:
    """-log sigmoid(margin) and the margin, beta (better - worse), [p] each (arXiv 2305.18290, 7).

    Arguments [p]: the sum over the sampled tokens of a trajectory of log(policy / reference).
    """
    margins = beta * (better - worse)
    return -functional.logsigmoid(margins), margins


class PreferenceLearner:
    """Direct preference optimisation (arXiv 2305.18290) by AdamW at a constant learning rate.

    `model` is changed in place; as it is now it is the reference, unless a state is loaded.
    Log-probabilities are of logits / temperature, 0 for 1. All ranks are to make the same calls.
    """

    name = "preferences"
    """The beginning of its metrics' names."""

    def __init__(
        self,
        model: nn.Module,
        pairs: Sequence[Pair],
        config: PreferencesConfig,
        learning: LearningConfig,
        temperature: float,
        seed: int,
        ranks: Ranks = ALONE,
    ) -> None:
        self.model, self.config, self.learning = model, config, learning
        self.temperature, self.seed, self.steps_done = temperature or 1.0, seed, 0
        self.device = next(model.parameters()).device
        self._pairs = list(pairs)
        prepare_for_training(model)
        check_supported(model)
        examples = [
            example
            for index, pair in enumerate(pairs)
            for tokens in pair
            for example in supervised_examples(tokens, f"pair {index}")
        ]
        self._ranks = ranks
        self._scores = partial(batch_logprobs, slicing=ranks.slicing)
        note_packing(model, learning.autocast)
        self._compute = ranks.shard(model)
        reference = score(
            model,
            [(e.ids, e.trained) for e in examples],
            learning,
            self.temperature,
            images=[e.images for e in examples],
            ranks=ranks,
            compute=self._compute,
            slicing=ranks.slicing,
        )
        self._examples = _with_reference(examples, reference)
        self.optimizer = Optimizer(model, config.learning_rate, learning, ranks=ranks)

    @property
    def finished(self) -> bool:
        return self.steps_done >= self.config.steps

    def step(self) -> dict[str, float]:
        """One update on the next batch; every pair counts the same. One that is not finite changes
        nothing and counts in `preferences/skipped_updates`."""
        prepare_for_training(self.model)
        count, size = len(self._pairs), self.config.batch_size
        order = batch_of_step(count, size, self.steps_done, self.seed, "preferences")
        self.steps_done += 1
        # Each trajectory is one example, since those of several contexts are not paired.
        batch = [(self._examples[2 * i], self._examples[2 * i + 1]) for i in order]
        most = self.learning.tokens_per_micro_batch
        cut = partial(by_length, length=_padded, tokens_per_micro_batch=most)  # parts no pair
        own = own_batches(self._ranks, batch, _longer, cut)
        made = [self._backward(members, size, counts) for members, counts in own]
        parts = [part for of_rank in self._ranks.gather(made) for part in of_rank]
        margins = np.concatenate([margins for _, margins in parts])
        moved = self.optimizer.apply()
        return {
            "preferences/loss": sum(loss for loss, _ in parts),
            "preferences/accuracy": float((margins > 0).mean()),
            "preferences/margin": float(margins.mean()),
            **moved.metrics("preferences"),
        }

    def state(self) -> dict[str, Any]:
        """Optimizer state, step, pairs and what the reference made of them, without weights."""
        return {
            "optimizer": self.optimizer.state(),
            "steps_done": self.steps_done,
            "pairs": [[_tensors(tokens) for tokens in pair] for pair in self._pairs],
            "images": [[_images(tokens) for tokens in pair] for pair in self._pairs],
            "reference": [torch.from_numpy(e.old_logprob.copy()) for e in self._examples],
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue exactly where `state` was taken, with the pairs of `saved_pairs(state)`."""
        self.optimizer.load_state(state["optimizer"])
        self.steps_done = int(state["steps_done"])
        reference = [array.numpy() for array in state["reference"]]  # the model has moved since
        self._examples = _with_reference(self._examples, reference)

    def _backward(
        self, pairs: Sequence[tuple[Example, Example]], count: int, counts: bool
    ) -> tuple[float, NDArray[np.float32]]:
        """The loss of some of a batch's `count` pairs, and their margins; 0 and none where another
        rank counts them."""
        members = [example for pair in pairs for example in pair]
        batch = collate(members, self.device)
        logprobs, _ = self._compute(self._scores, batch, self.temperature, self.learning)
        log_ratios = logprobs - batch.old_logprob
        sums = log_ratios.new_zeros(len(members)).index_add(0, batch.sequence, log_ratios)
        losses, margins = dpo(sums[0::2], sums[1::2], self.config.beta)
        loss = losses.sum() * counts / count
        add_gradient(loss)
        told = counts and is_leader(self._ranks)
        found: NDArray[np.float32] = margins.detach().cpu().numpy()
        return (float(loss.detach()), found) if told else (0.0, found[:0])


def preferences_of(recipe: Recipe) -> PreferencesConfig:
    """The section of a recipe."""
    found = recipe.find(PreferencesConfig)
    assert found is not None  # this wing is installed
    return found


def preferences(
    pairs: Sequence[Pair], recipe: Recipe, model: nn.Module, ranks: Ranks
) -> PreferenceLearner:
    """A run's learner of pairs, on one of its ranks."""
    given = preferences_of(recipe), recipe.learning, recipe.rollout.temperature, recipe.seed
    return PreferenceLearner(model, pairs, *given, ranks)


def saved_pairs(state: Mapping[str, Any]) -> list[Pair]:
    loaded = []
    for pair, shown in zip(state["pairs"], state["images"], strict=True):
        better, worse = (
            replace(_tokens_of(tensors), images=_restored(images))
            for tensors, images in zip(pair, shown, strict=True)
        )
        loaded.append((better, worse))
    return loaded


def _with_reference(
    examples: Sequence[Example], reference: Sequence[NDArray[np.float32]]
) -> list[Example]:
    return [
        replace(example, old_logprob=own) for example, own in zip(examples, reference, strict=True)
    ]


def _tensors(tokens: Tokens) -> list[torch.Tensor]:
    return [torch.from_numpy(getattr(tokens, name).copy()) for name in ARRAYS]


def _tokens_of(tensors: Sequence[torch.Tensor]) -> Tokens:
    arrays: Any = zip(ARRAYS, (tensor.numpy() for tensor in tensors), strict=True)
    return Tokens(**dict(arrays))


def _images(tokens: Tokens) -> list[tuple[int, int, torch.Tensor]]:
    """Place, length, and bytes as uint8."""
    png = [torch.from_numpy(np.frombuffer(image.png, np.uint8).copy()) for image in tokens.images]
    return [(one.start, one.length, own) for one, own in zip(tokens.images, png, strict=True)]


def _restored(saved: Sequence[tuple[int, int, torch.Tensor]]) -> tuple[Image, ...]:
    return tuple(Image(start, length, png.numpy().tobytes()) for start, length, png in saved)


def _longer(pair: tuple[Example, Example]) -> int:
    return max(len(example.ids) for example in pair)


def _padded(pair: tuple[Example, Example]) -> int:
    """Tokens of both, padded."""
    return 2 * (_longer(pair) - 1)


def _reward(member: Trajectory) -> float:
    assert member.reward is not None
    return member.reward
