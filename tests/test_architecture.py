"""Promise 12 and the shape of the code: what importing does, how long functions are."""

import ast
import subprocess
import sys
from importlib import metadata

import turnwise
from tests.sources import modules

MODULES = [path for path, _ in modules()]
LONGEST_FUNCTION = 80
LONGEST_FILE = 400


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


def test_help_does_not_load_torch() -> None:
    code = (
        "import sys; sys.argv = ['turnwise', '--help']\n"
        "from turnwise.commands.cli import main\n"
        "try: main()\n"
        "except SystemExit: assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)


def test_exported_names() -> None:
    assert turnwise.__all__ == sorted(turnwise.__all__)
    assert all(hasattr(turnwise, name) for name in turnwise.__all__)


def test_modules_say_what_they_are_and_functions_are_short() -> None:
    wrong = []
    for path in MODULES:
        tree = ast.parse(path.read_text())
        if not ast.get_docstring(tree) and (path.name != "__init__.py" or path.stat().st_size):
            wrong.append(f"{path}: no docstring")
        wrong += [
            f"{path}:{node.lineno}: {node.name} has {LONGEST_FUNCTION} lines or more"
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and (node.end_lineno or 0) - node.lineno >= LONGEST_FUNCTION
        ]
    assert not wrong


def test_files_are_short() -> None:
    lines = {path: len(path.read_text().splitlines()) for path in MODULES}
    assert {path: n for path, n in lines.items() if n > LONGEST_FILE} == {}
