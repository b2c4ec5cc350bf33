"""Scores in hindsight, gains of information and score norms: those of the model's own logits,
whatever the micro-batches."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from telling import Telling
from tests.fakes import Capitals, byte_tokenizer
from tests.learning.building import (
    drawn_among_some,
    each,
    load_model,
    make_groups,
    members_of,
    with_one,
)
from turnwise.algorithms.registry import make_algorithm
from turnwise.config import LearningConfig
from turnwise.errors import ConfigError
from turnwise.learning.credits import estimate
from turnwise.learning.scoring import scored_by
from turnwise.learning.signals.base import Signals
from turnwise.scaffolds.tags import TagsScaffold
from turnwise.tokens import Segment, Source, Tokens
from turnwise.types import Action, Group, Task
from turnwise_algorithms.signals.hindsight import Hindsight, check_context
from turnwise_algorithms.signals.information_gain import InformationGain, right_answer
from turnwise_algorithms.signals.score_norms import ScoreNorms


def score(groups: list[Group], model: Any, budget: int = 8192, temperature: float = 0.7) -> Signals:
    learning = LearningConfig(tokens_per_micro_batch=budget)
    return Hindsight(scored_by(model, learning, temperature), Telling()).measure(groups)


@pytest.mark.parametrize(("among_all", "budget"), [(True, 8192), (False, 8192), (True, 64)])
def test_scores_are_the_models_own(among_all: bool, budget: int) -> None:
    """Over the vocabulary, or over the tokens that each one was drawn among."""
    groups, model = make_groups([[1.0, 0.0, None], [0.5, 0.0]]), load_model("qwen3").eval()
    groups = groups if among_all else each(groups, drawn_among_some)
    signals = score(groups, model, budget)
    for member in members_of(groups):
        tokens = member.tokens
        first = int(np.flatnonzero(tokens.mask)[0])
        told = [3, 4, int(10 + 4 * member.reward)]
        ids = [*tokens.ids[:first].tolist(), *told, *tokens.ids[first:].tolist()]
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids])).logits[0].double() / 0.7
        logprobs = torch.log_softmax(logits, dim=-1)
        for place in range(len(tokens)):
            found = signals.of(member).hindsight_logprobs[place]
            if not tokens.mask[place]:
                assert np.isnan(found)
                continue
            own = logprobs[place + len(told) - 1]
            left = [] if among_all else tokens.kept[place : place + 1].ids.tolist()
            total = own[left].logsumexp(-1).item() if left else 0.0
            expected = own[tokens.ids[place]].item() - total
            assert found == pytest.approx(expected, abs=1e-4)
    assert signals.of(groups[0].trajectories[2]).hindsight_logprobs is None


@pytest.mark.parametrize("name", ["hca", "hcapo"])
def test_advantages_come_of_it(name: str) -> None:
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
    check_context(Telling(), 253, 256)
    check_context(Telling(), 999, None)
    with pytest.raises(ConfigError, match=r"takes 3 more.* lower rollout.max_tokens to 253"):
        check_context(Telling(), 254, 256)


GOLD = [7, 9, 8]


class Written:
    """An answer is its letters between two tokens and one."""

    def render(self, action: Action) -> list[int]:
        letters = GOLD if action.answer == "gold" else [ord(action.answer) % 16 + 12]
        return [3, 4, *letters, 5]


def oracle(task: Task) -> Sequence[Action]:
    return [Action("", thought="search"), Action("", answer="gold")]


def measure(groups: list[Group], model: Any, budget: int = 8192) -> Signals:
    learning = LearningConfig(tokens_per_micro_batch=budget)
    scaffold: Any = Written()
    scored, context = scored_by(model, learning, 0.7), model.config.max_position_embeddings
    return InformationGain(scored, scaffold, oracle, context).measure(groups)


def probability(model: Any, read: list[int]) -> float:
    """exp of the mean log-probability of the answer after what was read, from full logits."""
    ids = torch.tensor([[*read, 3, 4, *GOLD, 5]])
    with torch.no_grad():
        logits = model(input_ids=ids).logits[0].double() / 0.7
    logprobs = torch.log_softmax(logits, dim=-1)
    places = range(len(read) + 2, len(read) + 2 + len(GOLD))
    own = [logprobs[place - 1, ids[0, place]].item() for place in places]
    return float(np.exp(np.mean(own)))


@pytest.mark.parametrize("budget", [64, 8192])
def test_gains_are_the_models_own(budget: int) -> None:
    """IGPO (arXiv 2510.14967): p(answer | h_{k+1}) - p(answer | h_k), p = exp(mean log pi)."""
    groups, model = make_groups([[1.0, 0.0, None], [0.5, 0.0]]), load_model("qwen3").eval()
    signals = measure(groups, model, budget)
    gains = []
    for member in members_of(groups):
        tokens = member.tokens
        turns = sorted(set(tokens.turn[tokens.mask].tolist()))
        starts = [int(np.flatnonzero(tokens.mask & (tokens.turn == k))[0]) for k in turns]
        expected = [probability(model, tokens.ids[:start].tolist()) for start in starts]
        found = signals.of(member).information_gains
        np.testing.assert_allclose(found, np.diff(expected), atol=1e-5)
        gains += np.diff(expected).tolist()
    assert signals.metrics["information/gain"] == pytest.approx(np.mean(gains), abs=1e-5)
    assert signals.of(groups[0].trajectories[2]).information_gains is None
    assert len(gains)


def test_a_turn_without_a_token_gained_nothing() -> None:
    model, prompt = load_model("qwen3").eval(), [Segment([1, 2], Source.USER)]
    silent = tokens = Tokens.empty().with_segments(prompt, 0)
    for turn in (1, 3):
        tokens = tokens.with_sampled([6, 6], [-0.1, -0.1], 0, turn)
    groups = with_one(with_one(make_groups([[1.0, 0.0]]), 0, 0, tokens=tokens), 0, 1, tokens=silent)
    signals = measure(groups, model)
    first, second = (signals.of(member).information_gains for member in groups[0].trajectories)
    before, after = probability(model, [1, 2]), probability(model, [1, 2, 6, 6])
    np.testing.assert_allclose(first, [0, after - before, 0], atol=1e-5)
    assert len(second) == 0
    credits = estimate(groups, signals, make_algorithm("igpo", {}))
    advantage = credits.advantages[groups[0].trajectories[0].id]
    assert np.isfinite(advantage).all()
    assert advantage[2] != advantage[4]


def test_what_is_the_answer_in_a_turn_is_found() -> None:
    """Whatever stands around it, and whatever it begins with."""
    tokenizer = byte_tokenizer()
    scaffold = TagsScaffold(tokenizer, Capitals().tools())
    for answer in ("Paris", "0", "x", "0x0", "00"):
        task = Task("t", "?")
        ids, own = right_answer(task, scaffold, lambda _, said=answer: [Action("", answer=said)])
        assert ids.tolist() == scaffold.render(Action("", answer=answer))
        assert tokenizer.decode(ids[own].tolist()) == answer


def test_there_must_be_room_for_the_answer() -> None:
    model = load_model("qwen3").eval()
    prompt = [1] * (model.config.max_position_embeddings - 2)
    tokens = Tokens.empty().with_segments([Segment(prompt, Source.USER)], 0)
    tokens = tokens.with_sampled([6], [-0.1], 0, 0)
    groups = with_one(make_groups([[1.0, 0.0]]), 0, 0, tokens=tokens)
    with pytest.raises(ConfigError, match=r"lower rollout\.max_tokens by 4"):
        measure(groups, model)


TEMPERATURE = 0.7


@pytest.mark.parametrize("budget", [64, 10_000])
def test_score_norms_are_the_squared_gradients_of_log_probabilities(budget: int) -> None:
    """By autograd through float64 logits of a model that bounds them; nothing for the ungraded."""
    model, groups = load_model("gemma2").eval(), make_groups([[1.0, None, 0.0]])
    config = LearningConfig(tokens_per_micro_batch=budget)
    signals = ScoreNorms(scored_by(model, config, TEMPERATURE)).measure(groups)
    assert signals.of(groups[0].trajectories[1]).score_norms is None
    for member in groups[0].graded:
        ids, mask = torch.tensor(member.tokens.ids), member.tokens.mask
        with torch.no_grad():
            logits = model(input_ids=ids[None]).logits[0].double() / TEMPERATURE
        norms = signals.of(member).score_norms
        assert norms.dtype == np.float32
        assert (np.isfinite(norms) == mask).all()
        for place in np.flatnonzero(mask):
            before = logits[place - 1].clone().requires_grad_()
            (slope,) = torch.autograd.grad(before.log_softmax(-1)[ids[place]], before)
            assert norms[place] == pytest.approx(float(slope @ slope), abs=1e-5)
    credits = estimate(groups, signals, make_algorithm("otb", {}))
    assert any(own.any() for own in credits.advantages.values())
