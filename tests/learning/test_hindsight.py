"""Scores in hindsight: those of the model's own logits, whatever the micro-batches."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from turnwise.algorithms.registry import make_algorithm
from turnwise.config import LearningConfig
from turnwise.errors import ConfigError
from turnwise.learning.batch import assign_advantages
from turnwise.learning.hindsight import check_context, score_in_hindsight
from turnwise.types import Group, Observation, Segment, Source, Tokens


class Telling:
    """Two words and one that stands for the reward."""

    def extend(self, observation: Observation) -> Sequence[Segment]:
        reward = float(observation.content.rstrip(".").rpartition(" ")[2])
        return [Segment([3, 4], Source.TEMPLATE), Segment([int(10 + 4 * reward)], Source.USER)]


def score(groups: list[Group], model: Any, budget: int = 8192, temperature: float = 0.7) -> None:
    learning = LearningConfig(tokens_per_micro_batch=budget)
    score_in_hindsight(groups, model, Telling(), temperature, learning)  # type: ignore[arg-type]


def test_scores_are_the_models_own(load_model: Any, make_groups: Any) -> None:
    groups, model = make_groups([[1.0, 0.0, None], [0.5, 0.0]]), load_model("qwen3").eval()
    score(groups, model)
    for member in (m for group in groups for m in group.graded):
        tokens = member.tokens
        first = int(np.flatnonzero(tokens.mask)[0])
        told = [3, 4, int(10 + 4 * member.reward)]
        ids = [*tokens.ids[:first].tolist(), *told, *tokens.ids[first:].tolist()]
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids])).logits[0].double() / 0.7
        logprobs = torch.log_softmax(logits, dim=-1)
        for place in range(len(tokens)):
            found = member.hindsight_logprobs[place]
            if not tokens.mask[place]:
                assert np.isnan(found)
                continue
            expected = logprobs[place + len(told) - 1, tokens.ids[place]].item()
            assert found == pytest.approx(expected, abs=1e-4)
    assert groups[0].trajectories[2].hindsight_logprobs is None


def test_micro_batches_and_the_reward_alone_decide(load_model: Any, make_groups: Any) -> None:
    model = load_model("qwen3").eval()
    small, large = make_groups([[1.0, 0.0]]), make_groups([[1.0, 0.0]])
    score(small, model, budget=64)
    score(large, model)
    other = make_groups([[0.0, 0.0]])
    score(other, model)
    for member, twin in zip(small[0].trajectories, large[0].trajectories, strict=True):
        np.testing.assert_allclose(member.hindsight_logprobs, twin.hindsight_logprobs, atol=1e-4)
    assert not np.allclose(
        large[0].trajectories[0].hindsight_logprobs,
        other[0].trajectories[0].hindsight_logprobs,
        atol=1e-3,
        equal_nan=True,
    )


@pytest.mark.parametrize("name", ["hca", "hcapo"])
def test_advantages_come_of_it(load_model: Any, make_groups: Any, name: str) -> None:
    """An episode in which nothing was sampled among them."""
    groups = make_groups([[1.0, 0.0, 0.5]])
    groups[0].trajectories[1].tokens = Tokens.empty()
    groups[0].trajectories[1].tokens.extend_segments([Segment([1, 2], Source.USER)], 0)
    score(groups, load_model("qwen3").eval(), temperature=1.0)
    assign_advantages(groups, make_algorithm(name, {}))
    for member in groups[0].trajectories:
        assert np.isfinite(member.advantage).all()
        assert not member.advantage[~member.tokens.mask].any()
    assert groups[0].trajectories[0].advantage.any()


def test_the_hint_must_have_room() -> None:
    check_context(Telling(), 253, 256)  # type: ignore[arg-type]
    check_context(Telling(), 999, None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"takes 3 more.* lower rollout.max_tokens to 253"):
        check_context(Telling(), 254, 256)  # type: ignore[arg-type]
