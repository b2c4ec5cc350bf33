"""A part of `gpu.py` by another: transformers' `generate`."""

from argparse import Namespace
from typing import Any

import torch
from gpu_engine import PROMPT
from gpu_models import random_model, timed


def generate(arguments: Namespace, shape: str) -> dict[str, Any]:
    """Tokens a second of transformers, of one turn of as many sequences as in `sampling`."""
    model, new = random_model(shape, arguments.type, arguments.device), arguments.new
    size = arguments.sequences, PROMPT
    ids = torch.randint(3, model.config.vocab_size, size, device=model.device)

    @torch.inference_mode()
    def once() -> None:
        model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=True,
            top_k=0,
            min_new_tokens=new,
            max_new_tokens=new,
            pad_token_id=0,
        )

    seconds, memory = timed(once, arguments)
    return {"tokens/s": round(arguments.sequences * new / seconds), **memory}
