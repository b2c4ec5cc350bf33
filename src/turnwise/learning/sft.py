"""The cold start: supervised learning on demonstrations, on the tokens marked as the model's.

Batches, micro-batches and denominators are those of the policy update. Which demonstrations make up
which batch follows from the seed and the step number alone, so a resumed run sees the same ones.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from torch import nn

from turnwise.algorithms.aggregation import token_mean
from turnwise.config import LearningConfig, Recipe, SftConfig
from turnwise.errors import DataError
from turnwise.forward.hidden import note_packing
from turnwise.forward.logprobs import check_supported
from turnwise.learning.batch import (
    Example,
    MicroBatch,
    own_micro_batches,
    supervised_examples,
    weigh,
)
from turnwise.learning.optimizer import (
    Optimizer,
    add_gradient,
    prepare_for_training,
    warm_up_then_cosine,
)
from turnwise.learning.ranks import ALONE, Ranks, is_leader
from turnwise.learning.scoring import batch_logprobs
from turnwise.seeds import derive
from turnwise.tokens import Tokens


class SupervisedLearner:
    """Cross-entropy by AdamW: linear warm-up, then half a cosine to a tenth of the learning rate.

    Args:
        model: changed in place.
        demonstrations: records whose MODEL tokens are to be learned; never changed in order.
        config: steps, batch size, learning rate.
        learning: gradient clipping, micro-batches, autocast, betas, weight decay.
        seed: of the run.
        ranks: learn together, each from a part of the rows; all are to make the same calls.

    Raises DataError when no demonstration has a token to learn.
    """

    name = "sft"

    def __init__(
        self,
        model: nn.Module,
        demonstrations: Sequence[Tokens],
        config: SftConfig,
        learning: LearningConfig,
        seed: int,
        ranks: Ranks = ALONE,
    ) -> None:
        self.model = model
        self.config = config
        self.learning = learning
        self.seed = seed
        self.steps_done = 0
        self.device = next(model.parameters()).device
        self._examples = [
            supervised_examples(tokens, f"demonstration {index}")
            for index, tokens in enumerate(demonstrations)
        ]
        if not any(example.trained.any() for own in self._examples for example in own):
            raise DataError("no demonstration has a token of the model's to learn from")
        prepare_for_training(model)
        check_supported(model)
        self._ranks = ranks
        self._scores = partial(batch_logprobs, slicing=ranks.slicing)
        note_packing(model, learning.autocast)
        self._compute = ranks.shard(model)
        schedule = warm_up_then_cosine(config.warmup_steps, config.steps)
        self.optimizer = Optimizer(model, config.learning_rate, learning, schedule, ranks)

    @property
    def finished(self) -> bool:
        return self.steps_done >= self.config.steps

    def step(self) -> dict[str, float]:
        """One update; one not finite changes nothing, and counts in `sft/skipped_updates`."""
        prepare_for_training(self.model)
        examples = weigh(self._batch(self.steps_done), token_mean)
        self.steps_done += 1
        most = self.learning.tokens_per_micro_batch
        batches = own_micro_batches(self._ranks, examples, most, self.device)
        loss = sum(self._ranks.gather(sum(self._backward(batch) for _, batch in batches)))
        tokens = sum(int(example.trained.sum()) for example in examples)
        moved = self.optimizer.apply()
        return {"sft/loss": loss, "sft/trained_tokens": float(tokens), **moved.metrics("sft")}

    def state(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer.state(), "steps_done": self.steps_done}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.optimizer.load_state(state["optimizer"])
        self.steps_done = int(state["steps_done"])

    def _backward(self, batch: MicroBatch) -> float:
        logprob, _ = self._compute(self._scores, batch, 1.0, self.learning)
        loss = -(logprob * batch.weight).sum()
        add_gradient(loss)
        return float(loss.detach()) * is_leader(self._ranks)  # one of those that share its rows

    def _batch(self, step: int) -> list[Example]:
        size, count = self.config.batch_size, len(self._examples)
        chosen = batch_of_step(count, size, step, self.seed, "sft")
        return [example for index in chosen for example in self._examples[index]]


def supervised(
    demonstrations: Sequence[Tokens],
    config: SftConfig,
    recipe: Recipe,
    model: nn.Module,
    ranks: Ranks,
) -> SupervisedLearner:
    """Make a run's learner of demonstrations, on one of its ranks."""
    return SupervisedLearner(model, demonstrations, config, recipe.learning, recipe.seed, ranks)


def batch_of_step(count: int, size: int, step: int, seed: int, label: str) -> list[int]:
    """Indices, below `count`, of a step's batch: passes are shuffled, and batches run across."""
    chosen: list[int] = []
    orders: dict[int, np.ndarray] = {}
    for index in range(step * size, (step + 1) * size):
        epoch, position = divmod(index, count)
        if epoch not in orders:
            generator = np.random.default_rng(derive(seed, label, "order", epoch))
            orders[epoch] = generator.permutation(count)
        chosen.append(int(orders[epoch][position]))
    return chosen
