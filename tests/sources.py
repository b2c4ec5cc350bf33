"""Where the code of turnwise is, and of its wings that are installed."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import turnwise

ROOT = Path(__file__).parents[1]
PACKAGES = [
    Path(turnwise.__file__).parent,
    *(path for path in sorted(ROOT.glob("packages/*/src/*")) if find_spec(path.name)),
]


def modules() -> Iterator[tuple[Path, str]]:
    """All files of Python, each with its dotted name."""
    for package in PACKAGES:
        for path in sorted(package.rglob("*.py")):
            name = ".".join(path.relative_to(package.parent).with_suffix("").parts)
            yield path, name.removesuffix(".__init__")
