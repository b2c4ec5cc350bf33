"""The tiny models of the learning tests, which checkpoints are made of."""

from tests.learning.conftest import (
    load_model,
    model_folders,
    no_progress_bars,
    one_thread,
    tokenizer,
)

__all__ = ["load_model", "model_folders", "no_progress_bars", "one_thread", "tokenizer"]
