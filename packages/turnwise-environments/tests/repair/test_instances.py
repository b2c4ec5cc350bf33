"""Repositories with tests of their own: SWE-bench's format, what must not pass, and bugs put in."""

import json
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from environment_playing import calling, judged, write
from tests.sandboxes import working
from turnwise.commands.cli import main
from turnwise.errors import DataError
from turnwise.sandbox.settings import Limits, SandboxSettings
from turnwise_environments.choosing import all_tasks
from turnwise_environments.measurement import NOTHING, played_all, success
from turnwise_environments.repair.environment import Repair
from turnwise_environments.repair.injection import inject
from turnwise_environments.repair.instances import InstanceFile
from turnwise_environments.repair.judging import plain_name, run_suite, sabotaged, without_clashes
from turnwise_sandbox.sandbox import Sandbox

PACKAGES = (sysconfig.get_paths()["purelib"],)
BUGGY = 'def double(n):\n    """Twice n."""\n    return n * 3\n'
RIGHT = 'def double(n):\n    """Twice n."""\n    return n * 2\n'
FILES = {
    "src/sums/__init__.py": "",
    "src/sums/core.py": BUGGY + "\n\ndef more(n):\n    return n + 1 if n > 0 else 0\n",
    "tests/__init__.py": "",
    "tests/helper.py": "def check(a, b):\n    assert a == b\n",
    "tests/test_more.py": (
        "import unittest\nfrom sums.core import more\nfrom tests.helper import check\n\n\n"
        "class More(unittest.TestCase):\n"
        "    def test_one(self):\n        self.assertEqual(more(1), 2)\n\n"
        "    @unittest.skip('not now')\n    def test_later(self):\n        pass\n\n\n"
        "def test_zero():\n    check(more(0), 0)\n"
    ),
    "pyproject.toml": "[project]\nname = 'sums'\n",
    "run.sh": "#!/bin/sh\n",
    ".gitattributes": "tests export-ignore\n",
}
PATCH = """--- a/src/sums/core.py
+++ b/src/sums/core.py
@@ -1,3 +1,3 @@
 def double(n):
     \"\"\"Twice n.\"\"\"
-    return n * 3
+    return n * 2
"""
TEST_PATCH = """diff --git a/tests/test_double.py b/tests/test_double.py
new file mode 100644
--- /dev/null
+++ b/tests/test_double.py
@@ -0,0 +1,6 @@
+from sums.core import double
+from tests.helper import check
+
+
+def test_double():
+    check(double(4), 8)
"""
RECORD: dict[str, Any] = {
    "instance_id": "owner__sums-1",
    "repo": "owner/sums",
    "base_commit": "HEAD~1",
    "problem_statement": "double(4) is 12",
    "patch": PATCH,
    "test_patch": TEST_PATCH,
    "FAIL_TO_PASS": json.dumps(["tests/test_double.py::test_double"]),
    "PASS_TO_PASS": [
        "tests/test_more.py::More::test_one",
        "test_later (tests.test_more.More)",
        "tests/test_more.py::test_zero",
    ],
}


def commit(folder: Path, message: str) -> None:
    """All that is in a folder, which becomes a repository where it is none."""
    name = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", message]):
        subprocess.run(["git", *name, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def clones(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with two commits: with the bug, and with the repair that must stay unseen."""
    clones = tmp_path_factory.mktemp("clones")
    folder = clones / "owner__sums"
    for path, text in FILES.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("run.sh")
    commit(folder, "first")
    core = folder / "src/sums/core.py"
    core.write_text(core.read_text().replace("n * 3", "n * 2"))
    commit(folder, "the repair")
    return clones


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    limits = Limits(seconds=120.0, cpu_seconds=60.0)
    with Sandbox(SandboxSettings(packages=PACKAGES, limits=limits)) as made:
        yield working(made)


def instances(path: str, clones: Path, runner: Any = "plain") -> InstanceFile:
    return InstanceFile(path, heldout_share=0.0, repositories=str(clones), runner=runner)


@pytest.fixture(params=["plain", pytest.param("pytest", marks=pytest.mark.slow)])
def loaded(
    request: pytest.FixtureRequest, clones: Path, tmp_path: Path, sandbox: Sandbox
) -> Repair:
    path = write(tmp_path / "bugs.jsonl", RECORD)
    made = Repair(instances(path, clones, request.param))
    made.sandbox = sandbox
    return made


@pytest.mark.long
def test_a_record_of_swe_bench(loaded: Repair) -> None:
    (task,) = loaded.tasks("train")
    assert "double(4) is 12" in task.prompt
    verdict = judged(loaded, task, *loaded.oracle(task))
    assert (verdict.reward, verdict.parts["pass_to_pass"]) == (1.0, 1.0), verdict.detail
    verdict = judged(loaded, task, NOTHING)
    assert verdict.reward == 0.0
    assert dict(verdict.parts) == {"fail_to_pass": 0.0, "pass_to_pass": 1.0}
    broken = calling("shell", command="sed -i 's/n > 0/n > 1/' src/sums/core.py")
    verdict = judged(loaded, task, *loaded.oracle(task)[:-1], broken)
    assert (verdict.reward, verdict.parts["fail_to_pass"]) == (0.0, 1.0)
    assert verdict.parts["pass_to_pass"] == pytest.approx(2 / 3)


@pytest.mark.long
def test_no_later_commit_and_no_hidden_test_can_be_seen(loaded: Repair) -> None:
    (task,) = loaded.tasks("train")
    look = calling(
        "shell",
        command="git log --all --format=%s; git fsck --lost-found; git grep -c 'n . 2'; "
        "ls tests; test -x run.sh && test -L link && echo kept; git status --short",
    )
    (play,) = played_all(loaded, [task], [[look]])
    seen = play.trajectory.observed[0].split("\n")
    assert seen == ["The state at hand", "__init__.py", "helper.py", "test_more.py", "kept"]


CHEATS = {
    "tests that are changed": "echo 'def check(a, b): pass' > tests/helper.py",
    "a test of the same name": "echo 'def test_double(): pass' > tests/test_double.py",
    "an exit": "echo 'import os; os._exit(0)' >> src/sums/core.py",
    "a polite exit": "echo 'raise SystemExit(0)' >> src/sums/core.py",
    "a skip": "printf 'import unittest\\nraise unittest.SkipTest()\\n' > src/sums/core.py",
    "a patched unittest": (
        "printf 'import unittest\\nunittest.TestCase.assertEqual = lambda *a: None\\n' "
        ">> src/sums/core.py"
    ),
    "a runner of its own": (
        "echo 'def main(*a, **k): return 0' > pytest.py; cp pytest.py unittest.py"
    ),
    "a plugin": (
        "printf 'def pytest_runtest_call(item): item.runtest = lambda: None\\n' > conftest.py; "
        "cp conftest.py src/conftest.py; cp conftest.py tests/conftest.py"
    ),
    "a file where tests were": "rm -r tests; echo x > tests",
    "an outcome": (
        'echo \'{"tests/test_double.py::test_double": "passed"}\' > outcomes.by.turnwise.json'
    ),
}
PROGRAMS = {
    "what judges is replaced": """
import sys
def forged(test):
    return outcome(test) if "anary" in repr(test) else "passed"
place = sys._getframe()
while place is not None:
    if "_outcome" in place.f_globals:
        outcome = place.f_globals["_outcome"]
        place.f_globals["_outcome"] = forged
        break
    place = place.f_back
import unittest
unittest.TestCase.assertEqual = lambda *a: None
try:
    import _pytest.runner, _pytest.reports
    made = _pytest.reports.TestReport.from_item_and_call
    def from_item_and_call(item, call):
        call.excinfo = call.excinfo if "canary" in item.name else None
        return made(item, call)
    _pytest.reports.TestReport.from_item_and_call = from_item_and_call
except ImportError:
    pass
""",
    "a daemon": """
import os, glob, time, json
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for _ in range(2000):
            for file in glob.glob("*.json"):
                with open(file, "w") as forged:
                    json.dump({"tests/test_double.py::test_double": "passed"}, forged)
            time.sleep(0.001)
    os._exit(0)
""",
    "results that are handed in": """
import os, json
for descriptor in range(3, 64):
    try:
        said = ["", {"tests/test_double.py::test_double": "passed"}]
        os.write(descriptor, json.dumps(said).encode())
    except OSError:
        pass
for place in ("fd/0", "fd/1", "fd/3", "mem"):
    try:
        open(f"/proc/{os.getppid()}/{place}", "r+b", buffering=0).read(1)
        os._exit(0)
    except PermissionError:
        continue
raise SystemError("closed")
""",
    "a test framework that is forged": """
import unittest, sys
unittest.TestCase.run = lambda self, result=None: setattr(result, "testsRun", 1)
p = sys.modules.get("_pytest.python")
if p: p.Function.runtest = lambda self: None
""",
}


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        "a test framework that is forged",
        *(pytest.param(one, marks=pytest.mark.slow) for one in [*CHEATS, *PROGRAMS][:-1]),
    ],
)
def test_cheats_fail(loaded: Repair, name: str) -> None:
    (task,) = loaded.tasks("train")
    cheat = [calling("shell", command=CHEATS.get(name, CHEATS["an outcome"]))]
    if name in PROGRAMS:
        text = f"{BUGGY}\nmore = max\n{PROGRAMS[name]}"
        cheat.insert(0, calling("write_file", path="src/sums/core.py", text=text))
    verdict = judged(loaded, task, *cheat)
    assert (verdict.reward, verdict.success) == (0.0, False)


SABOTAGED = """
import unittest
from unittest import expectedFailure

class Queue:
    def fail(self, job): ...
    def raises(self, kind, function): ...

def test_plain():
    assert 1 == 1
    return None

class A(unittest.TestCase):
    def test_all(self):
        self.assertIn(1, [1])
        with self.assertRaises(KeyError):
            {}[1]

    def test_namesakes(self):
        queue = Queue()
        queue.fail("a job")
        assert queue.raises(ValueError, int) is None

    @expectedFailure
    def test_expected(self):
        self.assertEqual(1, 2)
"""
FAILING = ("test_plain", "A::test_all", "A::test_namesakes")
FIXTURES = """
import os, time, unittest

class A(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.ready = True

    def test_ready(self):
        self.assertTrue(self.ready)

def test_that_leaves_something_running():
    if os.fork() == 0:
        time.sleep(1000)

async def test_that_nothing_awaits():
    assert False
"""
CLOSED = """
import os, unittest

class A(unittest.TestCase):
    def test_memory(self):
        for place in ('fd', 'mem', 'environ'):
            with self.assertRaises(PermissionError):
                one = f'/proc/{os.getppid()}/{place}'
                os.listdir(one) if place == 'fd' else open(one, 'rb').read(1)
"""
SUITES: dict[str, tuple[str, dict[str, str]]] = {
    "with a test that is skipped": (
        FILES["tests/test_more.py"],
        {"More::test_one": "passed", "More::test_later": "skipped", "test_zero": "passed"},
    ),
    "with fixtures, and a process that stays": (
        FIXTURES,
        {"A::test_ready": "passed", "test_that_leaves_something_running": "passed"},
    ),
    "that looks at what judges, which is the same user's": (CLOSED, {"A::test_memory": "passed"}),
    "of several kinds": (SABOTAGED, dict.fromkeys((*FAILING, "A::test_expected"), "passed")),
}


def outcomes(sandbox: Sandbox, text: str) -> dict[str, str]:
    """Of the tests of one file, by the plain runner."""
    files = {path: content.encode() for path, content in FILES.items()}
    files["tests/test_a.py"] = text.encode()
    found, problem = run_suite(sandbox, files, ["tests/test_a.py::*"], "plain")
    assert problem == ""
    return {test.removeprefix("tests/test_a.py::"): outcome for test, outcome in found.items()}


@pytest.mark.long
@pytest.mark.parametrize("name", SUITES)
def test_outcomes_of_the_plain_runner(sandbox: Sandbox, name: str) -> None:
    text, expected = SUITES[name]
    assert outcomes(sandbox, text) == expected


@pytest.mark.long
def test_a_suite_that_is_made_to_fail(sandbox: Sandbox) -> None:
    text, changed = sabotaged(SABOTAGED)
    assert changed == {"test_plain", "test_all", "test_namesakes"}
    assert outcomes(sandbox, text) == {
        **SUITES["of several kinds"][1],
        **dict.fromkeys(FAILING, "failed"),
    }


def test_a_name_as_unittest_writes_it() -> None:
    assert plain_name("test_a (a.b.C.test_a)") == "a/b.py::C::test_a"


@pytest.mark.slow
def test_an_unknown_test_of_a_record_is_the_only_one_that_is_missing(
    clones: Path, tmp_path: Path, sandbox: Sandbox
) -> None:
    """pytest runs nothing of a file if one of the names that it is given is not there."""
    unknown = [*RECORD["PASS_TO_PASS"], "tests/test_more.py::test_unknown"]
    path = write(tmp_path / "bugs.jsonl", {**RECORD, "PASS_TO_PASS": unknown})
    for runner in ("plain", "pytest"):
        made = Repair(instances(path, clones, runner))
        made.sandbox = sandbox
        (task,) = made.tasks("train")
        verdict = judged(made, task, *made.oracle(task))
        assert verdict.parts["pass_to_pass"] == 3 / 4
        assert made.weaknesses
        assert made.verdict_programs == 2  # the suite, and its copy in which all tests fail


@pytest.mark.slow
def test_what_takes_the_place_of_a_folder_gives_way(loaded: Repair) -> None:
    (task,) = loaded.tasks("train")
    *changes, last = loaded.oracle(task)
    odd = calling(
        "shell", command="rm -r tests run.sh; echo x > tests; mkdir run.sh; cp link run.sh/a"
    )
    assert judged(loaded, task, *changes, odd, last).reward == 1.0
    clash = {"a": b"", "a/b": b"", "c/d": b"", "c/d/e/f": b"", "g": b""}
    assert list(without_clashes(clash)) == ["a", "c/d", "g"]


BROKEN = {
    "line 1: 'patch' must be there": {"patch": ""},
    "line 1: 'FAIL_TO_PASS' must be a list of tests": {"FAIL_TO_PASS": "tests/a"},
    "line 1: 'FAIL_TO_PASS' is empty": {"FAIL_TO_PASS": "[]"},
    "line 1: there is no clone of 'owner/other'": {"repo": "owner/other"},
    "has no commit 0123": {"base_commit": "0123"},
    "line 1: 'test_patch' does not fit the commit": {"test_patch": PATCH.replace("n * 3", "n")},
    "line 1: 'bug' does not fit the commit": {"bug": PATCH.replace("n * 3", "n")},
    "no instances in it; 1 instances were left out": {
        "FAIL_TO_PASS": ["tests/test_none.py::test_a"]
    },
}


@pytest.mark.parametrize("message", BROKEN)
def test_broken_records_are_named(clones: Path, tmp_path: Path, message: str) -> None:
    path = write(tmp_path / "broken.jsonl", {**RECORD, **BROKEN[message]})
    with pytest.raises(DataError) as error:
        Repair(instances(path, clones))
    assert message in str(error.value)


def test_tests_are_found_by_the_names_that_records_have(clones: Path, tmp_path: Path) -> None:
    named = {
        **RECORD,
        "FAIL_TO_PASS": ["test_double"],
        "PASS_TO_PASS": ["test_one (test_more.More)", "test_more.py::test_zero"],
    }
    unknown = {**named, "instance_id": "other", "PASS_TO_PASS": ["test_nowhere"]}
    path = write(tmp_path / "named.jsonl", named, unknown)
    made = Repair(instances(path, clones))
    (task,) = made.tasks("train")
    assert task.secret["fail_to_pass"] == ["tests/test_double.py::test_double"]
    assert task.secret["pass_to_pass"] == [
        "tests/test_more.py::More::test_one",
        "tests/test_more.py::test_zero",
    ]
    assert made.task_set.warnings == [
        "1 instances were left out: the file of a test is not in its name"
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("runner", "count"), [("plain", 3), pytest.param("pytest", 1, marks=pytest.mark.slow)]
)
def test_bugs_are_put_into_a_repository(
    clones: Path, tmp_path: Path, sandbox: Sandbox, runner: str, count: int
) -> None:
    records = list(inject(clones / "owner__sums", sandbox, runner, count))
    assert len(records) == count
    if runner == "plain":
        assert records == list(inject(clones / "owner__sums", sandbox, runner, count))
    path = write(tmp_path / "bugs.jsonl", *records)
    made = Repair(instances(path, clones, runner))
    made.sandbox = sandbox
    tasks = all_tasks(made)
    assert len(tasks) == count
    assert "tests/test_more.py::" in tasks[0].prompt
    assert success(played_all(made, tasks, [made.oracle(task) for task in tasks])) == 1.0
    assert success(played_all(made, tasks, [[NOTHING]] * count)) == 0.0


@pytest.mark.slow
def test_the_command(clones: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "bugs.jsonl"
    words = ["inject", str(clones / "owner__sums"), str(output), "--count", "2"]
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert not ended.value.code
    assert len(output.read_text().splitlines()) == 2
    for wrong in (words, ["inject", str(tmp_path), str(tmp_path / "new.jsonl")]):
        with pytest.raises(SystemExit) as ended:
            main(wrong)
        assert ended.value.code == 2
    assert "give a new file" in capsys.readouterr().err


@pytest.mark.long
def test_a_repository_without_passing_tests(tmp_path: Path, sandbox: Sandbox) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    commit(tmp_path, "first")
    with pytest.raises(DataError, match="none of the tests in 0 files passes"):
        list(inject(tmp_path, sandbox, "plain", 1))
