"""Ranks that end, or do not answer: one line that names the rank, in time, and no process left."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cluster_tests.learners.comparing import REWARDS, loaded, recipe_of
from cluster_tests.workers.processes import descendants, left_after
from tests.processes import ended
from turnwise.config import Recipe
from turnwise.errors import InfrastructureError
from turnwise.learning.credits import estimate
from turnwise.learning.signals.base import Signals
from turnwise.types import Group
from turnwise_cluster.learners.learner import DistributedLearner
from turnwise_cluster.learners.parts import algorithm_of
from turnwise_cluster.learners.team import Team
from turnwise_cluster.settings import ClusterConfig

MakeGroups = Callable[..., list[Group]]
SECONDS = 5.0


@pytest.fixture
def recipe(model_folders: dict[str, Path]) -> Recipe:
    return recipe_of(model_folders["qwen3"], {"name": "grpo"})


@pytest.fixture
def own_team(tmp_path: Path) -> Iterator[Team]:
    """Ranks that a test may end."""
    team = Team(2, torch.device("cpu"), 1, SECONDS, tmp_path / "learners")
    yield team
    team.close()


def worker_of(team: Team) -> int:
    """The process of rank 1."""
    return team._arrivals[1].process


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "message"),
    [
        (signal.SIGKILL, r"learner rank 1 .* ended in update \(code -9\)"),
        pytest.param(
            signal.SIGSTOP,
            "learner ranks do not answer within cluster.seconds = 5 in update",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_rank_that_is_gone_ends_the_update(
    own_team: Team, recipe: Recipe, make_groups: MakeGroups, number: signal.Signals, message: str
) -> None:
    learner = DistributedLearner(own_team, recipe, loaded(recipe, 1), None)
    groups = make_groups(REWARDS)
    credits = estimate(groups, Signals(), algorithm_of(recipe))
    process, begun = worker_of(own_team), time.monotonic()
    os.kill(process, number)
    with pytest.raises(InfrastructureError, match=message):
        learner.update(groups, credits)
    assert time.monotonic() - begun < 4 * SECONDS
    assert ended([process])


@pytest.mark.long
def test_a_call_of_the_second_model_is_told_from_that_of_the_policy(own_team: Team) -> None:
    """Both have a method `update`."""

    def fail() -> None:
        raise RuntimeError("a collective")

    own_team.parts = SimpleNamespace(learner=SimpleNamespace(second=SimpleNamespace(update=fail)))
    os.kill(worker_of(own_team), signal.SIGKILL)
    with pytest.raises(InfrastructureError, match=r"rank 1 .* ended in second\.update \(code -9\)"):
        own_team.call("learner.second.update")


@pytest.mark.long
@pytest.mark.parametrize("replicas", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_all_groups_of_ranks_have_the_deadline(
    recipe: Recipe, tmp_path: Path, replicas: int
) -> None:
    """Those that compute rows together, and those of replicas, too."""
    slices = ClusterConfig(learners=2, sequence_ranks=2 // replicas)
    recipe = recipe.model_copy(update={"cluster": slices})
    team = Team(2, torch.device("cpu"), 1, SECONDS, tmp_path / "learners", replicas=replicas)
    try:
        DistributedLearner(team, recipe, loaded(recipe, 1), None)
        groups: list[Any] = team.ranks._mesh.get_all_groups()
        if (slicing := team.ranks.slicing) is not None:
            groups.append(slicing.group)
        cpu = torch.device("cpu")
        found = [group._get_backend(cpu).options._timeout for group in groups]
    finally:
        team.close()
    assert found == [timedelta(seconds=SECONDS)] * 2


@pytest.mark.long
def test_an_error_of_another_rank_is_told(own_team: Team, recipe: Recipe, tmp_path: Path) -> None:
    """Of one that finds no model where this rank has found it."""
    elsewhere = recipe.model_copy(
        update={"model": recipe.model.model_copy(update={"name": str(tmp_path / "none")})}
    )
    model = loaded(recipe, 1)
    with pytest.raises(
        InfrastructureError, match=r"rank 1 .* ended in build \(code 1\): .*DataError"
    ):
        DistributedLearner(own_team, elsewhere, model, None)


@pytest.mark.long
def test_signals_to_all_processes_leave_the_ranks_to_the_first(own_team: Team) -> None:
    """As Ctrl-C in a terminal sends them."""
    process = worker_of(own_team)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        os.kill(process, number)
    time.sleep(0.2)
    assert left_after({process}, 0) == {process}
    own_team.close()
    assert ended([process])
    own_team.close()


def test_a_rank_that_does_not_come_is_named(tmp_path: Path) -> None:
    before = descendants(os.getpid())
    with pytest.raises(InfrastructureError, match=r"learner rank 1 was not ready within .*= 0.1"):
        Team(2, torch.device("cpu"), 1, SECONDS, tmp_path / "learners", start_seconds=0.1)
    assert not left_after(descendants(os.getpid()) - before, 10.0)
