"""Fixtures of the learning tests, and those of wings that learn."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedTokenizerFast
from transformers.utils import logging

from tests.learning import building
from turnwise.types import Group

FAMILIES, VOCABULARY = building.FAMILIES, building.VOCABULARY
LoadModel = Callable[..., Any]
MakeGroups = Callable[..., list[Group]]


@pytest.fixture(autouse=True, scope="session")
def no_progress_bars() -> None:
    """They write to a file of pytest's, which a test of full disks would fail on."""
    logging.disable_progress_bar()


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small matrices are not worth a second thread, and other tests run beside these."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def model_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model of each family on disk."""
    folders = {family: tmp_path_factory.mktemp(family) for family in building.FAMILIES}
    for family, folder in folders.items():
        building.load_model(family).save_pretrained(folder)
    return folders


@pytest.fixture
def load_model() -> LoadModel:
    """For wings: `building.load_model`."""
    return building.load_model


@pytest.fixture
def make_groups() -> MakeGroups:
    """For wings: `building.make_groups`."""
    return building.make_groups


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    return building.word_tokenizer()
