"""The repair environment: oracle and scores, what must not pass, and what the repository hides."""

import random
import re
from pathlib import Path
from typing import Any

import pytest

from environment_playing import calling, judged, played, prototype
from turnwise.types import Task
from turnwise_environments.choosing import all_tasks, spread
from turnwise_environments.measurement import NOTHING, played_all, random_script, success
from turnwise_environments.repair.environment import Repair
from turnwise_environments.repair.instances import git_folder
from turnwise_environments.repair.mutations import mutants
from turnwise_environments.repair.programs import ProgramFile
from turnwise_sandbox.calls import decode
from turnwise_sandbox.grading import same
from turnwise_sandbox.tools.workspace import Entry

pytestmark = pytest.mark.long

QUIXBUGS = Path(__file__).parents[5] / "shared" / "data" / "quixbugs" / "programs.jsonl"
ORDER = ("lines", "rows", "totals", "rules", "text", "report")
A_HANG = 120.0
"""Seconds after which a sandbox ends what hangs; where the machine is busy, QuixBugs' levenshtein,
which takes 2 s alone, takes many times as long."""


made = prototype("repair", seconds=A_HANG)


def space(files: dict[str, str]) -> dict[str, Any]:
    """All functions of a made package, here: they are of this environment's own making."""
    found: dict[str, Any] = {}
    for module in ORDER:
        for path, text in files.items():
            if path.endswith(f"/{module}.py") and not path.startswith("tests/"):
                exec(re.sub(r"^from .*$", "", text, flags=re.M), found)
    return found


def passed(functions: dict[str, Any], calls: list[Any]) -> list[bool]:
    results = []
    for target, arguments, expected in calls:
        try:
            returned = functions[target.partition(":")[2]](*decode(arguments))
        except Exception:  # noqa: BLE001 - what a bug leads to
            results.append(False)
            continue
        results.append(same(decode(expected), returned))
    return results


@pytest.mark.slow
def test_every_solution_repairs_and_random_changes_do_not(made: Repair) -> None:
    """Judged in this process, so that there are enough of them."""
    tasks = all_tasks(made)
    assert len(tasks) == 2000
    for task in spread(tasks, 250):
        files, fail = dict(task.data["files"]), task.secret["fail_to_pass"]
        stay = task.secret["pass_to_pass"]
        assert not any(passed(space(files), fail))
        assert all(passed(space(files), stay))
        assert len(fail) >= 1 <= len(stay)
        repaired = {**files, **task.secret["solution"]}
        assert all(passed(space(repaired), [*fail, *stay]))
    assert sum(map(is_lucky, [made] * 2000, tasks)) / 2000 == made.spec.reference_scores["random"]


def is_lucky(environment: Repair, task: Task) -> bool:
    """Whether the random change repairs it; the first call that fails decides."""
    first = random_script(environment, task)[0]
    if not first.calls:
        return False
    change = first.calls[0].arguments
    functions = space({**task.data["files"], change["path"]: change["text"]})
    calls = [*task.secret["fail_to_pass"], *task.secret["pass_to_pass"]]
    return all(passed(functions, [call])[0] for call in calls)


@pytest.mark.slow
def test_no_function_is_broken_in_both_splits(made: Repair) -> None:
    def repaired(task: Task) -> set[str]:
        """Functions, as they should be, whose text the solution changes."""
        found = set[str]()
        for path, text in task.secret["solution"].items():
            before = set(task.data["files"][path].split("\n\n\n"))
            found |= {part.strip() for part in text.split("\n\n\n") if part not in before}
        return found

    train, heldout = (
        set().union(*map(repaired, made.tasks(split))) for split in ("train", "heldout")
    )
    assert len(made.tasks("train")) == len(made.tasks("heldout")) == 1000
    assert not train & heldout
    assert min(len(train), len(heldout)) > 150


def test_the_repository_has_one_commit_and_tests_that_pass(made: Repair) -> None:
    task = made.tasks("train")[0]
    commands = (
        "git status --short; git log --all --format=%s; git reflog; git fsck --full --strict",
        "python3 -m unittest 2>&1 | tail -1",
        "git rev-list --all --objects | wc -l",
    )
    seen = played(made, task, *(calling("shell", command=one) for one in commands))
    assert seen.trajectory.observed[:2] == ("The state at hand", "OK")
    entries = {path: Entry(content=text.encode()) for path, text in task.data["files"].items()}
    folders = {path.rpartition("/")[0] for path in entries} - {""}
    blobs = {entry.content for entry in entries.values()}
    assert int(seen.trajectory.observed[2]) == len(blobs) + len(folders) + 2
    assert git_folder(entries) == git_folder(dict(reversed(entries.items())))


def test_what_the_agent_commits_counts_as_what_it_leaves(made: Repair) -> None:
    task = made.tasks("train")[0]
    *changes, last = made.oracle(task)
    commit = calling("shell", command="git commit -qam repaired && git log --format=%s | head -1")
    play = played(made, task, *changes, commit, last)
    assert play.trajectory.observed[-1] == "repaired"
    assert success([play]) == 1.0


def test_the_answer_is_nowhere_before(made: Repair) -> None:
    for task in spread(all_tasks(made), 100):
        public = str(task.public())
        for path, text in task.secret["solution"].items():
            assert text not in public
            before = task.data["files"][path]
            assert task.data["files"][path] != text
            assert len(before.split("\n")) - len(text.split("\n")) in range(-3, 4)


def test_files_outside_of_the_package_do_not_count(made: Repair) -> None:
    task = made.tasks("train")[1]
    planted = [
        calling("write_file", path=path, text="raise SystemExit(0)\n")
        for path in ("sitecustomize.py", "judged.py", "importlib.py", "json.py", "conftest.py")
    ]
    assert judged(made, task, *planted, *made.oracle(task)).reward == 1.0
    assert judged(made, task, *planted, NOTHING).reward == 0.0
    emptied = calling("shell", command="rm -rf tests *.md .git")
    assert judged(made, task, emptied, NOTHING).reward == 0.0


@pytest.mark.slow
@pytest.mark.skipif(not QUIXBUGS.is_file(), reason="QuixBugs is not here")
def test_every_program_of_quixbugs(made: Repair) -> None:
    environment = Repair(ProgramFile(str(QUIXBUGS)))
    environment.sandbox = made.sandbox
    tasks = all_tasks(environment)
    assert len(tasks) == 21
    oracle = [environment.oracle(task) for task in tasks]
    assert success(played_all(environment, tasks, oracle)) == 1.0
    few = [
        task for task in tasks if task.info["program"] in ("gcd", "quicksort", "next_permutation")
    ]
    assert success(played_all(environment, few, [[NOTHING]] * len(few))) == 0.0


SOURCE = '''
def f(rows, n: int = 3):
    """Up to 1 < 2."""
    total = 0
    for row in rows:
        if not row or row["x"] < n:
            continue
        total += row["x"] * 2
    return sorted([total, n], key=str, reverse=True)[:n], f"{total + 1}"


LIMIT = 3 < 4
'''


def test_changes_are_small_and_the_rest_stays() -> None:
    lines, changes = SOURCE.split("\n"), dict[int, set[str]]()
    for one in mutants(SOURCE):
        pairs = enumerate(zip(lines, one.split("\n"), strict=True), start=1)
        ((number, text),) = [
            (number, after) for number, (before, after) in pairs if before != after
        ]
        changes.setdefault(number, set()).add(text.strip())
        compile(one, "<mutant>", "exec")
    assert changes.keys() == {4, 6, 7, 8, 9}
    assert changes[6] > {
        'if not row or row["x"] <= n:',
        'if not row and row["x"] < n:',
        'if row or row["x"] < n:',
    }
    assert changes[7] == {"break"}
    assert changes[8] > {'total += row["x"] + 2', "pass"}
    end = ', f"{total + 1}"'
    assert changes[9] > {
        f"return sorted([total, n], key=str)[:n]{end}",
        f"return list([total, n], key=str, reverse=True)[:n]{end}",
        f"return sorted([total, n], key=str, reverse=True)[:n + 1]{end}",
    }
    assert not mutants("def f(:")
    assert mutants("def f(x):\n    return 'ä' + x  # ü\n")[0].startswith("def f(x)")


def test_random_actions_are_small_changes(made: Repair) -> None:
    task = made.tasks("train")[3].public()
    first, _ = made.random_actions(task, random.Random(0))
    path = first.calls[0].arguments["path"]
    assert path in task.data["files"]
    assert first.calls[0].arguments["text"] != task.data["files"][path]
