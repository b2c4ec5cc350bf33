"""Sampling against NumPy in float64, and stop strings against decoding everything each time."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engines.driving import TOKENIZER
from tests.forward.models_for_tests import END
from turnwise.engines.base import Sampling
from turnwise.engines.sampling import (
    StopMatcher,
    TokenTexts,
    check_sampling,
    sample,
    truncate,
    uniforms,
)
from turnwise.errors import ConfigError, InfrastructureError


def probabilities(logits: torch.Tensor, temperature: float) -> np.ndarray:
    scaled = logits.double().numpy() / temperature
    exponents = np.exp(scaled - scaled.max(-1, keepdims=True))
    return np.asarray(exponents / exponents.sum(-1, keepdims=True))


def at(*temperatures: float) -> list[Sampling]:
    return [Sampling(max_tokens=1, temperature=temperature) for temperature in temperatures]


def random_logits(rows: int, vocabulary: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, vocabulary, generator=generator) * 3


@pytest.mark.parametrize("top_k", [0, 3])
def test_tokens_invert_the_cumulative_distribution_of_what_is_left(top_k: int) -> None:
    logits = random_logits(200, 30, seed=0)
    draws = uniforms(3, 200).tolist()
    sampling = Sampling(max_tokens=1, temperature=0.7, top_k=top_k)
    tokens, logprobs, _ = sample(logits, [sampling] * 200, draws)
    expected = probabilities(logits, 0.7)
    least = np.sort(expected)[:, -top_k][:, None]  # of index 0: the least likely of all
    expected = np.where(expected >= least, expected, 0)
    expected /= expected.sum(-1, keepdims=True)
    for row, (token, logprob, draw) in enumerate(zip(tokens, logprobs, draws, strict=True)):
        mass = expected[row].cumsum()
        assert mass[token] - expected[row, token] - 1e-6 <= draw <= mass[token] + 1e-6
        assert logprob == pytest.approx(np.log(expected[row, token]), abs=1e-5)


@pytest.mark.parametrize("draw", [0.0, 0.5, 1 - 2.0**-53])
def test_impossible_tokens_are_never_drawn(draw: float) -> None:
    logits = torch.full((1, 40), -torch.inf)
    logits[0, 10:30] = random_logits(1, 20, seed=2)
    tokens, *_ = sample(logits, at(1), [draw])
    assert 10 <= tokens[0] < 30


def test_greedy_rows_take_the_best_at_temperature_one() -> None:
    logits = random_logits(3, 50, seed=3)
    alone, alone_logprobs, _ = sample(logits, at(0, 0, 0), [0.1, 0.2, 0.3])
    mixed, mixed_logprobs, _ = sample(logits, at(0, 0.5, 0), [0.1, 0.2, 0.3])
    expected = probabilities(logits, 1.0)
    assert alone == logits.argmax(-1).tolist()
    assert (mixed[0], mixed[2]) == (alone[0], alone[2])
    assert alone_logprobs == pytest.approx(np.log(expected.max(-1)).tolist(), abs=1e-5)
    assert mixed_logprobs[1] == pytest.approx(
        np.log(probabilities(logits, 0.5)[1, mixed[1]]), abs=1e-5
    )


def test_each_row_leaves_out_its_own_tokens() -> None:
    logits = random_logits(4, 50, seed=4)
    draws = [0.9, 0.2, 0.99, 0.4]
    samplings = [
        Sampling(max_tokens=1, temperature=0.7),
        Sampling(max_tokens=1, temperature=0, top_k=2),
        Sampling(max_tokens=1, top_k=3),
        Sampling(max_tokens=1, temperature=2.0, top_p=0.3, min_p=0.2),
    ]
    tokens, logprobs, _ = sample(logits, samplings, draws)
    plain, plain_logprobs, _ = sample(logits, at(0.7, 0, 1, 2), draws)
    assert (tokens[:2], logprobs[:2]) == (plain[:2], plain_logprobs[:2])
    best = logits[2].topk(3)
    assert tokens[2] in best.indices.tolist()
    place = best.indices.tolist().index(tokens[2])
    assert logprobs[2] == pytest.approx(best.values.log_softmax(-1)[place].item(), abs=1e-5)


def test_logits_that_are_not_numbers_are_an_error() -> None:
    with pytest.raises(InfrastructureError, match="diverged"):
        sample(torch.full((2, 5), torch.nan), at(1, 1), [0.5, 0.5])


def test_uniforms_depend_on_the_seed_alone() -> None:
    for seed in (0, 7, -1, 2**64 + 3):
        expected = np.random.Generator(np.random.Philox(key=seed % 2**64)).random(9)
        assert np.array_equal(uniforms(seed, 9), expected)


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(max_tokens=0),
        Sampling(max_tokens=1, temperature=-0.1),
        Sampling(max_tokens=1, temperature=float("nan")),
        Sampling(max_tokens=1, stop=("",)),
        Sampling(max_tokens=1, top_k=-1),
        Sampling(max_tokens=1, top_p=0.0),
        Sampling(max_tokens=1, top_p=1.1),
        Sampling(max_tokens=1, min_p=-0.1),
        Sampling(max_tokens=1, min_p=float("nan")),
    ],
)
def test_senseless_sampling_is_refused(sampling: Sampling) -> None:
    with pytest.raises(ConfigError):
        check_sampling(sampling)


def stops_at(tokens: list[int], stop: tuple[str, ...]) -> int | None:
    """The index that a matcher stops at."""
    matcher = StopMatcher(stop, TokenTexts(TOKENIZER))
    return next((index for index, token in enumerate(tokens) if matcher.feed(token)), None)


def first_with(tokens: list[int], stop: tuple[str, ...]) -> int | None:
    """The same, by decoding the whole completion after each token."""
    for index in range(len(tokens)):
        text = TOKENIZER.decode(tokens[: index + 1], skip_special_tokens=False)
        if any(one in text for one in stop):
            return index
    return None


def ids(*pieces: str) -> list[int]:
    known = TOKENIZER.get_vocab()
    return [known[piece] for piece in pieces]


@pytest.mark.parametrize(
    ("pieces", "stop", "index"),
    [
        (("</", "search", ">", "a"), ("</search>",), 2),
        (("</", "se", "ar", "ch", "r>x"), ("</search>", "chr>"), 4),
        (("a", END, "b"), (END,), 1),
        (("a", "b", "a", "b"), ("ba",), 2),
        (("a", "a", "b"), ("</search>",), None),
        (("Ã", "©", "a"), ("é",), 1),
        (("â", "Ĥ", "¬", "r>x"), ("€r",), 3),
    ],
)
def test_stop_strings(pieces: tuple[str, ...], stop: tuple[str, ...], index: int | None) -> None:
    assert stops_at(ids(*pieces), stop) == index


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_stop_strings_agree_with_decoding_everything(data: st.DataObject) -> None:
    alphabet = ids("a", "b", "ab", "</", "r>x", "Ã", "©", "â", "Ĥ", "¬", END)
    tokens = data.draw(st.lists(st.sampled_from(alphabet), max_size=12))
    stop = data.draw(st.lists(st.text("ab</r>xé€", min_size=1, max_size=4), max_size=3))
    expected = first_with(tokens, tuple(stop))
    assert stops_at(tokens, tuple(stop)) == expected


def test_tokens_that_are_left_are_returned_where_they_are_asked_for() -> None:
    logits = torch.tensor([[0.0, 3.0, 2.0, 1.0, -1.0]]).repeat(5, 1)
    samplings = [
        Sampling(max_tokens=1, top_k=3, returns_kept=True),
        Sampling(max_tokens=1, top_k=3),
        Sampling(max_tokens=1, returns_kept=True),
        Sampling(max_tokens=1, top_p=0.1, returns_kept=True),
        Sampling(max_tokens=1, top_k=3, temperature=0, returns_kept=True),
    ]
    kept = sample(logits, samplings, [0.5] * 5).kept
    assert [None if own is None else own.tolist() for own in kept] == [
        [1, 2, 3],
        None,
        None,
        [1],
        None,
    ]


def run(logprobs: torch.Tensor, top_k: int, top_p: float, min_p: float) -> torch.Tensor:
    rows = len(logprobs)
    return truncate(
        logprobs,
        torch.tensor([top_k] * rows),
        torch.tensor([top_p] * rows),
        torch.tensor([min_p] * rows),
    )


def by_hand(row: np.ndarray, top_k: int, top_p: float, min_p: float) -> np.ndarray:
    """Probabilities of what is left, from those of all, token by token, in transformers' order."""
    order = sorted(range(len(row)), key=lambda token: -row[token])
    order = order[: top_k or len(row)]
    total = sum(row[token] for token in order)
    chosen: list[int] = []
    while order and (top_p == 1 or sum(row[token] for token in chosen) < top_p * total):
        chosen.append(order.pop(0))
    chosen = [token for token in chosen if row[token] >= min_p * row[chosen[0]]]
    left = np.zeros(len(row))
    left[chosen] = row[chosen]
    return left / left.sum()


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    top_k=st.integers(0, 12),
    top_p=st.sampled_from([1.0, 0.95, 0.5, 0.137, 1e-6]),
    min_p=st.sampled_from([0.0, 0.05, 0.31, 1.0]),
)
def test_what_is_left_is_that_of_a_loop(seed: int, top_k: int, top_p: float, min_p: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    logprobs = (torch.randn(3, 10, generator=generator) * 2).log_softmax(-1)
    left = run(logprobs, top_k, top_p, min_p)
    for row, after in zip(
        logprobs.double().exp().numpy(), left.double().exp().numpy(), strict=True
    ):
        expected = by_hand(row, top_k, top_p, min_p)
        assert (after > 0).tolist() == (expected > 0).tolist()
        assert after == pytest.approx(expected, abs=1e-6)


def test_equally_likely_tokens_come_in_order() -> None:
    left = run(torch.zeros(1, 6).log_softmax(-1), 2, 1.0, 0.0)
    assert left.exp()[0].tolist() == pytest.approx([0.5, 0.5, 0, 0, 0, 0])


def test_impossible_tokens_stay_impossible() -> None:
    logits = torch.tensor([[-torch.inf, 1.0, -torch.inf, 0.5]])
    left = run(logits.log_softmax(-1), 3, 1.0, 0.0)
    assert torch.allclose(left.exp(), logits.softmax(-1))
