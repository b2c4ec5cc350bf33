"""Which resources a run has: its own process alone, or those of the wing."""

from pathlib import Path

import pytest

from turnwise import wings
from turnwise.config import load_recipe
from turnwise.errors import MissingExtraError
from turnwise.parts import resources
from turnwise.parts.resources import Resources, resources_of


def test_a_run_of_one_process_asks_for_no_wing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(resources, "wings")
    for overrides in ("", "cluster.address=auto", "threads=4"):
        with resources_of(load_recipe("demo", overrides.split()), None) as found:
            assert found == Resources()


@pytest.mark.parametrize("overrides", ["cluster.learners=2", "cluster.workers=1"])
def test_more_processes_are_the_wing_s(overrides: str, monkeypatch: pytest.MonkeyPatch) -> None:
    none = wings.Wings({}, [])
    monkeypatch.setattr(wings, "wings", lambda: none)
    monkeypatch.setattr(resources, "wings", lambda: none)
    with pytest.raises(MissingExtraError, match=r"section cluster, .*'turnwise\[cluster\]'"):
        resources_of(load_recipe("demo", overrides.split()), None)


@pytest.mark.wing("cluster")
def test_the_wing_has_the_learners_of_several_processes(tmp_path: Path) -> None:
    with resources_of(load_recipe("demo", ["cluster.learners=2"]), tmp_path) as found:
        assert isinstance(found, Resources)
        assert type(found) is not Resources
