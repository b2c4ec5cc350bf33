"""The learning tests' tokenizer, and what keeps progress bars off full disks."""

from tests.learning.conftest import no_progress_bars, one_thread, tokenizer

__all__ = ["no_progress_bars", "one_thread", "tokenizer"]
