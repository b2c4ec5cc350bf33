"""README and docs/ are true: links lead somewhere, code is the examples', keys are a recipe's.

Not here: the pages that are made from the code (test_reference_pages.py), the commands of `bash`
blocks (.ci/commands), links between the pages of the site (`make docs` is strict). The log keeps
the keys of its day.
"""

import re
import shlex
import tomllib
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest

from tests.marked import SECTIONS as SECTIONS_OF_WINGS
from turnwise.config import check_recipe, load_recipe, recipe_keys
from turnwise.config.loading import check_section
from turnwise.storage.trajectory_rows import SCHEMA

ROOT = Path(__file__).parents[1]


def of_wings(test: Callable[..., None]) -> Callable[..., None]:
    """Marks a test of pages that name sections of wings."""
    for wing in sorted({*SECTIONS_OF_WINGS.values(), "vllm"}):
        test = pytest.mark.wing(wing)(test)
    return test


THIRTY = 30
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "AGENTS.md")),
    *sorted((ROOT / ".agents").rglob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "docs/llms.txt",
]
USER_PAGES = [page for page in PAGES if page.name != "CHANGELOG.md" and page.parent.name != "log"]
SECTIONS = {key.partition(".")[0] for key in recipe_keys()}
FREE = ("environment.options", "environment.consequential", "sandbox", "scaffold.options")
FREE += (
    "engine.options",
    "algorithm",
    "sft.demonstrations.behaviours",
    "reward.parts",
    "reward.costs",
)
"""Tables whose keys are not the recipe's own."""
OTHERS = {"evaluation.match", "evaluation.check", "evaluation.example"}
"""Fields of AgentBench's records."""


def blocks(page: Path, *languages: str) -> Iterator[str]:
    """The fenced blocks of a page in one of the languages."""
    for language, text in re.findall(r"^```(\w+)\n(.*?)^```", page.read_text(), re.S | re.M):
        if language in languages:
            yield text


def name(page: Path) -> str:
    """A page as its test is called."""
    return str(page.relative_to(ROOT))


def test_the_environment_is_the_example_and_has_thirty_lines() -> None:
    code = (ROOT / "examples/thermostat.py").read_text().partition('"""\n\n')[2]
    for page in ("README.md", "docs/start/own_environment.md"):
        assert f"```python\n{code}```" in (ROOT / page).read_text(), page
    body = code.partition("class ")[2]
    assert len([line for line in body.splitlines() if line.strip()]) <= THIRTY


def test_all_columns_of_a_trajectory_are_explained() -> None:
    page = (ROOT / "docs/how-to/run_folder.md").read_text().partition("## Columns")[2]
    named = [column for row in re.findall(r"^- (`.*?): ", page, re.M) for column in row.split(", ")]
    assert sorted(named) == sorted(f"`{column}`" for column in SCHEMA.names)


def test_assistants_are_shown_every_page_for_users() -> None:
    text = (ROOT / "docs/llms.txt").read_text()
    folders = ("start", "concepts", "how-to", "reference")
    pages = [page for folder in folders for page in sorted((ROOT / "docs" / folder).glob("*.md"))]
    assert [page.name for page in pages if f"/{page.name})" not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_to_files(page: Path) -> None:
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if not target.startswith(("http", "#")):
            file = target.partition("#")[0]
            assert (page.parent / file).exists(), f"{name(page)} links to {target}"


@of_wings
@pytest.mark.parametrize("page", USER_PAGES, ids=name)
def test_tables_of_recipes_are_recipes(page: Path) -> None:
    """What a block leaves out has a default, or is filled in."""
    for text in blocks(page, "toml"):
        given = tomllib.loads(text)
        if set(given) == {"judge"}:
            judges = import_module("turnwise_judges.settings")
            check_section(judges.JudgeFile, given, name(page))
        elif "arms" in given:
            continue  # a study, which is the package turnwise-studies' to test
        elif set(given) <= SECTIONS:
            environment = {"name": "search"} | given.get("environment", {})
            check_recipe({"name": "page"} | given | {"environment": environment}, name(page))
        else:
            assert "project" in given, f"{name(page)}: no recipe has all of {sorted(given)}"


@of_wings
@pytest.mark.parametrize("page", USER_PAGES, ids=name)
def test_commands_change_keys_that_recipes_have(page: Path) -> None:
    for text in blocks(page, "sh", "bash"):
        for line in text.replace("\\\n", " ").splitlines():
            words = shlex.split(line.partition(" #")[0]) if "turnwise" in line else []
            if not {"train", "evaluate", "play", "study"} & set(words):
                continue
            changes = [word for word in words if re.match(r"[a-z_]+(\.[a-z_0-9]+)*=", word)]
            load_recipe("demo", ["algorithm.name=grpo", *changes])


@of_wings
@pytest.mark.parametrize("page", USER_PAGES, ids=name)
def test_keys_in_the_text_are_those_of_recipes(page: Path) -> None:
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)
    keys = [key.split(".") for key in recipe_keys()]
    known = {".".join(key[:end]) for key in keys for end in range(1, len(key) + 1)}
    for key in re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)(?: ?= ?[^`]*)?`", prose):
        if key.partition(".")[0] in SECTIONS and not re.search(r"\.(py|md|toml|txt|jsonl?)$", key):
            free = any(key == table or key.startswith(f"{table}.") for table in FREE)
            assert key in known | OTHERS or free, f"{name(page)}: {key} is no key of a recipe"


@pytest.mark.parametrize("page", USER_PAGES, ids=name)
def test_files_in_the_text_are_there(page: Path) -> None:
    """Those with a folder; `path/to/file.py` is the reader's."""
    named = r"(?:`|\bstudy |\bpython )(\w+/[\w/]+\.(?:py|c|h|toml|sbatch|yaml))\b"
    for file in re.findall(named, page.read_text()):
        if not file.startswith("path/to/"):
            folders = [
                ROOT,
                *ROOT.glob("src/*"),
                *ROOT.glob("packages/*/src"),
                *ROOT.glob("packages/*/src/*"),
            ]
            found = any((folder / file).exists() for folder in folders)
            assert found, f"{name(page)}: {file}"
