"""The loop of a synthesis: deduplicated, without what is held out, bounded, and resumable."""

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from turnwise.api import load_recipe
from turnwise.config import Recipe
from turnwise.errors import ConfigError, DataError, RunStoppedError
from turnwise.monitor.display import SilentDisplay
from turnwise.ranges import Count
from turnwise.seeds import derive
from turnwise.types import Task
from turnwise_synthesis.folder import ITEMS, REFUSED, Folder
from turnwise_synthesis.heldout import HeldOut
from turnwise_synthesis.items import Item, Material, Refused
from turnwise_synthesis.loop import synthesise
from turnwise_synthesis.making import fixed_settings, make_method
from turnwise_synthesis.settings import SynthesisConfig

HELD_OUT = "How much is seven and nine, all in all, if one adds them both?"
SUMS = f"{__file__}:Sums"


class Sums:
    """Sums of two numbers; 0 is refused."""

    def __init__(self, material: Material, largest: Count = 30) -> None:
        self.seed, self.largest = material.seed, largest

    def propose(self, attempt: int) -> Item:
        drawn = random.Random(derive(self.seed, attempt))
        one, two = drawn.randint(0, self.largest), drawn.randint(0, self.largest)
        if not one:
            raise Refused("trivial")
        question = HELD_OUT.lower() if one == self.largest else f"{one} + {two}?"
        return Item(question if one == self.largest else f"{one} {two}", {"question": question})


class Endless:
    """A model that answers nothing of use."""

    def __init__(self, material: Material) -> None:
        del material

    def propose(self, attempt: int) -> Item:
        raise Refused("malformed")


def recipe_of(settings: Mapping[str, Any]) -> Recipe:
    return load_recipe(
        {"name": "sums", "environment": {"name": "search"}, "synthesis": dict(settings)}
    )


def filled(folder: Path, **settings: Any) -> Folder:
    recipe = recipe_of({"method": SUMS, **settings})
    section = recipe.find(SynthesisConfig)
    assert section is not None
    material = Material(recipe, section)
    found = Folder(folder, fixed_settings(material))
    heldout = HeldOut([Task("one", HELD_OUT)])
    synthesise(section, make_method(material), heldout, found, SilentDisplay())
    return found


def contents(folder: Path) -> list[bytes]:
    files = [folder / name for name in (ITEMS, REFUSED)]  # none may be refused
    return [file.read_bytes() if file.exists() else b"" for file in files]


def test_items_are_there_once_and_what_is_held_out_is_refused(tmp_path: Path) -> None:
    found = filled(tmp_path, items=200)
    assert len({line["key"] for line in found.items}) == 200
    assert {line["reason"] for line in found.refused} == {"trivial", "duplicate", "held out"}
    assert len(found.items) + len(found.refused) == found.next_attempt


def test_a_synthesis_that_was_stopped_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    filled(tmp_path / "whole", items=60)
    filled(tmp_path / "cut", items=25)
    for name in (ITEMS, REFUSED):
        with (tmp_path / "cut" / name).open("a") as file:
            file.write('{"attempt": 3')  # what a machine that goes down leaves
    filled(tmp_path / "cut", items=60)
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")
    with pytest.raises(DataError, match=r"holds items of other settings.*--out"):
        filled(tmp_path / "cut", items=60, options={"largest": 8})


def test_a_method_that_gives_nothing_ends_after_a_budget(tmp_path: Path) -> None:
    with pytest.raises(RunStoppedError, match=r"100% of 100 attempts were refused .100 malformed"):
        filled(tmp_path, method=f"{__file__}:Endless", max_refused_share=0.99)
    with pytest.raises(RunStoppedError, match=r"refused .*duplicate.* items are in"):
        filled(tmp_path / "few", options={"largest": 2})  # there are but a few such sums


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"method": "webshape"}, "webshape"),
        ({"options": {"large": 3}}, "unknown option 'large'"),
        ({"options": {"largest": 0}}, "option 'largest'"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(
    settings: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=problem):
        filled(tmp_path, **settings)


def test_a_text_that_holds_a_prompt_nearly_is_found() -> None:
    heldout = HeldOut([Task("one", HELD_OUT)])
    nearly = f"Well: {HELD_OUT.upper().replace('BOTH?', 'two.')} Sixteen!"
    assert heldout.holds({"messages": [{"content": nearly}]})
    assert not heldout.holds({"messages": [{"content": "How much is seven and nine?"}]})
