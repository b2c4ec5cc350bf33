"""Which resources a run has: its own process alone, or those of a wing."""

from pathlib import Path

import pytest

from turnwise.config import load_recipe
from turnwise.parts.resources import Resources, resources_of


def test_a_run_that_asks_for_none_has_its_own_process() -> None:
    with resources_of(load_recipe("demo", ["threads=4"]), None) as found:
        assert found == Resources()


@pytest.mark.wing("cluster")
def test_the_wing_has_the_learners_of_several_processes(tmp_path: Path) -> None:
    for overrides in (["cluster.address=auto"], ["cluster.seconds=5"]):
        with resources_of(load_recipe("demo", overrides), None) as found:
            assert found == Resources()
    with resources_of(load_recipe("demo", ["cluster.learners=2"]), tmp_path) as found:
        assert isinstance(found, Resources)
        assert type(found) is not Resources
