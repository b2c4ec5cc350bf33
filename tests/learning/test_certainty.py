"""Entropy and self-certainty against the model's own logits."""

import math
from dataclasses import replace

import pytest
import torch

from tests.learning.building import load_model, make_groups
from turnwise.config import LearningConfig
from turnwise.learning.certainty import Certainty
from turnwise.tokens import Tokens

pytestmark = pytest.mark.numbers


@pytest.mark.parametrize("family", ["qwen3", "llama", "gemma2"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_both_are_means_over_sampled_tokens(family: str, temperature: float) -> None:
    model = load_model(family)
    member = make_groups([[1.0]])[0].trajectories[0]
    ids = torch.tensor(member.tokens.ids[None])
    with torch.no_grad():
        logits = model(input_ids=ids).logits[0].double() / temperature
    logprobs = torch.log_softmax(logits, -1)[:-1][torch.tensor(member.tokens.mask[1:])]
    size = logprobs.shape[-1]
    entropy = -(logprobs.exp() * logprobs).sum(-1).mean() / math.log(size)
    certainty = -(logprobs + math.log(size)).mean()
    made = Certainty(model, LearningConfig(), temperature)
    assert made.entropy(member) == pytest.approx(float(entropy), rel=1e-4)
    assert made.self_certainty(member) == pytest.approx(float(certainty), rel=1e-4)


def test_an_even_policy_has_all_entropy_and_no_certainty() -> None:
    model = load_model("llama")
    with torch.no_grad():
        model.get_output_embeddings().weight.zero_()
    made = Certainty(model, LearningConfig(), 1.0)
    member = make_groups([[1.0]])[0].trajectories[0]
    assert made.entropy(member) == pytest.approx(1.0)
    assert made.self_certainty(member) == pytest.approx(0.0, abs=1e-6)


def test_an_episode_without_a_sampled_token() -> None:
    made = Certainty(load_model(), LearningConfig(), 1.0)
    member = replace(make_groups([[1.0]])[0].trajectories[0], tokens=Tokens.empty())
    assert made.entropy(member) == made.self_certainty(member) == 0.0
