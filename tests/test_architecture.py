"""Promise 12 and the shape of the code: what importing does, how long functions are."""

import ast
import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

import turnwise
from tests.processes import run_python
from tests.sources import modules

MODULES = [path for path, _ in modules()]
LONGEST_FUNCTION = 80
LONGEST_FILE = 400
FILES_OF_A_STEP, LINES_OF_A_STEP = 260, 34_000
"""The files and lines of turnwise, at most, that a run of the demo loads."""


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
    run = run_python(code)
    assert run.stdout == ""
    new = set(run.stderr.split())
    assert "turnwise" in new
    assert new & set(metadata.packages_distributions()) <= LIGHT


@pytest.mark.long
@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("from turnwise.commands.cli import main; main(['--help'])", "torch"),
        ("from turnwise.commands.catalogue import catalogue; catalogue()", "torch"),
        ("import turnwise.evaluation.kept, turnwise.evaluation.expected", "torch transformers"),
        pytest.param(
            "import turnwise_view.dashboard.answers, turnwise_view.top",
            "torch transformers",
            marks=pytest.mark.wing("view"),
        ),
        (
            "from turnwise.algorithms.parts import PARTS; [p.names() for p in PARTS.values()]",
            "torch",
        ),
        (
            "from turnwise.environments.registry import ENVIRONMENTS; ENVIRONMENTS.descriptions()",
            "torch bm25s numba",
        ),
        (
            "import turnwise; light = set(turnwise.__all__) - {'Components', 'PolicyLearner'}\n"
            "[getattr(turnwise, name) for name in light]; turnwise.make_environment('search')",
            "torch",
        ),
    ],
    ids=["help", "catalogue", "comparisons", "dashboard", "parts", "environments", "public names"],
)
def test_what_computes_nothing_loads_nothing_heavy(code: str, heavy: str) -> None:
    """The names of parts that are made of torch excepted."""
    end = f"import atexit, sys; loaded = lambda: print(set(sys.modules) & set({heavy.split()}))"
    run = run_python(f"{end}; atexit.register(loaded)\n{code}")
    assert run.stdout.splitlines()[-1] == "set()"


def statements(outer: ast.AST) -> Iterator[ast.AST]:
    """Those in it, and in one another, without the expressions that they are made of."""
    for node in ast.iter_child_nodes(outer):
        if isinstance(node, ast.stmt | ast.excepthandler | ast.match_case):
            yield node
            yield from statements(node)


def test_modules_say_what_they_are_and_functions_are_short() -> None:
    wrong = []
    for path in MODULES:
        tree = ast.parse(path.read_text())
        if not ast.get_docstring(tree) and (path.name != "__init__.py" or path.stat().st_size):
            wrong.append(f"{path}: no docstring")
        wrong += [
            f"{path}:{node.lineno}: {node.name} has {LONGEST_FUNCTION} lines or more"
            for node in statements(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and (node.end_lineno or 0) - node.lineno >= LONGEST_FUNCTION
        ]
    assert not wrong


def test_files_are_short() -> None:
    lines = {path: len(path.read_text().splitlines()) for path in MODULES}
    assert {path: n for path, n in lines.items() if n > LONGEST_FILE} == {}


@pytest.mark.long
def test_one_step_of_the_demo_loads_little(tmp_path: Path) -> None:
    """Files and lines of turnwise that a person would have to read to know all that a run does."""
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from turnwise.commands.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit as ended: assert not ended.code, ended.code\n"
        "loaded = [m.__file__ for name, m in sys.modules.items() if name.startswith('turnwise')]\n"
        "lines = sum(len(Path(file).read_text().splitlines()) for file in loaded)\n"
        "print('loaded', len(loaded), lines)\n"
    )
    small = "train.steps=1 train.tasks_per_step=2 train.group_size=2 sft.steps=1 sft.batch_size=2"
    small += " sft.demonstrations.count=4 evaluation.tasks=2"
    run = run_python(code, "train", "demo", *small.split(), "--run", tmp_path / "run")
    files, lines = map(int, run.stdout.rpartition("loaded ")[2].split())
    assert files <= FILES_OF_A_STEP
    assert lines <= LINES_OF_A_STEP


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
