"""Actions that are after an episode without a grade: each is graded, and fails."""

from collections.abc import Iterator
from typing import Any

import pytest

from environment_playing import judged
from tests.sandboxes import working
from turnwise.environments.base import Environment
from turnwise.environments.registry import make_environment
from turnwise.types import Action, ToolCall

PROGRAMS = {
    "limits": "import os, resource\nresource.prlimit(os.getppid(), 7, (0, 0))",
    "signals": "import os\nfor n in range(1, 65):\n    try: os.kill(os.getppid() or 1, n)\n"
    "    except OSError: pass",
    "rights": "import os\nos.mkdir('d'); open('d/a', 'w').close()\n"
    "os.chmod('d', 0o444); os.chmod('.', 0o444)",
    "end": "import os\nos.kill(0, 9)",
    "nested": "import os\nfor n in range(3000): os.mkdir('d'); os.chdir('d')",
}
OPTIONS: dict[str, dict[str, Any]] = {
    "code": {"tasks": {"count": 2}},
    "mathematics": {"interpreter": "python", "tasks": {"count": 2}},
    "multi_tool": {"interpreter": "python", "count": 2},
    "shell": {"tasks": {"count": 2}},
    "repair": {"tasks": {"count": 2}},
}


@pytest.fixture(scope="module", params=OPTIONS)
def environment(request: pytest.FixtureRequest) -> Iterator[Environment]:
    made: Any = make_environment(request.param, OPTIONS[request.param])
    working(made.sandbox)
    yield made
    made.sandbox.close()


@pytest.mark.long
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_what_code_does_to_its_sandbox_is_graded(environment: Environment, program: str) -> None:
    names = {tool.name for tool in environment.tools()}
    call = ToolCall("python", {"code": program})
    if "shell" in names:
        call = ToolCall("shell", {"command": f'python3 -c "{program}"'})
    task = environment.tasks("heldout")[0]
    verdict = judged(environment, task, Action("", calls=(call,)), Action("", answer=program))
    assert not verdict.success
    again = judged(environment, task, *environment.oracle(task))
    assert again.success


def test_files_with_names_that_no_system_takes_are_graded() -> None:
    made: Any = make_environment("repair", {"tasks": {"count": 2}})
    working(made.sandbox)
    task = made.tasks("heldout")[0]
    folder = next(iter(task.data["sources"])).partition("/")[0]
    calls = [
        ToolCall("write_file", {"path": path, "text": "x = 1\n"})
        for path in (f"{folder}/{'a' * 300}.py", "a/" * 1500 + "a.py", f"{'b' * 300}.py")
    ]
    with made.sandbox:
        verdict = judged(made, task, Action("", calls=tuple(calls)), Action("", answer="done"))
    assert not verdict.success
