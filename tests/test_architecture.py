"""Promise 12 and the shape of the code: what importing does, how long functions are."""

import ast
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import turnwise

PACKAGE = Path(turnwise.__file__).parent
LONGEST_FUNCTION = 80


LIGHT = {
    "annotated_types",
    "numpy",
    "pydantic",
    "pydantic_core",
    "turnwise",
    "typing_extensions",
    "typing_inspection",
}
"""Packages outside the standard library that `import turnwise` may bring with it."""


def test_importing_is_light_and_silent() -> None:
    """Counted in packages: seconds depend on the machine, and on what else it does."""
    code = (
        "import sys; before = set(sys.modules); import turnwise; "
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}; "
        "sys.stderr.write(' '.join(new))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == ""
    new = set(run.stderr.split())
    assert "turnwise" in new
    assert new & set(metadata.packages_distributions()) <= LIGHT


def test_importing_writes_no_file(tmp_path: Path) -> None:
    """Not in the working folder, nor in a home that is empty."""
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
    code = (
        "import turnwise, turnwise.cli, turnwise.training.run, turnwise.environments.search.corpus"
    )
    subprocess.run([sys.executable, "-c", code], cwd=work, env=environment, check=True)
    assert not [*home.rglob("*"), *work.rglob("*")]


def test_help_does_not_load_torch() -> None:
    code = (
        "import sys; sys.argv = ['turnwise', '--help']\n"
        "from turnwise.cli import main\n"
        "try: main()\n"
        "except SystemExit: assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)


def test_exported_names() -> None:
    assert turnwise.__all__ == sorted(turnwise.__all__)
    assert all(hasattr(turnwise, name) for name in turnwise.__all__)


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.stem)
def test_functions_are_short_and_modules_say_what_they_are(path: Path) -> None:
    tree = ast.parse(path.read_text())
    if path.name != "__init__.py" or path.stat().st_size:
        assert ast.get_docstring(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno < LONGEST_FUNCTION, node.name
