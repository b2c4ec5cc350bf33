"""Information gain: the model's own probabilities of the answer, and nothing that an agent sees."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from tests.fakes import Capitals, byte_tokenizer
from turnwise.algorithms.registry import make_algorithm
from turnwise.config import LearningConfig
from turnwise.errors import ConfigError
from turnwise.learning.batch import assign_advantages
from turnwise.learning.information_gain import measure_information_gain, right_answer
from turnwise.scaffolds.tags import TagScaffold
from turnwise.types import Action, Group, Segment, Source, Task, Tokens

GOLD = [7, 9, 8]


class Written:
    """An answer is its letters between two tokens and one."""

    def render(self, action: Action) -> list[int]:
        assert action.answer is not None
        letters = GOLD if action.answer == "gold" else [ord(action.answer) % 16 + 12]
        return [3, 4, *letters, 5]


def oracle(task: Task) -> Sequence[Action]:
    return [Action("", thought="search"), Action("", answer="gold")]


def measure(groups: list[Group], model: Any, budget: int = 8192) -> dict[str, float]:
    learning = LearningConfig(tokens_per_micro_batch=budget)
    scaffold: Any = Written()
    return measure_information_gain(groups, model, scaffold, oracle, 0.7, learning)


def probability(model: Any, read: list[int]) -> float:
    """exp of the mean log-probability of the answer after what was read, from full logits."""
    ids = torch.tensor([[*read, 3, 4, *GOLD, 5]])
    with torch.no_grad():
        logits = model(input_ids=ids).logits[0].double() / 0.7
    logprobs = torch.log_softmax(logits, dim=-1)
    places = range(len(read) + 2, len(read) + 2 + len(GOLD))
    own = [logprobs[place - 1, ids[0, place]].item() for place in places]
    return float(np.exp(np.mean(own)))


def test_gains_are_the_models_own(load_model: Any, make_groups: Any) -> None:
    """IGPO (arXiv 2510.14967): p(answer | h_{k+1}) - p(answer | h_k), p = exp(mean log pi)."""
    groups, model = make_groups([[1.0, 0.0, None], [0.5, 0.0]]), load_model("qwen3").eval()
    metrics = measure(groups, model)
    gains = []
    for member in (m for group in groups for m in group.graded):
        tokens = member.tokens
        turns = sorted(set(tokens.turn[tokens.mask].tolist()))
        starts = [int(np.flatnonzero(tokens.mask & (tokens.turn == k))[0]) for k in turns]
        expected = [probability(model, tokens.ids[:start].tolist()) for start in starts]
        np.testing.assert_allclose(member.information_gains, np.diff(expected), atol=1e-5)
        gains += np.diff(expected).tolist()
    assert metrics["information/gain"] == pytest.approx(np.mean(gains), abs=1e-5)
    assert groups[0].trajectories[2].information_gains is None
    assert len(gains)


def test_micro_batches_change_nothing(load_model: Any, make_groups: Any) -> None:
    model = load_model("qwen3").eval()
    small, large = make_groups([[1.0, 0.0]]), make_groups([[1.0, 0.0]])
    measure(small, model, budget=64)
    measure(large, model)
    for member, twin in zip(small[0].trajectories, large[0].trajectories, strict=True):
        np.testing.assert_allclose(member.information_gains, twin.information_gains, atol=1e-5)


def test_no_trajectory_holds_the_answer(load_model: Any, make_groups: Any) -> None:
    """Tokens and turns are those that were sampled: what was scored is thrown away."""
    groups, untouched = make_groups([[1.0, 0.0]]), make_groups([[1.0, 0.0]])
    measure(groups, load_model("qwen3").eval())
    for member, other in zip(groups[0].trajectories, untouched[0].trajectories, strict=True):
        for name in ("ids", "source", "turn", "version", "logprob"):
            found, expected = (getattr(m.tokens, name) for m in (member, other))
            np.testing.assert_array_equal(found, expected)
        assert member.turns == other.turns


def test_a_turn_without_a_token_gained_nothing(load_model: Any, make_groups: Any) -> None:
    groups, model = make_groups([[1.0, 0.0]]), load_model("qwen3").eval()
    first, second = groups[0].trajectories
    first.tokens = Tokens.empty()
    first.tokens.extend_segments([Segment([1, 2], Source.USER)], 0)
    for turn in (1, 3):
        first.tokens.extend_sampled([6, 6], [-0.1, -0.1], 0, turn)
    second.tokens = Tokens.empty()
    second.tokens.extend_segments([Segment([1, 2], Source.USER)], 0)
    measure(groups, model)
    before, after = probability(model, [1, 2]), probability(model, [1, 2, 6, 6])
    np.testing.assert_allclose(first.information_gains, [0, after - before, 0], atol=1e-5)
    assert second.information_gains is not None
    assert len(second.information_gains) == 0
    assign_advantages(groups, make_algorithm("igpo", {}))
    assert np.isfinite(first.advantage).all()
    assert first.advantage[2] != first.advantage[4]


def test_what_is_the_answer_in_a_turn_is_found() -> None:
    """Whatever stands around it, and whatever it begins with."""
    scaffold = TagScaffold(byte_tokenizer(), Capitals().tools())
    tokenizer = byte_tokenizer()
    for answer in ("Paris", "0", "x", "0x0", "00"):
        task = Task("t", "?")
        ids, own = right_answer(task, scaffold, lambda _, said=answer: [Action("", answer=said)])
        assert ids.tolist() == scaffold.render(Action("", answer=answer))
        assert tokenizer.decode(ids[own].tolist()) == answer


def test_there_must_be_room_for_the_answer(load_model: Any, make_groups: Any) -> None:
    groups, model = make_groups([[1.0, 0.0]]), load_model("qwen3").eval()
    tokens = Tokens.empty()
    limit = model.config.max_position_embeddings
    tokens.extend_segments([Segment([1] * (limit - 2), Source.USER)], 0)
    tokens.extend_sampled([6], [-0.1], 0, 0)
    groups[0].trajectories[0].tokens = tokens
    with pytest.raises(ConfigError, match="lower rollout.max_tokens by 4"):
        measure(groups, model)
