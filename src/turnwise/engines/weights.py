"""New weights for the model that an engine samples from, matched by name."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel

from turnwise.engines.sessions import Future
from turnwise.errors import ConfigError, unknown_name


@dataclass(frozen=True)
class WeightUpdate:
    """New weights that wait for the end of a forward pass."""

    changes: list[tuple[torch.Tensor, torch.Tensor]]
    version: int
    done: Future[None]

    @torch.no_grad()
    def load(self) -> None:
        for target, source in self.changes:
            target.copy_(source)


def match_weights(
    model: PreTrainedModel, weights: Mapping[str, Any]
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Pairs of the model's own tensor and its new values. Raises ConfigError for an unknown name or
    a wrong shape."""
    known = model.state_dict(keep_vars=True)
    changes = []
    for name, values in weights.items():
        if name not in known:
            raise unknown_name("weight", name, known)
        source = torch.as_tensor(values)
        if source.shape != known[name].shape:
            shapes = f"{list(source.shape)}, the model's is {list(known[name].shape)}"
            raise ConfigError(f"weight {name!r} has shape {shapes}")
        changes.append((known[name], source))
    return changes
