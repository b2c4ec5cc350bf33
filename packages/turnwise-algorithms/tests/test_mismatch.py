"""The benchmark of corrections: without a mismatch they are all the same."""

import pytest
import torch

from benchmarks.mismatch import CORRECTIONS, LENGTH, PROMPTS, Policy, loss_of, places, sampler_of
from turnwise.algorithms import make_algorithm


def gradient(name: str, bits: int) -> list[float]:
    torch.manual_seed(0)
    policy, answers = Policy(), torch.randint(4, (PROMPTS, LENGTH))
    algorithm = make_algorithm("grpo", {"aggregation": "token_mean", **CORRECTIONS[name]})
    here = policy(*places(torch.arange(PROMPTS), answers))
    sampler = torch.func.functional_call(
        policy, dict(sampler_of(policy, bits)), places(torch.arange(PROMPTS), answers)
    )
    loss_of(algorithm, here, sampler.detach(), answers, torch.linspace(-1, 1, PROMPTS)).backward()
    found = torch.cat([p.grad.flatten() for p in policy.parameters() if p.grad is not None])
    return [float(one) for one in found]


@pytest.mark.parametrize("name", CORRECTIONS)
def test_an_exact_sampler_needs_no_correction(name: str) -> None:
    assert gradient(name, 0) == pytest.approx(gradient("none", 0), abs=1e-6)
    if name not in ("none", "ipo", "kpop"):
        assert gradient(name, 2) != pytest.approx(gradient("none", 2), abs=1e-6)
