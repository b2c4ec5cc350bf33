"""The bound by rounding: what is right stays below it, and every real error is far above."""

import copy
from typing import Any

import pytest
import torch

from tests.forward.shapes import follow, off, shaped
from tests.rounding import assert_rounding
from turnwise.forward.equality import allowed, sensitivities
from turnwise.forward.runner import Runner

pytestmark = pytest.mark.numbers


def wrong_weight(model: Any) -> None:
    model.model.layers[1].mlp.down_proj.weight[3, 5] += 0.01


def dropped_head(model: Any) -> None:
    size = model.model.layers[0].self_attn.head_dim
    model.model.layers[0].self_attn.o_proj.weight[:, :size] = 0


def two_weights_exchanged(model: Any) -> None:
    weight = model.model.layers[0].mlp.up_proj.weight
    weight[[1, 2]] = weight[[2, 1]]


def norms_by_another_epsilon(model: Any) -> None:
    """Felt where inputs are small, as those of the first layer are; of the last norm's, which are
    of size 14, it is less than rounding."""
    for module in model.modules():
        if hasattr(module, "variance_epsilon"):
            module.variance_epsilon = 1e-4  # 1e-6 is right


def slower_rotation(model: Any) -> None:
    model.model.rotary_emb.inv_freq *= 0.99


BREAKS = (
    wrong_weight,
    dropped_head,
    two_weights_exchanged,
    norms_by_another_epsilon,
    slower_rotation,
)


@pytest.mark.long
@pytest.mark.parametrize("shape", ["llama", "qwen3 with a window"])
@pytest.mark.parametrize("break_it", BREAKS)
def test_a_real_error_is_far_beyond_rounding(shape: str, break_it: Any) -> None:
    model = shaped(shape)
    found = follow(Runner(model, tokens=160, longest=40), 4)
    assert off(found, model) <= 1
    broken = copy.deepcopy(model)
    with torch.no_grad():
        break_it(broken)
    assert off(found, broken) > 3


@pytest.mark.parametrize("count", [16, 1024, 65536])
def test_sums_in_any_order_are_within_the_bound(count: int) -> None:
    """One after another is the worst order; the bound grows with the root of the length."""
    generator = torch.Generator().manual_seed(count)
    terms = torch.randn(20, count, generator=generator)
    exact = terms.double().sum(1)
    size = float(terms.double().norm(dim=1).max())
    bound = allowed(torch.float32, count, size)
    for order in (terms, terms.flip(1), terms.sort(1).values):
        assert (order.cumsum(1, dtype=torch.float32)[:, -1] - exact).abs().max() <= bound
    assert bound < 1e-3 * size


def test_sensitivity_is_that_of_a_sum() -> None:
    """A sum of n weights of one size moves by about the root of n when all of them change."""
    weights = torch.full((10_000,), 2.0, dtype=torch.float64)
    (moved,) = sensitivities(lambda: [weights.view(10, -1).sum(1)], [weights])
    assert 20 < moved < 400
    assert (weights == 2).all()


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_what_is_no_number_is_never_rounding(number: float) -> None:
    model = shaped("llama")

    def weight(one: Any) -> list[torch.Tensor]:
        return [one.lm_head.weight]

    assert_rounding(weight(model), model, weight)
    with pytest.raises(AssertionError):
        assert_rounding([torch.full_like(model.lm_head.weight, number)], model, weight)
