"""The learning tests' fixtures that keep progress bars off full disks."""

from tests.learning.conftest import no_progress_bars, one_thread

__all__ = ["no_progress_bars", "one_thread"]
