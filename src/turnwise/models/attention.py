"""A model of transformers with another attention function for a while. Not here: such functions
(`engines/spans.py`, `learning/attention.py`, `learning/prefix_tree.py`)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask


@contextmanager
def attending(model: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Inside, the model attends by `function`, which transformers knows as `name`; masks are those
    of `sdpa`."""
    AttentionInterface.register(name, function)
    AttentionMaskInterface.register(name, sdpa_mask)
    settings = model.config.get_text_config()
    before = settings._attn_implementation
    settings._attn_implementation = name
    try:
        yield
    finally:
        settings._attn_implementation = before
