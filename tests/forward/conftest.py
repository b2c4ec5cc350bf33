"""Fixtures of the tests of engine and learner, whose computing is tested here."""

from tests.engines.conftest import _one_thread, tokenizer
from tests.learning.conftest import load_model, model_folders

__all__ = ["_one_thread", "load_model", "model_folders", "tokenizer"]
