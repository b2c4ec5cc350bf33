"""These tests run as those of the core's learners, whose models and groups they take."""

from tests.learning import conftest as learning

no_progress_bars, one_thread = learning.no_progress_bars, learning.one_thread
