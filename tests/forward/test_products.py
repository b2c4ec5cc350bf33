"""Tests of products by weights in the order of kernels."""

import platform

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.forward.shapes import follow, off, shaped
from turnwise.forward import products
from turnwise.forward.runner import Runner

pytestmark = pytest.mark.numbers

NEAR = 1e-5
"""Of sums of 96 products of standard normal numbers in float32."""


class Operations(TorchDispatchMode):
    """Names of what PyTorch is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.names.add(function._schema.name)
        return function(*args, **kwargs or {})


@pytest.mark.parametrize(
    ("machine", "intel", "kernel"),
    [
        ("x86_64", True, "mkl::_mkl_linear"),
        ("x86_64", False, "mkldnn::_linear_pointwise"),
        ("arm64", False, "aten::mm"),
    ],
)
def test_each_processor_has_the_kernel_that_was_measured(
    machine: str, intel: bool, kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kernel.startswith("mkl::") and not torch.backends.mkl.is_available():
        pytest.skip("this PyTorch has no MKL")
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(products, "suits_mkl", lambda: intel)
    draws = torch.Generator().manual_seed(0)
    weights = torch.randn(130, 96, generator=draws)
    with torch.inference_mode():
        product = products.product(weights.clone())
        for rows in (1, 2, 3, 16, 17, 64, 100, 600):
            # A part of wider rows, as the last input of each history is.
            states = torch.randn(rows, 200, generator=draws)[:, :96]
            with Operations() as asked:
                found = product(states)
            assert kernel in asked.names
            exact = states.double() @ weights.double().t()
            assert (found - exact).abs().max() < NEAR * exact.abs().max()
    model = shaped("llama")
    assert off(follow(Runner(model, tokens=160, longest=40), 4), model) <= 1


def test_weights_of_devices_and_bfloat16_are_multiplied_as_they_may_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(products, "suits_mkl", lambda: True)
    states = torch.ones(2, 16)
    assert products.product(torch.ones(24, 16, device="meta"))(states.to("meta")).shape == (2, 24)
    halves = products.product(torch.ones(24, 16, dtype=torch.bfloat16))(states.bfloat16())
    assert halves.dtype == torch.bfloat16
    assert halves.eq(16).all()
