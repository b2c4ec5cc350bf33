"""A learner of two processes, started once, and what it is compared with: the learner of one."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from cluster_tests.learners.comparing import Bench
from tests.learning import conftest as learning
from turnwise.types import Group
from turnwise_cluster.learners.team import Team

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


class KeptTeam:
    """Two ranks on this machine's processor, which take seconds to start: they stay from test to
    test, until one has ended them or makes ranks of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._team: Team | None = None

    def open(self) -> Team:
        if self._team is None or not self._team._processes:
            self._team = Team(2, torch.device("cpu"), 1, 60.0, self._folder)
        return self._team

    def close(self) -> None:
        if self._team is not None:
            self._team.close()
            self._team = None  # to close it again would end another one's group


@pytest.fixture(scope="package")
def kept_team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeptTeam]:
    kept = KeptTeam(tmp_path_factory.mktemp("learners"))
    yield kept
    kept.close()


@pytest.fixture(autouse=True)
def no_ranks_beside(request: pytest.FixtureRequest, kept_team: KeptTeam) -> None:
    """A process is of one group of ranks at a time."""
    if "team" not in request.fixturenames:
        kept_team.close()


@pytest.fixture
def team(kept_team: KeptTeam) -> Team:
    return kept_team.open()


@pytest.fixture
def bench(
    team: Team,
    model_folders: dict[str, Path],
    make_groups: Callable[..., list[Group]],
    tokenizer: Any,
    tmp_path: Path,
) -> Bench:
    """Two ranks, and what is compared on them."""
    return Bench(team, model_folders, make_groups, tokenizer, tmp_path)
