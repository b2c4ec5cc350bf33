"""Rotary positions that do not depend on what is computed together.

Some models turn their heads by other angles once a text is longer than it was trained on (LongRoPE,
arXiv 2402.13753: Phi-3 and Phi-4; dynamic NTK scaling), and transformers decides that for a whole
batch, by its longest row: what one row says would depend on its neighbours, and keys cached before
the switch would not fit those after it. So the angles are chosen once, by the longest text that a
run may have, as vLLM chooses them by its `--max-model-len`.
"""

from typing import Any

import torch

FIXED = "default"
"""The type of a module that no longer changes its angles."""


@torch.no_grad()
def fix_rotations(model: Any, longest: int) -> None:
    """Give every rotary embedding, in place, the angles of a text of `longest` tokens for good."""
    for module in model.modules():
        kinds = getattr(module, "rope_type", None)
        if isinstance(kinds, str) and _changes(kinds):
            _turn(module, longest)
            module.rope_type = FIXED
        elif isinstance(kinds, dict) and any(map(_changes, kinds.values())):
            for layers, kind in kinds.items():
                if _changes(kind):
                    _turn(module, longest, layers)
            module.rope_type = {
                layers: FIXED if _changes(kind) else kind for layers, kind in kinds.items()
            }


def _changes(kind: Any) -> bool:
    return isinstance(kind, str) and (kind == "longrope" or "dynamic" in kind)


def _turn(module: Any, longest: int, *layers: str) -> None:
    device = next(module.buffers()).device
    places = torch.tensor([[longest - 1]], device=device)
    module(torch.zeros(1, device=device), places, *layers)
