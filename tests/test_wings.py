"""Wings: what is installed is found, and what cannot be used is named and left out."""

import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import pytest

import turnwise.config.recipe as recipe_module
from turnwise import errors, wings
from turnwise.config import (
    EngineConfig,
    Recipe,
    Section,
    WingSection,
    dump_recipe,
    load_recipe,
    loading,
)
from turnwise.conflicts import Claim
from turnwise.errors import ConfigError
from turnwise.parts import resources
from turnwise.parts.first_checks import known_run
from turnwise.parts.resources import resources_of
from turnwise.training import run
from turnwise.wings import Wing, wings_of

ONE = Wing(commands={"fly": "one:fly", "land": "one:land"})
TWO = Wing(commands={"fly": "two:fly", "swim": "two:swim"})
NOT_ONE = "a wing"
CEILING = "a high ceiling"
TALL = Wing(claims="tests.test_wings:of_tall")
LOW = Wing(claims="tests.test_wings:of_low")


def point(name: str, value: str, requires: str = "turnwise>=0.1") -> EntryPoint:
    """An entry point of a package that needs this version of turnwise."""
    made = EntryPoint(name, f"{__name__}:{value}" if ":" not in value else value, wings.GROUP)
    package = SimpleNamespace(name=f"turnwise-{name}", requires=["numpy", requires])
    return made._for(package)


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__, SimpleNamespace()))


def test_commands_are_found_but_for_one_that_two_wings_have() -> None:
    found = wings_of([point("one", "ONE")])
    assert found.problems == []
    assert found.commands() == ONE.commands
    found = wings_of([point("one", "ONE"), point("two", "TWO")])
    assert found.commands() == {"land": "one:land", "swim": "two:swim"}
    assert found.problems == ["command fly is left out: wings one and two both have it"]


def of_tall(recipe: Recipe) -> Iterator[Claim]:
    yield Claim(f"tall = {recipe.name!r}", (CEILING,))


def of_low(recipe: Recipe) -> Iterator[Claim]:
    yield Claim("low", denies={CEILING: "is a cellar"}, remedy="set low=false")


def test_wings_that_do_not_know_each_other_contradict_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for names, refused in ((["TALL"], 0), (["LOW"], 0), (["TALL", "LOW"], 1)):
        found = wings_of([point(name.lower(), name) for name in names])
        monkeypatch.setattr(recipe_module, "wings", lambda found=found: found)
        problem = "tall = 'search' needs a high ceiling, and low is a cellar: set low=false, or le"
        with pytest.raises(ConfigError, match=problem) if refused else nullcontext():
            load_recipe("search")


def test_two_wings_of_one_name_are_left_out() -> None:
    found = wings_of([point("one", "ONE"), point("one", "TWO"), point("two", "TWO")])
    assert list(found.usable) == ["two"]
    assert found.problems == ["wing one of turnwise-one is left out: another wing has its name"] * 2


def recipe_file(folder: Path) -> Path:
    file = folder / "sky.toml"
    (folder / "calls.jsonl").touch()
    demonstrations = '[sft.demonstrations]\nfile = "calls.jsonl"\n'
    file.write_text(f'name = "sky"\nenvironment.name = "search"\n{demonstrations}')
    return file


def test_a_recipe_of_a_wing_is_found_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wing = Wing(files={"recipe": {"sky": recipe_file(tmp_path), "demo": tmp_path / "sky.toml"}})
    found = wings.Wings({"one": wing}, [])
    monkeypatch.setattr(loading, "wings", lambda: found)
    read = loading.read_recipe("sky")
    assert read["sft"]["demonstrations"]["file"] == str(tmp_path / "calls.jsonl")
    assert loading.shipped_recipes()["demo"].parent != tmp_path
    assert found.files("study") == {}


def test_a_recipe_that_two_have_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    three = Wing(files={"recipe": {"sky": Path("a.toml"), "sea": Path("b.toml")}})
    four = Wing(files={"recipe": {"sky": Path("c.toml")}, "study": {"sea": Path("d.toml")}})
    module = sys.modules[__name__]
    monkeypatch.setattr(module, "THREE", three, raising=False)
    monkeypatch.setattr(module, "FOUR", four, raising=False)
    found = wings_of([point("one", "THREE"), point("two", "FOUR")])
    assert found.files("recipe") == {"sea": Path("b.toml")}
    assert found.files("study") == {"sea": Path("d.toml")}
    assert found.problems == ["recipe sky is left out: wings one and two both have it"]


def test_a_recipe_of_a_wing_that_is_not_installed_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(wings.OWN, "sky", {"recipe": "sky"})
    with pytest.raises(errors.MissingExtraError, match=r"recipe sky.*'turnwise\[sky\]'"):
        loading.read_recipe("sky")


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (point("two", "TWO", "turnwise>=7"), "it is for turnwise>=7, and this is 0.1.0"),
        (point("two", "no_such_module:TWO"), "No module named 'no_such_module'"),
        (point("two", "NOT_ONE"), "is not a Wing"),
        (point("two", "NO_SECTION"), "Bare is no turnwise.config.wing_section.WingSection"),
    ],
)
def test_a_wing_that_cannot_be_used_is_named_and_the_others_work(
    broken: EntryPoint, why: str
) -> None:
    found = wings_of([point("one", "ONE"), broken])
    assert list(found.usable) == ["one"]
    (problem,) = found.problems
    assert problem.startswith("wing two of turnwise-two is left out: ")
    assert why in problem


@pytest.mark.parametrize(
    "wing",
    [
        "1 / 0",
        *(
            f"from turnwise.wings import Wing; WING = Wing({one})"
            for one in ("claims='no_module:claims'", "settings={'sky': 'raising:Sky'}")
        ),
    ],
)
def test_a_wing_that_raises_on_import_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wing: str
) -> None:
    """Whether it is itself, its claims or its settings, which every recipe takes."""
    (tmp_path / "raising_wing.py").write_text(wing)
    (tmp_path / "raising.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "raising_wing", raising=False)
    found = wings_of([point("one", "ONE"), point("two", "raising_wing:WING")])
    assert list(found.usable) == ["one"]
    (problem,) = found.problems
    assert problem.startswith("wing two of turnwise-two is left out: it cannot be imported: ")


class Tidy:
    """A stage of a wing."""


class TidyConfig(WingSection):
    """Asks for the stage."""

    steps: int = 1


STAGED = Wing(
    stages={"tidy": ("tests.test_wings:Tidy", "after RL")},
    settings={"tidy": "tests.test_wings:TidyConfig"},
)


Alone = Callable[..., wings.Wings]


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Alone:
    """Makes the wings of these points the only ones."""

    def use(*points: EntryPoint) -> wings.Wings:
        found = wings_of(points)
        for module in (wings, loading, recipe_module, run, resources):
            monkeypatch.setattr(module, "wings", lambda: found)
        monkeypatch.setattr(loading, "whole_recipe", loading.whole_recipe.__wrapped__)
        return found

    return use


def test_a_section_asks_for_the_stage_of_its_name(alone: Alone) -> None:
    staged = alone(point("staged", "STAGED"))
    asked = load_recipe("demo", ["tidy.steps=1"])
    assert staged.stages(asked) == dict(STAGED.stages)
    assert staged.stages(load_recipe("demo")) == {}, "there is no section"
    assert staged.stages(load_recipe("demo", ["tidy.steps=0"])) == {}
    both = Wing(
        stages={"sky": ("a:A", "first"), "moon": ("b:B", "first"), "earth": ("c:C", "first")}
    )
    sections = SimpleNamespace(sky=1, moon=2, earth=3)
    assert list(wings.Wings({"two": both}, []).stages(sections)) == ["earth", "moon", "sky"]
    components = SimpleNamespace(environment=SimpleNamespace(ablations=dict), player=None)
    context = SimpleNamespace(recipe=asked, components=components)
    names = [type(stage).__name__ for stage in run.stages_of(context)]
    assert names.index("Reinforcement") + 1 == names.index("Tidy")


class Near(EngineConfig):
    """An engine of a wing."""

    name: Literal["near"]


class Far(EngineConfig):
    """Another one."""

    name: Literal["far"]
    distance: int = 3


class Bare(Section):
    """A section that lacks what a run asks of a wing's."""


class Hiring(WingSection):
    """Asks for processes."""

    @property
    def takes_resources(self) -> bool:
        return True


PLACE = "tests.test_wings"
NEAR = Wing(settings={"engine.near": f"{PLACE}:Near"})
FAR = Wing(settings={"engine.far": f"{PLACE}:Far", "one": f"{PLACE}:Hiring"})
NO_SECTION = Wing(settings={"sky": f"{PLACE}:Bare"})
HIRING = Wing(settings={"two": f"{PLACE}:Hiring"})
USURPER = Wing(sections={"tidy": "a:b"})


def test_two_wings_may_each_bring_a_kind_of_one_section(alone: Alone) -> None:
    assert alone(point("near", "NEAR"), point("far", "FAR")).problems == []
    assert isinstance(load_recipe("demo", ["engine=near"]).engine, Near)
    far = load_recipe("demo", ["engine=far", "engine.distance=5"]).engine
    assert far.distance == 5
    assert load_recipe("demo", ["engine=mine.py:Own"]).engine.name == "mine.py:Own"


def test_processes_are_asked_for_once_and_somebody_has_them(alone: Alone) -> None:
    alone(point("far", "FAR"), point("hiring", "HIRING"))
    with pytest.raises(ConfigError, match="one and two each ask for processes"):
        resources_of(load_recipe("demo", ["one={}", "two={}"]), None)
    with pytest.raises(ConfigError, match="no wing has the resources that the section one asks"):
        resources_of(load_recipe("demo", ["one={}"]), None)


def test_a_function_for_the_section_of_another_wing_is_a_clash() -> None:
    found = wings_of([point("staged", "STAGED"), point("two", "USURPER")])
    assert found.problems == ["section tidy is left out: wings staged and two both have it"]
    assert found.made_by("tidy") is None


def test_a_recipe_with_idle_sections_is_read_without_their_wings(
    tmp_path: Path, alone: Alone
) -> None:
    dumped = tmp_path / "config.toml"
    dumped.write_text(dump_recipe(load_recipe("demo")))
    alone()
    assert load_recipe(str(dumped)).model_dump() == load_recipe("demo").model_dump()


@pytest.mark.parametrize(
    ("asked", "named", "extra"),
    [
        ("preferences.steps=1", "section preferences", "judges"),
        ('reward_model.data=["a"]', "section reward_model", "judges"),
        ("reward.parts.judge=1", "reward judge", "judges"),
        ("agent=mine.py:run", "section agent", "gateway"),
        ("cluster.learners=2", "section cluster", "cluster"),
        ("engine=vllm engine.transport=files", "engine vllm", "vllm"),
    ],
)
def test_a_section_of_a_wing_that_is_not_installed_says_what_to_install(
    alone: Alone, asked: str, named: str, extra: str
) -> None:
    alone()
    with pytest.raises(errors.MissingExtraError, match=rf"{named}.*'turnwise\[{extra}\]'"):
        known_run(load_recipe("demo", asked.split()))


def test_our_own_wings_add_what_the_core_says_that_they_do() -> None:
    for extra, kinds in wings.OWN.items():
        own = wings.wings().usable.get(extra)
        for kind, names in kinds.items():
            error = wings.missing(kind, names.split()[0])
            if own is None:
                assert f"pip install 'turnwise[{extra}]'" in str(error)
            else:
                assert error is None
        if own is not None:
            kinds = {kind: names for kind, names in kinds.items() if kind != "reward"}
            listed = {(kind, name) for kind, names in kinds.items() for name in names.split()}
            named = {one for one in own.names() if "." not in one[1]}  # engine.vllm is the engine's
            assert {one for one in named if one[0] in {*kinds, "command", "section"}} == listed
    assert wings.missing("command", "train") is None


def test_an_error_in_a_wing_is_not_in_a_users_own_file() -> None:
    for extra in wings.wings().usable:
        spec = find_spec(f"turnwise_{extra}.wing")
        assert spec is None or errors._is_own(str(spec.origin)) is False
    assert errors._is_own(__file__)
