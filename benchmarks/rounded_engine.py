"""An engine that samples from rounded weights: a mismatch of sampler and learner, planted."""

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from turnwise.engines.base import Engine, EngineSetup
from turnwise.engines.embedded import EmbeddedEngine
from turnwise.errors import ConfigError


class RoundedEngine(EmbeddedEngine):
    """The embedded engine on a copy of the model whose matrices have `bits` bits a weight."""

    @classmethod
    def build(cls, setup: EngineSetup, bits: int = 4) -> Engine:  # type: ignore[override]
        engine = super().build(replace(setup, model=copy.deepcopy(setup.model)))
        if not isinstance(engine, cls):
            raise ConfigError("benchmarks/rounded_engine.py samples in lockstep alone")
        engine.source, engine.bits = setup.model, bits
        return engine

    async def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        own = self.source.state_dict()
        await super().load_weights(self.sampled_weights(own, bits=self.bits), version)

    @classmethod
    def sampled_weights(cls, weights: Mapping[str, Any], bits: int = 4) -> dict[str, Any]:
        return {name: rounded(weight, bits) for name, weight in weights.items()}


def rounded(weight: torch.Tensor, bits: int) -> torch.Tensor:
    """Round each row of a matrix to 2^bits - 1 values, evenly from minus its largest to that."""
    if weight.ndim < 2:
        return weight
    scale = weight.abs().amax(-1, keepdim=True).clamp(min=1e-12) / (2 ** (bits - 1) - 1)
    return (weight / scale).round() * scale
