"""docs/reference has what scripts/reference_pages.py makes of the code, and it makes all of it.

The pages that are kept are the example that the scripts are tested by, too.
"""

import re

import pytest

import turnwise
from scripts.reference.api import GROUPS
from scripts.reference_pages import FOLDER, MADE, PAGES
from turnwise.config import recipe_keys


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
    page = (FOLDER / "recipe.md").read_text()
    assert re.findall(r"(?m)^- .*[`)]$", page) == [], "a key has no docstring"
    leaves = {key.rpartition(".")[2] for key in recipe_keys()}
    named = set(re.findall(r"(?m)^- `(\w+)|^## \[(?:\w+\.)*(\w+)\]", page))
    assert leaves - {name for pair in named for name in pair} == set()
