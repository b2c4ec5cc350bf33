"""The shell environment: oracle and scores, what else is changed, and AgentBench's format."""

import asyncio
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from environment_playing import answered, calling, judged, prototype, write
from turnwise.errors import DataError, NotSupportedError
from turnwise.seeds import derive
from turnwise.types import Action, Task
from turnwise_environments.choosing import all_tasks
from turnwise_environments.measurement import NOTHING, is_restorable, played_all
from turnwise_environments.rewards.cells import cells_match
from turnwise_environments.shell.environment import Shell
from turnwise_environments.shell.os_interaction import WEAKNESS, RecordFile
from turnwise_environments.shell.requests import (
    CHANGES,
    QUESTIONS,
    draw_folder,
    entries_of,
    state_of,
)
from turnwise_environments.shell.tasks import folder_of
from turnwise_sandbox.tools.workspace import Workspace

INTEGERS = "from sys import argv\nif int(argv[1]) == int(argv[2]): exit(0)\nexit(1)"
HIDDEN: dict[str, Any] = {
    "description": "How many hidden files are in /home? (not including subdirectories)",
    "create": {
        "local": "default",
        "init": {"code": "mkdir -p /home\necho 1>/home/.a\necho 1>/home/.b\necho 1>/home/c"},
    },
    "evaluation": {
        "check": [None, {"language": "python", "file": "check/integer-match.py"}],
        "example": {"code": 'ls -a /home | grep "^\\.[a-z]" | wc -l'},
    },
    "labels": ["file"],
}
MATCHED = {
    "description": "Which file in /root has the word one in it?",
    "create": {"init": "echo one > /root/first; echo two > /root/second"},
    "evaluation": {"match": "first"},
    "labels": None,
}
PERMITTED = {
    "description": "Make all files in ~/kept readable by their owner only.",
    "create": {"init": ["mkdir ~/kept", "touch ~/kept/a ~/kept/b; chmod 666 ~/kept/*"]},
    "evaluation": {"check": 'test -z "$(find ~/kept -type f ! -perm 400)" && test -e ~/kept/a'},
}
RUNNING = {**MATCHED, "start": "python3 -c 'while True: pass' &"}
USERS = {**HIDDEN, "create": {"init": "useradd -m someone"}}
REAL = {**HIDDEN, "evaluation": {**HIDDEN["evaluation"], "example": "exit 3"}}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNWISE_CACHE", str(tmp_path / "cache"))


made = prototype("shell")


def running(*commands: str) -> list[Action]:
    return [calling("shell", command=one) for one in commands]


@pytest.mark.long
@pytest.mark.parametrize("maker", [*CHANGES, *QUESTIONS], ids=lambda maker: maker.__name__)
def test_each_command_does_what_is_worked_out_here(made: Shell, maker: Any) -> None:
    tried = 0
    for number in range(20):
        stream = random.Random(derive("test", maker.__name__, number))
        folder = draw_folder(stream)
        request = maker(stream, folder)
        if request is None or tried == 3:
            continue
        tried += 1
        workspace = Workspace(made.sandbox)
        workspace.entries = entries_of(folder)
        told = workspace.shell(request.command)
        assert state_of(workspace.entries) == state_of(entries_of(request.after)), request
        if request.answer is not None:
            assert told == request.answer, request
    assert tried == 3


def test_random_actions_succeed_as_often_as_is_declared(made: Shell) -> None:
    assert sum(map(is_lucky, all_tasks(made))) / 2000 == made.spec.reference_scores["random"]


def is_lucky(task: Task) -> bool:
    """Whether the random policy succeeds, without a shell: the same draws, worked out here."""
    stream = random.Random(derive("random policy", task.id))
    answer, folder = str(stream.randrange(10)), folder_of(task)
    request = stream.choice([*CHANGES, *QUESTIONS])(stream, folder)
    after = folder if request is None else request.after
    told = task.secret["answer"] is None or cells_match(answer, [task.secret["answer"]])
    return told and state_of(entries_of(after)) == task.secret["state"]


def test_a_split_has_every_kind(made: Shell) -> None:
    kinds = Counter((task.info["requests"], task.info["asks"]) for task in made.tasks("heldout"))
    assert len(kinds) == 6
    assert min(kinds.values()) > 50


@pytest.mark.long
def test_what_else_is_changed_or_told_fails(made: Shell) -> None:
    asking = next(task for task in made.tasks("train") if task.info["asks"])
    changing = next(task for task in made.tasks("train") if not task.info["asks"])
    for task in (asking, changing):
        *calls, last = made.oracle(task)
        harmless = running("ls -R", "cat nothing", "mkdir -p empty/one", "echo x > /tmp/x")
        assert judged(made, task, *harmless, *calls, last).reward == 1.0
        for harm in ("echo x > new.txt", "rm -r data", "chmod +x data/*", "ln -s data link"):
            assert judged(made, task, *calls, *running(harm), last).reward == 0.0
    *calls, last = made.oracle(asking)
    for wrong in ("", "done", f"not {last.answer}", f"{last.answer} or 77777"):
        assert judged(made, asking, *calls, answered(wrong)).reward == 0.0
    assert judged(made, asking, *calls).reward == 0.0, "without an answer"


def test_changes_are_a_share_of_what_is_right_and_wrong(made: Shell) -> None:
    task = next(task for task in made.tasks("train") if not task.info["asks"])
    *calls, last = made.oracle(task)
    assert judged(made, task, *calls, last).parts["changes"] == 1.0
    assert judged(made, task, last).parts["changes"] == 0.0
    more = running("for n in 1 2 3 4 5 6 7 8 9; do echo x > $n.txt; done")
    assert 0.0 < judged(made, task, *calls, *more, last).parts["changes"] < 0.9
    assert judged(made, task, *running("rm -r *"), last).parts["changes"] < 0.3


@pytest.fixture
def scripts(tmp_path: Path) -> str:
    (tmp_path / "check").mkdir()
    (tmp_path / "check" / "integer-match.py").write_text(INTEGERS)
    return str(tmp_path)


def loaded(made: Shell, path: str, scripts: str) -> Shell:
    if made.sandbox.find_tier() == "unisolated":
        pytest.skip("folders have no fixed place without isolation")
    return Shell(RecordFile(path, scripts=scripts, heldout_share=0.0))


@pytest.mark.long
def test_records_in_agentbenchs_format(made: Shell, tmp_path: Path, scripts: str) -> None:
    records = [HIDDEN, MATCHED, PERMITTED, RUNNING, USERS, REAL]
    environment = loaded(made, write(tmp_path / "dev.json", *records), scripts)
    tasks = {task.prompt.split()[0]: task for task in environment.tasks("train")}
    hidden, matched, permitted = tasks["How"], tasks["Which"], tasks["Make"]
    assert len(tasks) == 3
    assert sorted(environment.task_set.warnings) == [
        "1 tasks were left out: a program runs beside it",
        "1 tasks were left out: its folder cannot be made here",
        "1 tasks were left out: its own example does not pass here",
    ]
    assert "in /work/workspace/home?" in hidden.prompt
    assert judged(environment, hidden, *environment.oracle(hidden)).reward == 1.0
    assert judged(environment, matched, *environment.oracle(matched)).reward == 1.0
    assert judged(environment, matched, answered(" first\n")).reward == 1.0
    repaired = running("chmod 400 kept/*")
    assert judged(environment, permitted, *repaired, answered("done")).reward == 1.0
    for task in tasks.values():
        assert judged(environment, task, NOTHING).reward == 0.0
        assert judged(environment, task).reward == 0.0
        assert judged(environment, task, answered("3 or 2")).reward == 0.0
    (play,) = played_all(environment, [matched], [running("pwd; ls ~; echo $HOME")])
    seen = "/work/workspace/root\nfirst\nsecond\n/work/workspace/root"
    assert play.trajectory.observed == (seen,)
    assert asyncio.run(is_restorable(environment, [hidden, matched]))
    with pytest.raises(NotSupportedError, match="without an example"):
        environment.oracle(permitted)


@pytest.mark.long
def test_the_right_answer_is_that_of_the_beginning(
    made: Shell, tmp_path: Path, scripts: str
) -> None:
    environment = loaded(made, write(tmp_path / "dev.json", HIDDEN), scripts)
    (task,) = environment.tasks("train")
    emptied = running("rm -rf ../home/.a ../home/.b", "mkdir ../bin; echo exit 0 > ../bin/python3")
    assert judged(environment, task, *emptied, answered("0")).reward == 0.0
    assert judged(environment, task, *emptied, answered("2")).reward == 1.0


def test_answers_that_are_compared_with_a_pattern(
    made: Shell, tmp_path: Path, scripts: str
) -> None:
    record = {**MATCHED, "evaluation": {"match": {"regex": "^(the )?first$", "strip": True}}}
    environment = loaded(made, write(tmp_path / "dev.json", record), scripts)
    (task,) = environment.tasks("train")
    assert judged(environment, task, answered("the first")).reward == 1.0
    assert judged(environment, task, answered("the second")).reward == 0.0


USERS_OWN = (
    "mkdir -p $(python3 -m site --user-site); echo '{0}' > $(python3 -m site --user-site)/{1}"
)
EXIT = "import os; os._exit(0)"
FORGED = {
    "usercustomize": USERS_OWN.format(EXIT, "usercustomize.py"),
    "a path file": USERS_OWN.format(EXIT, "x.pth"),
    "modules of the library": f"for one in os re site; do echo '{EXIT}' > $one.py; done",
    "a shell's beginnings": "echo 'exit 0' | tee .bashrc .profile .bash_profile .bash_env",
}
PYTHON = {
    "description": "Write 3 into /root/three.",
    "evaluation": {
        "check": {
            "language": "python",
            "code": "import re, sys\nsys.exit(open('/root/three').read().strip() != '3')",
        },
        "example": "echo 3 > ~/three",
    },
}
BASH = {
    "description": "Write 4 into /root/four.",
    "evaluation": {
        "check": "python3 -c 'import os, re, sys; sys.exit(open(sys.argv[1]).read() != \"4\\n\")' "
        '"$HOME/four" && cat ~/four',
        "example": "echo 4 > $HOME/four",
    },
}


@pytest.mark.long
@pytest.mark.parametrize("record", [PYTHON, BASH], ids=["python", "bash"])
def test_nothing_of_the_agents_runs_when_a_check_begins(
    made: Shell, tmp_path: Path, scripts: str, record: dict[str, Any]
) -> None:
    environment = loaded(made, write(tmp_path / "dev.json", record), scripts)
    (task,) = environment.tasks("train")
    assert judged(environment, task, *environment.oracle(task)).reward == 1.0
    for name, command in FORGED.items():
        forged = judged(environment, task, *running(command), answered("done"))
        assert not forged.success, name
    assert environment.weaknesses == [WEAKNESS]
    assert environment.verdict_programs == len(task.secret["check"]) > 0


def test_a_file_with_a_single_object_and_the_best_constant_answer(
    made: Shell, tmp_path: Path, scripts: str
) -> None:
    single = tmp_path / "one.json"
    single.write_text(json.dumps(MATCHED))
    assert len(loaded(made, str(single), scripts).tasks("train")) == 1
    counted = [
        {"description": f"How many {n}?", "evaluation": {"match": str(n // 2)}} for n in range(4)
    ]
    odd = {"description": "How odd?", "evaluation": {"match": {"regex": "^[01]$"}}}
    environment = loaded(made, write(tmp_path / "dev.json", *counted, PYTHON, odd), scripts)
    assert environment.spec.reference_scores["constant"] == 3 / 6


@pytest.mark.long
def test_what_a_record_came_to_is_kept(
    made: Shell, tmp_path: Path, scripts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "dev.json", HIDDEN, PYTHON)
    first = loaded(made, path, scripts).tasks("train")

    def forbidden(*_: object) -> None:
        raise AssertionError("a script of a record was run again")

    with monkeypatch.context() as patched:
        patched.setattr(Workspace, "run", forbidden)
        assert Shell(RecordFile(path, scripts=scripts, heldout_share=0.0)).tasks("train") == first
    for file in (tmp_path / "cache" / "os_interaction").iterdir():
        file.write_text("[[")  # as a machine leaves it that stops while it writes
    assert loaded(made, path, scripts).tasks("train") == first
    monkeypatch.setenv("TURNWISE_CACHE", path)  # a file: nothing can be kept there
    assert loaded(made, path, scripts).tasks("train") == first


BROKEN = {
    "entry 1: 'match' has a pattern that is none": {
        **MATCHED,
        "evaluation": {"match": {"regex": "("}},
    },
    "entry 1: 'description' must be there": {**HIDDEN, "description": " "},
    "entry 1: 'evaluation' must have 'match' or 'check'": {**HIDDEN, "evaluation": {}},
    "evaluation' must have 'match' or 'check'": {**HIDDEN, "evaluation": {"check": []}},
    "entry 1: 'example' has to be one script": {
        **HIDDEN,
        "evaluation": {"check": "true", "example": ["true", "true"]},
    },
    "entry 1: 'check' refers to an example": {**HIDDEN, "evaluation": {"check": [None]}},
    "entry 1: a script is text": {**HIDDEN, "create": {"init": 3}},
    "entry 1: there is no script": {**HIDDEN, "evaluation": {"check": {"file": "none.sh"}}},
    "there are no tasks in it; 1 tasks were left out": RUNNING,
}


@pytest.mark.parametrize("message", BROKEN)
def test_broken_records_are_named(tmp_path: Path, message: str) -> None:
    with pytest.raises(DataError) as error:
        Shell(RecordFile(write(tmp_path / "broken.json", BROKEN[message])))
    assert message in str(error.value)
