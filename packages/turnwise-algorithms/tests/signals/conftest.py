"""Models and groups that signals are measured of: those that the core's learners learn from."""

from tests.learning import conftest as learning

make_groups, make_tokens, load_model = (
    learning.make_groups,
    learning.make_tokens,
    learning.load_model,
)
tokenizer, model_folders = learning.tokenizer, learning.model_folders
no_progress_bars, one_thread = learning.no_progress_bars, learning.one_thread
