"""The preference stage: which pairs, the loss by hand, exact resumption."""

import copy
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.learning import test_optimizer, test_routing_replay
from tests.learning.building import (
    descend_plainly,
    load_model,
    make_groups,
    weights,
    with_one,
)
from turnwise.config import LearningConfig
from turnwise.tokens import Image, Segment, Source, Tokens
from turnwise_judges.preferences.learner import (
    Pair,
    PreferenceLearner,
    _images,
    _tensors,
    best_and_worst,
    dpo,
    saved_pairs,
)
from turnwise_judges.settings import PreferencesConfig

CONFIG = PreferencesConfig(steps=6, batch_size=2, learning_rate=1e-3, beta=0.2)
REWARDS = [[1.0, 0.0, 0.5], [0.2, 0.7], [0.0, 1.0]]


def learner(
    model: Any,
    pairs: list[Pair],
    config: PreferencesConfig = CONFIG,
    temperature: float = 1.0,
    **options: Any,
) -> PreferenceLearner:
    learning = LearningConfig(**options)
    return PreferenceLearner(model, pairs, config, learning, temperature, seed=3)


def total(model: Any, tokens: Tokens, temperature: float = 1.0) -> torch.Tensor:
    """Log-probability of all sampled tokens, from full logits in float64."""
    ids = torch.tensor(tokens.ids)
    logprobs = torch.log_softmax(model(ids[None]).logits[0].double() / temperature, -1)
    places = [t for t in range(1, len(ids)) if tokens.source[t] == Source.MODEL]
    return torch.stack([logprobs[t - 1, ids[t]] for t in places]).sum()


def test_pairs_are_the_best_and_the_worst_that_were_graded() -> None:
    groups = make_groups([[0.5, 1.0, None, 0.0, 1.0, 0.0], [1.0, 1.0], [1.0], [None, 0.0], []])
    ((better, worse),) = best_and_worst(groups)
    members = groups[0].trajectories
    assert better is members[1].tokens
    assert worse is members[3].tokens


def test_a_trajectory_without_a_token_to_train_is_not_chosen() -> None:
    groups = make_groups([[1.0, 0.0, 0.5]])
    inherited = np.full(len(groups[0].trajectories[1].tokens), Source.INHERITED, np.uint8)
    groups = with_one(groups, 0, 1, source=inherited)
    ((_, worse),) = best_and_worst(groups)
    assert worse is groups[0].trajectories[2].tokens


@pytest.mark.long
@pytest.mark.parametrize(("budget", "temperature"), [(64, 1.0), (100_000, 1.0), (100_000, 0.5)])
def test_loss_and_gradient_match_a_second_computation(budget: int, temperature: float) -> None:
    """The second step, when policy and reference differ; whatever the micro-batches, and at the
    temperature of sampling in both models."""
    pairs = best_and_worst(make_groups(REWARDS))
    config = CONFIG.model_copy(update={"batch_size": 3})
    trained = learner(load_model(), pairs, config, temperature, tokens_per_micro_batch=budget)
    first = trained.step()
    assert first["preferences/loss"] == pytest.approx(np.log(2), abs=1e-5)
    assert first["preferences/margin"] == pytest.approx(0, abs=1e-5)  # rounding, on some processors
    policy, reference = copy.deepcopy(trained.model).double(), load_model().double()

    def ratio(tokens: Tokens) -> torch.Tensor:
        return total(policy, tokens, temperature) - total(reference, tokens, temperature).detach()

    margins = torch.stack([0.2 * (ratio(better) - ratio(worse)) for better, worse in pairs])
    expected = -torch.nn.functional.logsigmoid(margins).mean()
    expected.backward()
    before = weights(descend_plainly(trained).model)
    metrics = trained.step()
    gradient = before - weights(trained.model)
    by_hand = torch.cat([p.grad.flatten() for p in policy.parameters()])
    assert metrics["preferences/loss"] == pytest.approx(expected.item(), rel=1e-4)
    assert metrics["preferences/margin"] == pytest.approx(margins.mean().item(), rel=1e-3)
    assert metrics["preferences/accuracy"] == (margins > 0).double().mean().item()
    assert expected.item() < 0.68
    assert by_hand.norm() > 1e-2
    assert (gradient - by_hand).norm() / by_hand.norm() < 1e-3


@pytest.mark.long
def test_resuming_is_exact_through_a_file(tmp_path: Path) -> None:
    """The pairs and the reference come out of the state, not from what is at hand."""
    pairs = best_and_worst(make_groups(REWARDS))
    through, first = learner(load_model(), pairs), learner(load_model(), pairs)
    while not through.finished:
        through.step()
    assert through.steps_done == CONFIG.steps
    for _ in range(3):
        first.step()
    torch.save(first.state(), tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    second = learner(first.model, saved_pairs(state))
    second.load_state(state)
    while not second.finished:
        second.step()
    assert torch.equal(weights(through.model), weights(second.model))
    torch.testing.assert_close(through.state(), second.state(), rtol=0, atol=0, equal_nan=True)


def test_a_gradient_that_is_not_finite_changes_nothing() -> None:
    trained = learner(load_model(), best_and_worst(make_groups(REWARDS)))
    trained.optimizer.parameters[0].register_hook(lambda gradient: gradient * torch.nan)
    before = weights(trained.model)
    assert trained.step()["preferences/skipped_updates"] == 1
    assert torch.equal(before, weights(trained.model))


@pytest.mark.long
def test_it_has_masters_and_resumes_exactly_through_a_file() -> None:
    def make() -> Any:
        pairs = best_and_worst(make_groups(test_optimizer.REWARDS))
        config = PreferencesConfig(steps=9, batch_size=2, learning_rate=test_optimizer.RATE)
        model = load_model(dtype=torch.bfloat16)
        made = PreferenceLearner(model, pairs, config, LearningConfig(), 1.0, 3)
        return made, lambda _: made.step(), made.model

    test_optimizer.assert_resumes_exactly("preferences", make)


@pytest.mark.long
def test_the_reference_is_routed_as_the_policy() -> None:
    model = test_routing_replay.nudged(test_routing_replay.mixture())
    tokens = test_routing_replay.sampled(test_routing_replay.mixture())
    config = PreferencesConfig(steps=1, batch_size=1)
    pairs = [(tokens[0], tokens[2])]
    trained = PreferenceLearner(copy.deepcopy(model), pairs, config, LearningConfig(), 1.0, 0)
    ((better, _),) = saved_pairs(trained.state())
    assert np.array_equal(better.ids, tokens[0].ids)
    assert trained.step()["preferences/margin"] == pytest.approx(0, abs=1e-5)


def test_pairs_are_saved_with_their_images() -> None:
    words = Tokens.empty().with_segments([Segment([9] * 3, Source.USER, b"one")], 0)
    pair = (words.with_sampled([3, 4], [-0.1, -0.2], 0, 0),) * 2
    state: dict[str, Any] = {
        "pairs": [[_tensors(tokens) for tokens in pair]],
        "images": [[_images(tokens) for tokens in pair]],
    }
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    ((better, worse),) = saved_pairs(torch.load(file, weights_only=True))
    assert better.images == worse.images == pair[0].images == (Image(0, 3, b"one"),)
    np.testing.assert_array_equal(better.ids, pair[0].ids)


def test_extreme_pairs_stay_finite() -> None:
    better = torch.tensor([-1e4, 1e4], requires_grad=True)
    losses, _ = dpo(better, torch.zeros(2), 1.0)
    losses.sum().backward()
    assert losses.tolist() == [1e4, 0.0]
    assert better.grad.tolist() == [-1.0, 0.0]
