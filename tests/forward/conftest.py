"""Fixtures of the tests of engine and learner, whose computing is tested here."""

from tests.engines.conftest import _one_thread, tokenizer

__all__ = ["_one_thread", "tokenizer"]
