"""Supervised learning: the loss by hand, the order of demonstrations, the schedule."""

from typing import Any

import numpy as np
import pytest
import torch

from tests.learning.building import load_model, random_tokens, weights
from turnwise.config import LearningConfig, SftConfig
from turnwise.errors import DataError
from turnwise.learning.optimizer import warm_up, warm_up_then_cosine
from turnwise.learning.sft import SupervisedLearner
from turnwise.tokens import Segment, Source, Tokens

pytestmark = pytest.mark.numbers

RANDOM = np.random.default_rng(5)
DEMONSTRATIONS = [random_tokens(RANDOM) for _ in range(6)]
SFT = SftConfig(steps=6, batch_size=4, learning_rate=3e-3, warmup_steps=2)


def learner(
    model: Any, demonstrations: list[Tokens], sft: SftConfig = SFT, **options: Any
) -> SupervisedLearner:
    return SupervisedLearner(model, demonstrations, sft, LearningConfig(**options), seed=3)


def test_the_loss_is_the_mean_over_the_models_tokens() -> None:
    """All six in one batch, each token's loss from full logits."""
    model = load_model()
    total, count = 0.0, 0
    for tokens in DEMONSTRATIONS:
        ids = torch.tensor(tokens.ids)
        with torch.no_grad():
            logprobs = torch.log_softmax(model(ids[None]).logits[0].double(), -1)
        for t in np.flatnonzero(tokens.mask):
            total -= logprobs[t - 1, ids[t]].item()
            count += 1
    metrics = learner(model, DEMONSTRATIONS, SFT.model_copy(update={"batch_size": 6})).step()
    assert metrics["sft/loss"] == pytest.approx(total / count, rel=1e-5)
    assert metrics["sft/trained_tokens"] == count


def test_micro_batches_do_not_matter() -> None:
    norms = [
        learner(load_model(), DEMONSTRATIONS, tokens_per_micro_batch=budget).step()
        for budget in (64, 10_000)
    ]
    assert norms[0] == pytest.approx(norms[1], rel=1e-5)


def test_it_learns_and_finishes() -> None:
    sft = SFT.model_copy(update={"steps": 12, "batch_size": 6, "learning_rate": 1e-2})
    trained = learner(load_model(), DEMONSTRATIONS, sft)
    losses = []
    while not trained.finished:
        losses.append(trained.step()["sft/loss"])
    assert len(losses) == 12
    assert losses[-1] < 0.5 * losses[0]


def test_every_pass_sees_each_demonstration_once() -> None:
    """Three batches of four are two passes over six; the second pass has another order."""
    trained = learner(load_model(), DEMONSTRATIONS)
    names = [e.name for step in range(3) for e in trained._batch(step)]
    assert sorted(names[:6]) == sorted(names[6:]) == sorted(set(names))
    assert names[:6] != names[6:]


def test_a_gradient_that_is_not_finite_changes_nothing() -> None:
    trained = learner(load_model(), DEMONSTRATIONS)
    trained.optimizer.parameters[0].register_hook(lambda gradient: gradient * torch.nan)
    before = weights(trained.model)
    assert trained.step()["sft/skipped_updates"] == 1
    assert trained.steps_done == 1
    assert torch.equal(before, weights(trained.model))


def test_demonstrations_without_a_token_to_learn_are_refused() -> None:
    tokens = Tokens.empty().with_segments([Segment([1, 2, 3], Source.USER)], 0)
    with pytest.raises(DataError, match="no demonstration"):
        learner(load_model(), [tokens])


def test_schedules_by_hand() -> None:
    assert [warm_up(4)(done) for done in range(6)] == [0.25, 0.5, 0.75, 1, 1, 1]
    assert warm_up(0)(0) == 1
    cosine = [warm_up_then_cosine(2, 7)(done) for done in range(9)]
    assert cosine[:3] == [0.5, 1.0, 1.0]
    assert cosine[4] == pytest.approx(0.55)
    assert cosine[6:] == pytest.approx([0.1, 0.1, 0.1])


def test_weight_decay_leaves_out_vectors() -> None:
    tokens = Tokens.empty().with_segments([Segment([1], Source.USER)], 0)
    tokens = tokens.with_sampled([2], [-1.0], version=0, turn=0)
    trained = learner(load_model(), [tokens], weight_decay=0.5)
    matrices, vectors = trained.optimizer._adamw.param_groups
    assert matrices["weight_decay"] == 0.5
    assert vectors["weight_decay"] == 0
    assert all(p.dim() == 1 for p in vectors["params"])
    assert vectors["params"]
