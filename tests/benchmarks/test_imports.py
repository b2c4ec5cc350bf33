"""The names that benchmarks import from turnwise are there; few benchmarks are run in tests."""

import ast
import os
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize("file", sorted(BENCHMARKS.glob("*.py")), ids=lambda file: file.stem)
def test_imported_names_are_there(file: Path) -> None:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "turnwise":
            module = import_module(str(node.module))
            for alias in node.names:
                there = hasattr(module, alias.name) or find_spec(f"{node.module}.{alias.name}")
                assert there, f"{node.module} has no {alias.name}"


def test_what_wings_tests_have_is_found_without_pytest() -> None:
    finds = "all(map(importlib.util.find_spec, ('mathematical_answers', 'cluster_tests')))"
    asked = f"import benchmarks, importlib.util; assert {finds}"
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([sys.executable, "-c", asked], cwd=BENCHMARKS.parent, env=environ, check=True)
