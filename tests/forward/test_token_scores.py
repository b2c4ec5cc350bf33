"""Log-probabilities and entropies in pieces, over all tokens and over those that were kept: values
and gradients by hand against autograd's."""

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.fakes import byte_tokenizer, small_model
from tests.learning.building import load_model
from turnwise.forward.logprobs import score_norms, token_logprobs
from turnwise.forward.token_scores import token_scores
from turnwise.tokens import KeptTokens, Segment, Source, Tokens

TOKENS, WIDTH, VOCABULARY = 7, 5, 11


def tensors() -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(0)
    hidden = torch.randn(TOKENS, WIDTH, generator=random, dtype=torch.float64)
    weight = torch.randn(VOCABULARY, WIDTH, generator=random, dtype=torch.float64)
    targets = torch.randint(VOCABULARY, (TOKENS,), generator=random)
    return hidden.requires_grad_(), weight.requires_grad_(), targets


ROWS = [[1, 4, 7], [], [0, 1, 2, 3], [9], [5, 10], [], [2, 8]]


def sets(targets: Tensor) -> KeptTokens:
    """Some tokens, and the target, or all."""
    pairs = zip(ROWS, targets.tolist(), strict=True)
    return KeptTokens.of([sorted({*row, target}) if row else [] for row, target in pairs])


def by_hand(logits: Tensor, targets: Tensor, kept: KeptTokens | None) -> tuple[Tensor, Tensor]:
    """Each row by itself: log-softmax over its own tokens."""
    logprobs, entropies = [], []
    for row, target in enumerate(targets.tolist()):
        among = [] if kept is None else kept[row : row + 1].ids.tolist()
        ids = among or list(range(logits.shape[1]))
        own = logits[row, ids].log_softmax(-1)
        logprobs.append(own[ids.index(target)])
        entropies.append(-(own.exp() * own).sum())
    return torch.stack(logprobs), torch.stack(entropies)


@pytest.mark.parametrize("among_some", [False, True], ids=["all", "kept"])
@pytest.mark.parametrize(("rows", "temperature"), [(3, 0.7), (7, 1.0), (100, 0.7)])
def test_values_and_gradients(rows: int, temperature: float, among_some: bool) -> None:
    hidden, weight, targets = tensors()
    kept = sets(targets) if among_some else None
    given = targets, temperature, rows, kept
    exact = by_hand(hidden @ weight.t() / temperature, targets, kept)
    for found, expected in zip(token_scores(hidden, weight, *given), exact, strict=True):
        torch.testing.assert_close(found, expected)
    assert torch.autograd.gradcheck(
        lambda states, matrix: token_scores(states, matrix, *given), (hidden, weight)
    )


@pytest.mark.parametrize("output", [0, 1])
def test_one_of_both_outputs_alone(output: int) -> None:
    hidden, weight, targets = tensors()
    assert torch.autograd.gradcheck(
        lambda states, matrix: token_scores(states, matrix, targets, 1.0, 3)[output],
        (hidden, weight),
    )


def test_a_frozen_output_layer() -> None:
    hidden, weight, targets = tensors()
    weight.requires_grad_(False)
    for kept in (None, sets(targets)):
        assert torch.autograd.gradcheck(
            lambda states, kept=kept: token_scores(states, weight, targets, 1.0, 3, kept), hidden
        )


def test_going_back_twice_gives_the_same() -> None:
    hidden, weight, targets = tensors()
    logprobs, entropies = token_scores(hidden, weight, targets, 1.0, 3)
    loss = (logprobs + entropies).sum()
    first, second = (torch.autograd.grad(loss, hidden, retain_graph=True)[0] for _ in range(2))
    torch.testing.assert_close(first, second)


def test_logits_beyond_the_range_of_exponentials() -> None:
    hidden, weight, targets = (1000 * part if part.ndim == 2 else part for part in tensors())
    logprobs, entropies = token_scores(hidden, weight, targets, 1.0, 3)
    assert torch.isfinite(logprobs).all()
    assert torch.isfinite(entropies).all()
    gradients = torch.autograd.grad((logprobs + entropies).sum(), (hidden, weight))
    assert all(torch.isfinite(gradient).all() for gradient in gradients)


def test_sets_are_taken_by_place_and_joined() -> None:
    kept = KeptTokens.of(ROWS)
    assert [kept[place : place + 1].ids.tolist() for place in range(len(kept))] == ROWS
    chosen = kept[np.array([4, 0, 1, 0])]
    assert chosen.ids.tolist() == [5, 10, 1, 4, 7, 1, 4, 7]
    assert chosen.counts.tolist() == [2, 3, 0, 3]
    joined = KeptTokens.joined([kept[2:4], 2, kept[6:]])
    assert joined.counts.tolist() == [4, 1, 0, 0, 2]
    assert joined.ids.tolist() == [0, 1, 2, 3, 9, 2, 8]
    assert KeptTokens.chosen([(None, np.arange(3))]) is None
    mixed = KeptTokens.chosen([(None, np.arange(3)), (kept, np.array([3]))])
    assert mixed.counts.tolist() == [0, 0, 0, 1]


def test_a_record_keeps_them_for_what_was_sampled() -> None:
    tokens = Tokens.empty().with_segments([Segment([1, 2], Source.USER)], 0)
    tokens = tokens.with_sampled([3, 4], [-1.0, -2.0], 0, 0, kept=KeptTokens.of([[3, 9], [4]]))
    tokens = tokens.with_context(np.array([0, 3])).with_segments([Segment([5], Source.TOOL)], 0)
    assert tokens.kept.counts.tolist() == [0, 0, 2, 1, 0, 0, 0]
    with pytest.raises(ValueError, match="1 sampled tokens with 2 sets"):
        tokens.with_sampled([3], [-1.0], 0, 0, kept=KeptTokens.of([[3], [4]]))


def test_logits_above_all_that_are_left() -> None:
    """A token that was left out may have become by far the likeliest since."""
    hidden, weight, targets = tensors()
    kept = sets(targets)
    far = weight.detach() * 200
    given = far, targets, 1.0, 3, kept
    found = token_scores(hidden, *given)
    for one, exact in zip(found, by_hand(hidden @ far.t(), targets, kept), strict=True):
        torch.testing.assert_close(one, exact)
    for one in torch.autograd.grad(sum(part.sum() for part in found), hidden):
        assert torch.isfinite(one).all()


@pytest.mark.long
@pytest.mark.parametrize("family", ["qwen3", "gemma2"])
@pytest.mark.parametrize("chunk", [1, 1 << 24], ids=["in chunks", "at once"])
@pytest.mark.parametrize("among_some", [False, True], ids=["all", "kept"])
def test_log_probabilities_of_a_model_are_those_of_plain_torch(
    family: str, chunk: int, among_some: bool
) -> None:
    """A plain output layer, and one whose logits are bounded; with entropies and gradients."""
    model, other = load_model(family), load_model(family)
    ids = torch.arange(1, TOKENS + 2)
    kept = sets(ids[1:]) if among_some else None
    every = torch.ones(1, TOKENS, dtype=torch.bool)
    found = token_logprobs(
        model,
        ids[None, :-1],
        every,
        ids[1:],
        0.8,
        False,
        kept=kept,
        entropy_gradient=True,
        logits_per_chunk=chunk,
    )
    exact = by_hand(other(input_ids=ids[None, :-1]).logits[0] / 0.8, ids[1:], kept)
    for one, two in zip(found, exact, strict=True):
        assert torch.allclose(one, two, 1e-5, 1e-5)
    for pair in (found, exact):
        (pair[0] * torch.arange(TOKENS) + pair[1]).sum().backward()
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        # By the whole matrix: what rounding leaves of a sum that cancels is large beside it.
        assert (one.grad - two.grad).norm() <= 1e-5 * two.grad.norm()


def test_score_norms_are_of_the_same_distribution() -> None:
    model = small_model(byte_tokenizer())
    ids = torch.arange(1, TOKENS + 2)
    kept = sets(ids[1:])
    every = torch.ones(1, TOKENS, dtype=torch.bool)
    with torch.no_grad():
        logits = model(input_ids=ids[None, :-1]).logits[0]
        found = score_norms(model, ids[None, :-1], every, ids[1:], 1.0, False, kept=kept)
    logits.requires_grad_()
    logprobs, _ = by_hand(logits, ids[1:], kept)
    (gradient,) = torch.autograd.grad(logprobs.sum(), logits)
    assert torch.allclose(found, gradient.square().sum(-1), 1e-4, 1e-5)
