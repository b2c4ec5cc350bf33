"""docs/reference has what scripts/reference_pages.py makes of the code, and it makes all of it."""

import re
from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
from pydantic import Field

import turnwise
from scripts.reference.api import GROUPS, docstring, signature
from scripts.reference.recipe import settings, tables_of
from scripts.reference_pages import FOLDER, MADE, PAGES
from turnwise.config import Choice, Section, recipe_keys


class Shared(Section):
    share: Annotated[int, Field(ge=1)] | Literal["all"] = "all"
    """Of it."""


class Near(Shared):
    """Sampling in this process.

    Not shown.
    """

    name: Literal["near"] = "near"
    seconds: float = Field(2.0, gt=0, le=9)
    """Deadline | of a turn."""


class Urls(Section):
    """Servers that run."""

    urls: tuple[str, ...]


class Started(Section):
    """Servers to start."""

    count: int = 1


class Far(Shared):
    """Sampling by servers."""

    name: Literal["far"]
    servers: Annotated[Urls | Started, Choice("urls")] = Started()


class Named(Section):
    """An engine of your own."""

    name: str


class Whole(Section):
    engine: Annotated[Near | Far | Named, Choice("name")] = Near()
    more: Near | None = None


@dataclass
class Own:
    """A record."""

    size: int = 3
    """Of it."""


@pytest.mark.wing("environments")
@pytest.mark.wing("gateway")
@pytest.mark.wing("judges")
@pytest.mark.wing("studies")
@pytest.mark.wing("view")
@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_what_the_code_says(name: str) -> None:
    made = MADE + PAGES[name]()
    assert (FOLDER / name).read_text() == made, f"docs/reference/{name} is old: make reference"


def test_all_public_names_and_keys_are_on_their_pages() -> None:
    named = [name for names in GROUPS.values() for name in names.split()]
    assert sorted(named) == turnwise.__all__
    page = PAGES["recipe.md"]()
    assert re.findall(r"(?m)^- .*[`)]$", page) == [], "a key has no docstring"
    leaves = {key.rpartition(".")[2] for key in recipe_keys()}
    named = set(re.findall(r"(?m)^- `(\w+)|^## \[(?:\w+\.)*(\w+)\]", page))
    assert leaves - {name for pair in named for name in pair} == set()


def test_a_choice_has_a_section_for_each_of_its_kinds() -> None:
    text = tables_of("engine", Whole.model_fields["engine"])
    assert text.startswith(
        '\n## [engine]\n\nAlike with name = "near", with name = "far":\n\n'
        '- `share = "all"` (integer ≥ 1 or `all`): Of it.\n'
        '\n## [engine] with name = "near"\n\nSampling in this process.\n\n'
        '- `name = "near"`\n'
        "- `seconds = 2.0` (> 0 ≤ 9): Deadline | of a turn.\n"
        '\n## [engine] with name = "far"\n\nSampling by servers.\n\n- `name = "far"` (needed)\n'
    )
    assert text.count("share") == 1
    assert "\n## [engine.servers] with urls\n" in text
    assert "- `urls` (list of text, needed)\n" in text
    assert "\n## [engine.servers] without urls\n" in text
    assert "\n## [engine] with another name\n" in text
    assert tables_of("more", Whole.model_fields["more"]).startswith("\n## [more]\n")
    assert settings(Own) == ["- `size = 3`: Of it.\n"]


def test_signatures_and_docstrings_as_one_reads_them() -> None:
    def one(first: "Own", *, how: "Literal['a', 'b']" = "a") -> "list[Own]": ...
    def two(
        given: "dict[str, list[Own]]", *, how: "Literal['a', 'bc']" = "a", limit: float = 1.0
    ): ...

    assert signature(one) == "(first: Own, *, how: Literal['a', 'b'] = 'a') -> list[Own]"
    assert signature(two) == (
        "(\n    given: dict[str, list[Own]],\n    *,\n    how: Literal['a', 'bc'] = 'a',\n"
        "    limit: float = 1.0,\n)"
    )
    text = "A\nline.\n\nArgs:\n    one: of\n        two.\n    three: 4.\n\n    a b\n>>> x\n>>> y\n1"
    assert docstring(text) == (
        "A line.\n\n- `one`: of two.\n- `three`: 4.\n\n```text\na b\n```\n\n"
        "```pycon\n>>> x\n>>> y\n1\n```\n"
    )


@pytest.mark.wing("environments")
def test_options_of_environments_have_the_ranges_of_their_signatures() -> None:
    page = PAGES["environment_options.md"]()
    section = page.partition("\n## mathematics\n")[2].partition("\n## ")[0]
    assert "`tasks.max_steps = 4` (1 to 4)" in section
    assert "`tasks.file` (text, needed)" in section
    assert "`tasks.heldout_share = 0.5` (0 to 1)" in section
    assert '`interpreter = "calculator"` (`calculator`, `python`, `none`)' in section
    assert "`kinds` (list of `none`, `search`, `calculator`, `both`, all by default)" in page
