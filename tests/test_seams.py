"""What examples, documentation and a package of one's own import: public names and seams alone."""

import ast
import re
from pathlib import Path

import turnwise

ROOT = Path(__file__).parents[1]
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)

SIGNATURES = ROOT / "docs/reference/api.md"
"""The page of the public names: its blocks are no programs."""


def sources() -> dict[str, str]:
    """Programs by their places: files of examples and of the package, blocks of pages."""
    files = [*ROOT.glob("examples/**/*.py"), *ROOT.glob("tests/own_package/*.py")]
    found = {str(path.relative_to(ROOT)): path.read_text() for path in files}
    pages = set((ROOT / "docs").rglob("*.md")) - {SIGNATURES}
    for page in [ROOT / "README.md", *sorted(pages)]:
        for number, block in enumerate(PYTHON_BLOCK.findall(page.read_text())):
            found[f"{page.relative_to(ROOT)} {number}"] = block
    return found


def imported(source: str) -> set[str]:
    """Modules of turnwise that a program imports."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            modules.add(node.module)
        elif isinstance(node, ast.Import):
            modules |= {name.name for name in node.names}
    return {name for name in modules if name.split(".")[0] == "turnwise"}


def test_users_need_nothing_private() -> None:
    """A module that is no seam may change its names at any time."""
    allowed = {"turnwise", *turnwise.SEAMS}
    private = {
        place: modules for place, text in sources().items() if (modules := imported(text) - allowed)
    }
    assert private == {}


def test_every_seam_is_used_by_one_of_them() -> None:
    used = set().union(*map(imported, sources().values()))
    assert set(turnwise.SEAMS) <= used
