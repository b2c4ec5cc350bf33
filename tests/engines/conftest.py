from collections.abc import Iterator

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from tests.forward.models_for_tests import tiny_tokenizer


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    """Tiny models run fastest on one thread, and so do tests side by side."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerFast:
    return tiny_tokenizer(tmp_path_factory.mktemp("tokenizer"))
