"""Log-probabilities and entropies in pieces: values and gradients by hand against autograd's."""

import pytest
import torch
from torch import Tensor

from turnwise.forward.token_scores import token_scores

TOKENS, WIDTH, VOCABULARY = 7, 5, 11


def tensors() -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(0)
    hidden = torch.randn(TOKENS, WIDTH, generator=random, dtype=torch.float64)
    weight = torch.randn(VOCABULARY, WIDTH, generator=random, dtype=torch.float64)
    targets = torch.randint(VOCABULARY, (TOKENS,), generator=random)
    return hidden.requires_grad_(), weight.requires_grad_(), targets


@pytest.mark.parametrize("rows", [1, 3, 7, 100])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_values_and_gradients(rows: int, temperature: float) -> None:
    hidden, weight, targets = tensors()
    logprobs, entropies = token_scores(hidden, weight, targets, temperature, rows)
    whole = (hidden @ weight.t() / temperature).log_softmax(-1)
    torch.testing.assert_close(logprobs, whole.gather(1, targets[:, None])[:, 0])
    torch.testing.assert_close(entropies, -(whole.exp() * whole).sum(-1))
    assert torch.autograd.gradcheck(
        lambda states, matrix: token_scores(states, matrix, targets, temperature, rows),
        (hidden, weight),
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
    assert torch.autograd.gradcheck(
        lambda states: token_scores(states, weight, targets, 1.0, 3), hidden
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
