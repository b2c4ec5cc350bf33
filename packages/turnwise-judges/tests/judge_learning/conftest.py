"""Tiny random models and trajectories of random tokens, those of the core's tests of learning."""

from tests.learning import conftest as learning

load_model, make_groups = learning.load_model, learning.make_groups
model_folders, no_progress_bars = learning.model_folders, learning.no_progress_bars
one_thread = learning.one_thread
