"""Top-k, top-p and min-p against float64 loops and against transformers' own processors."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from turnwise.engines.truncation import truncate


def run(logprobs: torch.Tensor, top_k: int, top_p: float, min_p: float) -> torch.Tensor:
    rows = len(logprobs)
    return truncate(
        logprobs,
        torch.tensor([top_k] * rows),
        torch.tensor([top_p] * rows),
        torch.tensor([min_p] * rows),
    )


def by_hand(row: np.ndarray, top_k: int, top_p: float, min_p: float) -> np.ndarray:
    """Probabilities of what is left, from those of all, token by token."""
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


@pytest.mark.parametrize(
    ("top_k", "top_p", "min_p"), [(7, 0.8, 0.1), (40, 0.5, 0.01), (3, 0.9, 0.5)]
)
def test_what_is_left_is_that_of_transformers(top_k: int, top_p: float, min_p: float) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(20, 50, generator=generator) * 2
    warpers = LogitsProcessorList(
        [TopKLogitsWarper(top_k), TopPLogitsWarper(top_p), MinPLogitsWarper(min_p)]
    )
    expected = warpers(torch.zeros(20, 1, dtype=torch.long), logits).log_softmax(-1)
    left = run(logits.log_softmax(-1), top_k, top_p, min_p)
    assert torch.equal(left.isinf(), expected.isinf())
    assert torch.allclose(left.exp(), expected.exp(), atol=1e-6)


def test_neutral_options_leave_out_nothing() -> None:
    generator = torch.Generator().manual_seed(1)
    logprobs = torch.randn(4, 30, generator=generator).log_softmax(-1)
    assert torch.allclose(run(logprobs, 0, 1.0, 0.0), logprobs, atol=1e-6)


def test_equally_likely_tokens_come_in_order() -> None:
    left = run(torch.zeros(1, 6).log_softmax(-1), 2, 1.0, 0.0)
    assert left.exp()[0].tolist() == pytest.approx([0.5, 0.5, 0, 0, 0, 0])


def test_impossible_tokens_stay_impossible() -> None:
    logits = torch.tensor([[-torch.inf, 1.0, -torch.inf, 0.5]])
    left = run(logits.log_softmax(-1), 3, 1.0, 0.0)
    assert torch.allclose(left.exp(), logits.softmax(-1))
