"""Scores in hindsight: those of the model's own logits, whatever the micro-batches."""

from typing import Any

import numpy as np
import pytest
import torch

from telling import Telling
from tests.learning.building import drawn_among_some, each, with_one
from turnwise.algorithms.registry import make_algorithm
from turnwise.config import LearningConfig
from turnwise.errors import ConfigError
from turnwise.learning.credits import estimate
from turnwise.learning.scoring import scored_by
from turnwise.learning.signals.base import Signals
from turnwise.tokens import Segment, Source, Tokens
from turnwise.types import Group
from turnwise_algorithms.signals.hindsight import Hindsight, check_context


def score(groups: list[Group], model: Any, budget: int = 8192, temperature: float = 0.7) -> Signals:
    learning = LearningConfig(tokens_per_micro_batch=budget)
    scored, telling = scored_by(model, learning, temperature), Telling()
    signal = Hindsight(scored, telling)  # type: ignore[arg-type]
    return signal.measure(groups)


@pytest.mark.parametrize("among_all", [True, False])
def test_scores_are_the_models_own(load_model: Any, make_groups: Any, among_all: bool) -> None:
    """Over the vocabulary, or over the tokens that each one was drawn among."""
    groups, model = make_groups([[1.0, 0.0, None], [0.5, 0.0]]), load_model("qwen3").eval()
    groups = groups if among_all else each(groups, drawn_among_some)
    signals = score(groups, model)
    for member in (m for group in groups for m in group.graded):
        tokens = member.tokens
        first = int(np.flatnonzero(tokens.mask)[0])
        told = [3, 4, int(10 + 4 * member.reward)]
        ids = [*tokens.ids[:first].tolist(), *told, *tokens.ids[first:].tolist()]
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids])).logits[0].double() / 0.7
        logprobs = torch.log_softmax(logits, dim=-1)
        for place in range(len(tokens)):
            found = signals.of(member).hindsight_logprobs[place]  # type: ignore[index]
            if not tokens.mask[place]:
                assert np.isnan(found)
                continue
            own = logprobs[place + len(told) - 1]
            left = [] if among_all else tokens.kept[place : place + 1].ids.tolist()
            total = own[left].logsumexp(-1).item() if left else 0.0
            expected = own[tokens.ids[place]].item() - total
            assert found == pytest.approx(expected, abs=1e-4)
    assert signals.of(groups[0].trajectories[2]).hindsight_logprobs is None


def test_micro_batches_and_the_reward_alone_decide(load_model: Any, make_groups: Any) -> None:
    model = load_model("qwen3").eval()
    groups = make_groups([[1.0, 0.0]])
    small, large = score(groups, model, budget=64), score(groups, model)
    other = score(make_groups([[0.0, 0.0]]), model)
    first, second = (
        [signals.of(member).hindsight_logprobs for member in groups[0].trajectories]
        for signals in (small, large)
    )
    for found, expected in zip(first, second, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-4)
    differing = other.of(groups[0].trajectories[0]).hindsight_logprobs
    assert not np.allclose(second[0], differing, atol=1e-3, equal_nan=True)


@pytest.mark.parametrize("name", ["hca", "hcapo"])
def test_advantages_come_of_it(load_model: Any, make_groups: Any, name: str) -> None:
    """An episode in which nothing was sampled among them."""
    tokens = Tokens.empty().with_segments([Segment([1, 2], Source.USER)], 0)
    groups = with_one(make_groups([[1.0, 0.0, 0.5]]), 0, 1, tokens=tokens)
    signals = score(groups, load_model("qwen3").eval(), temperature=1.0)
    advantages = estimate(groups, signals, make_algorithm(name, {})).advantages
    for member in groups[0].trajectories:
        assert np.isfinite(advantages[member.id]).all()
        assert not advantages[member.id][~member.tokens.mask].any()
    assert advantages[groups[0].trajectories[0].id].any()


def test_the_hint_must_have_room() -> None:
    check_context(Telling(), 253, 256)  # type: ignore[arg-type]
    check_context(Telling(), 999, None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"takes 3 more.* lower rollout.max_tokens to 253"):
        check_context(Telling(), 254, 256)  # type: ignore[arg-type]
