"""A learner of two processes, started once, and what it is compared with: the learner of one."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from tests.learning import conftest as learning
from turnwise.cluster.learners.team import Team

make_groups, one_thread, load_model = (
    learning.make_groups,
    learning.one_thread,
    learning.load_model,
)
tokenizer = learning.tokenizer
folders = learning.model_folders


@pytest.fixture(scope="session")
def model_folders(folders: dict[str, Path], tokenizer: PreTrainedTokenizerFast) -> dict[str, Path]:
    """A random model of each family on disk, with its tokenizer."""
    for folder in folders.values():
        tokenizer.save_pretrained(folder)
    return folders


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    """Two ranks on this machine's processor."""
    team = Team(2, torch.device("cpu"), 1, 60.0, tmp_path_factory.mktemp("learners"))
    yield team
    team.close()
