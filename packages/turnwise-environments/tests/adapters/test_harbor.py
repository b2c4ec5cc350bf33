"""Task folders: both formats, Dockerfiles as steps, what is left out and why, rewards, forgery."""

from pathlib import Path
from typing import Any

import pytest

from environment_contract import keeps_its_word
from environment_playing import calling, judged, played
from tests.sandboxes import working
from turnwise.environments.base import Environment
from turnwise.environments.registry import make_environment
from turnwise.errors import ConfigError, DataError
from turnwise.types import Action, Task
from turnwise_environments.adapters.dockerfile import (
    BuildStep,
    UnsupportedDockerfile,
    read_dockerfile,
)
from turnwise_environments.adapters.harbor import (
    WEAKNESS,
    TaskFolder,
    _copied,
    _files,
    _made,
    moved,
)
from turnwise_environments.choosing import all_tasks
from turnwise_environments.folders import leads_out
from turnwise_environments.measurement import NOTHING
from turnwise_sandbox.sandbox import Sandbox
from turnwise_sandbox.tools.workspace import Entry

DOCKERFILE = """
# a comment
FROM python:3.13-slim
ARG WHO=world
ENV GREETING="hello $WHO" \\
    LEVEL=3
WORKDIR /app
COPY data/ ./data
COPY --chown=1:1 words.txt /app/
RUN mkdir -p out && \\
    echo "$GREETING" > out/made.txt
RUN ["touch", "/app/two words"]
CMD ["bash"]
"""
TEST = """#!/bin/bash
if [ "$(cat /app/answer.txt 2>/dev/null)" = "$(sort /tests/wanted.txt)" ]
then echo 1 > /logs/verifier/reward.txt
else echo 0.25 > /logs/verifier/reward.txt
fi
"""
SOLVE = "sort /app/words.txt > /app/answer.txt\n"


def write(folder: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def harbor(**changes: str) -> dict[str, str]:
    """A task folder that sorts words."""
    files = {
        "task.toml": 'version = "1.0"\n[verifier]\ntimeout_sec = 60.0\n',
        "instruction.md": "Sort /app/words.txt into /app/answer.txt.\n",
        "environment/Dockerfile": DOCKERFILE,
        "environment/words.txt": "pear\nfig\n",
        "environment/data/deep/a.txt": "see /app/words.txt\n",
        "tests/test.sh": TEST,
        "tests/wanted.txt": "pear\nfig\n",
        "solution/solve.sh": SOLVE,
    }
    return {name: text for name, text in (files | changes).items() if text}


TERMINAL_BENCH = {
    "task.yaml": "instruction: |-\n  Write hi into /app/hi.txt.\nparser_name: pytest\n",
    "Dockerfile": "FROM ubuntu:24.04\nWORKDIR /app\n",
    "docker-compose.yaml": "services:\n  client:\n    build: .\n",
    "run-tests.sh": 'python3 "$TEST_DIR/test_outputs.py"\n',
    "tests/test_outputs.py": 'assert open("/app/hi.txt").read().strip() == "hi"\n',
    "solution.sh": "echo hi > /app/hi.txt\n",
}


READING = harbor(
    **{
        "instruction.md": "Sort /app/words.txt into /app/answer.txt, please.\n",
        "tests/sorted.txt": "fig\npear\n",
        "tests/test.sh": TEST.replace("$(sort /tests/wanted.txt)", "$(cat /tests/sorted.txt)"),
    }
)


@pytest.fixture(scope="module", autouse=True)
def fixed_place() -> None:
    """Skips where folders have no fixed place, or no sandbox works."""
    if working(Sandbox()).find_tier() == "unisolated":
        pytest.skip("folders have no fixed place without isolation")


def made(folder: Path, *tasks: dict[str, str], **options: Any) -> Environment:
    for number, files in enumerate(tasks):
        write(folder / "all" / f"task-{number}", files)
    return make_environment("harbor", {"folder": str(folder), "seconds": 20, **options})


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    unsolved = harbor(**{"solution/solve.sh": "true"})
    return made(tmp_path_factory.mktemp("tasks"), harbor(), TERMINAL_BENCH, READING, unsolved)


def named(environment: Environment, name: str) -> Task:
    (task,) = [one for one in all_tasks(environment) if one.info["name"] == name]
    return task


def shell(command: str) -> Action:
    return calling("shell", command=command)


@pytest.mark.slow
def test_the_contract_of_both_formats(both: Environment) -> None:
    assert len(all_tasks(both)) == 3
    keeps_its_word(both, most=3)


@pytest.mark.long
def test_what_the_dockerfile_makes_is_there_and_what_is_left_out_told(both: Environment) -> None:
    told = "1 tasks were left out: its own solution does not pass here"
    assert both.task_set.warnings == [told]
    task = named(both, "task-0")
    assert task.prompt == "Sort /work/workspace/app/words.txt into /work/workspace/app/answer.txt."
    look = shell("pwd; find . -type f | sort; cat out/made.txt data/deep/a.txt; echo $LEVEL $HOME")
    play = played(both, task, look, shell("ls /work/workspace"), NOTHING)
    assert play.seen[1][0].split("\n") == [
        "/work/workspace/app",
        "./data/deep/a.txt",
        "./out/made.txt",
        "./two words",
        "./words.txt",
        "hello world",
        "see /work/workspace/app/words.txt",
        "3 /work/workspace/root",
    ]
    assert play.seen[2][0] == "app", "no test and no solution"
    assert play.trajectory.reward == 0.25, "what the tests write"


@pytest.mark.slow
def test_what_is_forged_counts_for_nothing(both: Environment) -> None:
    task = named(both, "task-0")
    root = "/work/workspace"
    forged = [
        f"mkdir -p {root}/logs/verifier; echo 1 > {root}/logs/verifier/reward.txt",
        f"mkdir -p {root}/tests; echo > {root}/tests/wanted.txt; touch {root}/app/answer.txt",
        f"mkdir {root}/tests; echo 'echo 1 > /work/workspace/logs/verifier/reward.txt' "
        f"> {root}/tests/test.sh",
        f"ln -s {root}/tests/wanted.txt {root}/app/words2; rm -rf {root}/app/words.txt",
        f"touch {root}/tests; ln -s /tmp {root}/logs",
        # wanted.txt is the sorted answer of `reading`, whose tests compare the two files.
        "ln -s /proc/self/root/work/workspace/tests/sorted.txt answer.txt",
        "ln -s /proc/self/cwd/../tests/sorted.txt answer.txt",
        "ln -s . x; ln -s x/x/../tests/sorted.txt answer.txt",
        f"ln -s .. {root}/app/up; ln -s up/tests/sorted.txt answer.txt",
        f"ln -s . {root}/x; ln -s ../x/x/tests/sorted.txt answer.txt",
        f"ln -s {root}/tests there; ln -s there/sorted.txt answer.txt",
        "ln -s /usr/../work/workspace/tests/sorted.txt answer.txt",
    ]
    for command in forged:
        for one in (task, named(both, "task-2")):
            assert judged(both, one, shell(command), NOTHING).reward in (0.0, 0.25), command
    right = shell("printf 'fig\\npear\\n' > answer.txt")
    assert judged(both, task, right, NOTHING).success


def test_nothing_at_home_runs_when_the_tests_begin(both: Environment) -> None:
    task = named(both, "task-1")
    forged = (
        "mkdir -p $(python3 -m site --user-site); for one in usercustomize os sys re; do echo "
        "'import os; os._exit(0)' > $one.py; done; cp *.py $(python3 -m site --user-site)"
    )
    assert not judged(both, task, shell(forged), NOTHING).success
    assert both.weaknesses == [WEAKNESS]


def test_where_links_lead() -> None:
    links = {
        "plain": "other/file",
        "system": "/usr/bin/python3",
        "through": "system/../x",
        "folder": "/usr/share",
        "below": "folder/dict/words",
        "rooted": "/work/workspace/app/file",
        "round": "round",
        "self": ".",
        "proc": "/proc/self/root",
        "tests": "self/tests/a",
        "deep/up": "..",
        "deep/far": "../../x",
        "chained": "rooted",
    }
    entries = {path: Entry("link", target.encode()) for path, target in links.items()}
    good = {path for path in entries if not leads_out(path, entries, ("tests",))}
    assert good == {"plain", "system", "folder", "below", "rooted", "chained"}


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        (harbor(**{"tests/test.sh": "echo 1 > /logs/verifier/reward.txt"}), "doing nothing solves"),
        (harbor(**{"solution/solve.sh": "true"}), "its own solution does not pass here"),
        (harbor(**{"solution/solve.sh": ""}), "it has no solution/solve.sh"),
        (harbor(**{"instruction.md": ""}), "it has no instruction.md"),
        (harbor(**{"environment/Dockerfile": ""}), "it has no Dockerfile"),
        (harbor(**{"environment/Dockerfile": "FROM a\nRUN false"}), "a command of its Dockerfile"),
        (harbor(**{"environment/docker-compose.yaml": "x"}), "several containers"),
        (harbor(**{"steps/one/instruction.md": "x"}), "several steps"),
        (harbor(**{"task.toml": "[verifier]\nenvironment_mode = 'separate'"}), "of its own"),
        (
            TERMINAL_BENCH | {"docker-compose.yaml": "services: {a: {}, b: {}}"},
            "several containers",
        ),
    ],
)
def test_what_does_not_hold_here_is_left_out(
    tmp_path: Path, task: dict[str, str], reason: str
) -> None:
    with pytest.raises(DataError, match=f"no tasks in it; 1 tasks were left out: .*{reason}"):
        made(tmp_path, task)


def test_links_out_of_a_tasks_folder_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "host.txt").write_text("secret")
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "own.txt").write_text("own")
    (folder / "same.txt").symlink_to("own.txt")
    (folder / "other.txt").symlink_to(tmp_path / "host.txt")
    assert _files(folder, "own.txt") == {"own.txt": b"own", "same.txt": b"own"}
    assert {where for where, _, _ in _copied(folder, (".", "/app/"))} == {
        "app/own.txt",
        "app/same.txt",
    }


def test_a_star_ends_at_a_slash(tmp_path: Path) -> None:
    write(tmp_path, {"src/a.txt": "a", "src/deep/b.txt": "b", "c.txt": "c", "d.py": "d"})
    copied = _copied(tmp_path, ("src*", "*.txt", "/app/"))
    assert [where for where, _, _ in copied] == ["app/a.txt", "app/deep/b.txt", "app/c.txt"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("wrote", "reward"),
    [
        ("echo '{\"reward\": 0.5}' > /logs/verifier/reward.json", 0.5),
        ("echo '{\"speed\": 0.75}' > /logs/verifier/reward.json", 0.75),
        ('echo \'{"a": 1, "b": 1}\' > /logs/verifier/reward.json', 0.0),
        ("echo much > /logs/verifier/reward.txt", 0.0),
        ("echo nan > /logs/verifier/reward.txt", 0.0),
        ("exit 1", 0.0),
    ],
)
def test_how_a_reward_may_be_written(tmp_path: Path, wrote: str, reward: float) -> None:
    solved = "if [ -e /app/answer.txt ]; then echo 1.0 > /logs/verifier/reward.txt; else"
    environment = made(tmp_path, harbor(**{"tests/test.sh": f"{solved} {wrote}; fi"}))
    (task,) = all_tasks(environment)
    assert judged(environment, task, NOTHING).reward == reward


def test_files_that_are_broken(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no task\.toml"):
        made(tmp_path)
    with pytest.raises(DataError, match="no such folder"):
        make_environment("harbor", {"folder": str(tmp_path / "none")})
    for text in ("version =", "environment = 'x'", "[verifier]\nenv = 'x'"):
        with pytest.raises(DataError, match=r"task\.toml: "):
            made(tmp_path, harbor(**{"task.toml": text}))
    write(tmp_path / "other" / "t", TERMINAL_BENCH | {"task.yaml": "difficulty: easy"})
    with pytest.raises(DataError, match=r"task\.yaml or .*: 'instruction'"):
        made(tmp_path / "other")
    write(tmp_path / "third" / "t", TERMINAL_BENCH | {"docker-compose.yaml": "services: 3"})
    with pytest.raises(DataError, match=r"docker-compose\.yaml: .*int"):
        made(tmp_path / "third")
    elsewhere = {"kind": "sandbox_fusion", "url": "http://127.0.0.1:9"}
    with pytest.raises(ConfigError, match=r"a folder at /work/workspace, which .* does not have"):
        make_environment("harbor", {"folder": str(tmp_path), "sandbox": elsewhere})
    with pytest.raises(ConfigError, match=r"'seconds' is 0: give a value of at least 0\.001"):
        make_environment("harbor", {"folder": str(tmp_path), "seconds": 0})


def test_a_dockerfile_as_steps() -> None:
    recipe = read_dockerfile(DOCKERFILE)
    assert recipe.workdir == "/app"
    assert recipe.variables == {"WHO": "world", "GREETING": "hello world", "LEVEL": "3"}
    assert recipe.steps == [
        BuildStep("copy", ("data/", "/app/data"), "/app"),
        BuildStep("copy", ("words.txt", "/app/"), "/app"),
        BuildStep("run", ('mkdir -p out &&      echo "$GREETING" > out/made.txt',), "/app"),
        BuildStep("run", ("touch '/app/two words'",), "/app"),
    ]
    assert read_dockerfile("FROM a\nENV A 1 2\nWORKDIR x/../$A").workdir == "/1 2"


def test_a_path_goes_before_the_sandboxs_own_and_a_file_into_a_folder(tmp_path: Path) -> None:
    write(tmp_path, {"a.txt": "a", "tool": "#!/bin/sh\necho made > /app/out\n"})
    (tmp_path / "tool").chmod(0o755)
    commands = "mkdir -p /app/data && tool > /dev/null"
    text = f'FROM a\nENV PATH="/app/bin:$PATH"\nCOPY tool /app/bin/\nRUN {commands}'
    recipe = read_dockerfile(f"{text}\nCOPY a.txt /app/data")
    source = TaskFolder("t", "", recipe, tmp_path, {}, "", {}, "", {}, True)
    made = _made(source, working(Sandbox()))
    assert {path for path, entry in made.items() if entry.kind == "file"} == {
        *("app/bin/tool", "app/data/a.txt", "app/out")
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("WORKDIR /app\nCOPY words.txt /app", [("words.txt", "/app/")]),
        ("RUN one \\\n\n# two\n  three\nRUN four \\", [("one    three",), ("four",)]),
        ("RUN\t[ -d /app ] || mkdir /app", [("[ -d /app ] || mkdir /app",)]),  # no list
        ("COPY [ab].txt /app/", [("[ab].txt", "/app/")]),
        ("ARG A=1\nCOPY a ${B:-/b}/$A/${A:-2}$C", [("a", "/b/1/1")]),
    ],
)
def test_words_of_instructions(text: str, words: list[tuple[str, ...]]) -> None:
    assert [step.words for step in read_dockerfile(f"FROM a\n{text}").steps] == words


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("FROM a AS b\nFROM c", "several stages"),
        ("FROM a\nCOPY --from=b x y", "another image"),
        ("FROM a\nADD https://example.org/x /x", "fetches files"),
        ("FROM a\nADD data.tar.gz /app/", "unpacks an archive"),
        ("FROM a\nRUN <<EOF\necho\nEOF", "here-document"),
        ("FROM a\nONBUILD RUN x", "has ONBUILD"),
        ("FROM a\nENV A=it's fine", "cannot be read"),
    ],
)
def test_what_a_folder_cannot_have(text: str, reason: str) -> None:
    with pytest.raises(UnsupportedDockerfile, match=reason):
        read_dockerfile(text)


def test_folders_of_a_container_are_folders_here() -> None:
    assert moved("cd /app;cat '/tests/x' /usr/bin/env a/app /apple ~/app") == (
        "cd /work/workspace/app;cat '/work/workspace/tests/x' /usr/bin/env a/app /apple ~/app"
    )
    assert moved("http://x/app") == "http://x/app"
