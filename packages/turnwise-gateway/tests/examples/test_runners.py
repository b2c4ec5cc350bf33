"""The runners of examples/runners drive the real packages of others, with a policy of scripted
replies; each is skipped where its package is not installed."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from gateway_tests.playing import SCAFFOLD, group_of
from tests.chat_server import serving
from tests.fakes import byte_tokenizer
from turnwise.config import RolloutConfig, load_recipe
from turnwise.engines.scripted import ScriptedEngine
from turnwise.environments.base import Environment
from turnwise.environments.registry import make_environment
from turnwise.errors import DataError
from turnwise.types import Outcome, Trajectory
from turnwise_gateway.agent_episode import make_host
from turnwise_gateway.settings import AnyAgentConfig, CommandAgent, FunctionAgent

pytest.importorskip("uvicorn")
FOLDER = Path(__file__).parents[4] / "examples/runners"
TOKENIZER = byte_tokenizer()
LIMITS = RolloutConfig(
    max_turns=6, max_turn_tokens=1000, max_tokens=20_000, max_seconds=600, max_ungraded_share=1.0
)


def play(
    agent: AnyAgentConfig,
    environment: Environment,
    replies: Sequence[str],
    limits: RolloutConfig = LIMITS,
    number: int = 0,
) -> Trajectory:
    """A task, the first if not given, with these replies of the policy."""
    script = iter(replies)
    engine = ScriptedEngine(lambda session, prompt: TOKENIZER.encode(next(script)))
    tasks = [[*environment.tasks("train"), *environment.tasks("heldout")][number]]
    host = make_host(agent, SCAFFOLD, TOKENIZER)
    return group_of(host, engine, environment, limits, tasks=tasks).trajectories[0]


def endpoint(url: str) -> dict[str, Any]:
    """Roles: the policy, and a model behind this address."""
    return {"policy": {}, "user": {"policy": {"kind": "endpoint", "url": url, "name": "someone"}}}


SHOP = """
import verifiers.v1 as vf

class Sales(vf.State):
    asked: list[str] = []

class Shop(vf.Toolset[vf.ToolsetConfig, Sales]):
    TOOL_PREFIX = "shop"
    @vf.tool
    def price(self, thing: str) -> str:
        "The price of a thing."
        self.state.asked.append(thing)
        return {"tea": "3", "rice": "4"}.get(thing, "unknown")

class Bill(vf.TaskData):
    wanted: list[str]
    answer: str

class Config(vf.TaskConfig):
    tools: vf.ToolsetConfig = vf.ToolsetConfig()

class Buying(vf.Task[Bill, Sales, Config]):
    @classmethod
    def toolsets(cls, config):
        return [Shop(config.tools)]
    @vf.reward(weight=0.5)
    async def looked_up(self, trace: vf.Trace) -> float:
        return float(trace.state.asked == self.data.wanted)

class TasksConfig(vf.TasksetConfig):
    task: Config = Config()

class Bills(vf.Taskset[Buying, TasksConfig]):
    def load(self):
        data = Bill(prompt=None, system_prompt="Sell.", wanted=["tea", "rice"], answer="7")
        yield Buying(data, self.config.task)

class Counter(vf.SingleAgentEnv):
    async def run(self, task, agents):
        async with agents.agent.interaction(task) as customer:
            for thing in task.data.wanted:
                if (await customer.turn(f"One {thing}, please.")).terminated:
                    break

__all__ = ["Counter", "Bills"]
if __name__ == "__main__":
    Shop.run()
"""
UV = f"""#!/bin/sh
case "$*" in
*--help) echo --script ;;
"python find"*) echo {sys.executable} ;;
esac
"""
"""What verifiers calls for the interpreter of its harness: here it is the one of the tests."""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Any]:
    """A taskset of several turns, with tools that have a state; verifiers' table of it."""
    if find_spec("verifiers") is None:
        pytest.skip("verifiers is not installed: pip install 'turnwise[verifiers]'")
    (tmp_path / "own_shop.py").write_text(SHOP)
    (tmp_path / "uv").write_text(UV)
    (tmp_path / "uv").chmod(0o755)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # of the tools' process
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    agent = {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}}
    return {"taskset": {"id": "own-shop"}, "agent": agent}


@pytest.mark.parametrize(("name", "environment"), [("verifiers", "Tasks"), ("nemo_gym", "Rows")])
def test_a_recipe_names_a_runner(name: str, environment: str) -> None:
    recipe = load_recipe(str(FOLDER / f"{name}.toml"), [])
    assert recipe.agent.reward == "agent"
    assert recipe.environment.name == recipe.agent.run.replace(":run", f":{environment}")


@pytest.mark.parametrize("name", ["tau2", "harbor"])
def test_a_recipe_names_a_program_and_a_list(name: str) -> None:
    recipe = load_recipe(str(FOLDER / f"{name}.toml"), [])
    assert (recipe.agent.reward, recipe.agent.command[1]) == (
        "agent",
        f"examples/runners/{name}_task.py",
    )
    assert recipe.environment.name == "examples/runners/listed.py:Listed"


def test_listed_tasks_have_names_and_data_alone(tmp_path: Path) -> None:
    (tmp_path / "names.json").write_text('{"train": ["a", "b"], "test": ["c"]}')
    options = {"file": str(tmp_path / "names.json"), "data": {"domain": "mock"}}
    made = make_environment(f"{FOLDER}/listed.py:Listed", options)
    assert [one.id for one in made.tasks("train")] == ["a", "b"]
    assert [(one.id, one.data) for one in made.tasks("heldout")] == [("c", {"domain": "mock"})]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "no JSON can be read there"),
        ('{"train": ["a"', "no JSON can be read there"),
        ('["a"]', "no list of names 'train', the train tasks"),
        ('{"train": ["a"], "test": "a"}', "no list of names 'test', the heldout tasks"),
        ('{"train": [1], "test": ["a"]}', "no list of names 'train'"),
    ],
)
def test_a_broken_list_is_one_line(text: str | None, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "names.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(DataError, match=f"{file}: .*{problem}") as error:
        make_environment(f"{FOLDER}/listed.py:Listed", {"file": str(file)})
    assert "\n" not in str(error.value)


REPLIES = (
    *("<shop_price> tea</shop_price>", "<answer> It is 3.</answer>"),
    *("<shop_price> rice</shop_price>", "<answer> 7 in all.</answer>"),
)


def by_verifiers(
    env: Mapping[str, Any], limits: RolloutConfig = LIMITS, **settings: Any
) -> Trajectory:
    file = f"{FOLDER}/verifiers_tasks.py"
    agent = FunctionAgent(run=f"{file}:run", reward="agent", **settings)
    return play(agent, make_environment(f"{file}:Tasks", {"env": env}), REPLIES, limits)


@pytest.mark.long
def test_a_taskset_of_verifiers_with_turns_tools_and_a_judge(shop: Mapping[str, Any]) -> None:
    """Their user speaks twice, their server has the tool, their judge asks a model of its own."""
    with serving(lambda body, number: "yes") as judge:
        judging = {"id": "reference", "base_url": judge.url, "model": "judge", "weight": 0.5}
        taskset = {**shop["taskset"], "task": {"judges": [judging]}}
        played = by_verifiers({**shop, "taskset": taskset})
    assert played.outcome is Outcome.SUCCESS, played.problem
    assert played.reward == 1.0
    assert played.verdict.parts == {"looked_up": 1.0, "reference": 1.0}
    assert "7 in all." in judge.asked[0]["messages"][-1]["content"]
    assert (len(played.turns), len(played.tokens.spans)) == (4, 1)
    assert played.capture.coverage == 1.0


@pytest.mark.slow
def test_a_judge_of_verifiers_that_fails_is_no_zero(shop: Mapping[str, Any]) -> None:
    with serving(lambda body, number: "perhaps") as judge:
        judging = {"id": "reference", "base_url": judge.url, "model": "judge"}
        taskset = {**shop["taskset"], "task": {"judges": [judging]}}
        played = by_verifiers({**shop, "taskset": taskset})
    assert (played.outcome, played.verdict) == (Outcome.GRADER_ERROR, None)


@pytest.mark.slow
def test_a_budget_ends_a_rollout_of_verifiers(shop: Mapping[str, Any]) -> None:
    limits = LIMITS.model_copy(update={"max_turns": 3})
    played = by_verifiers(shop, limits)
    assert (played.outcome, played.reward) == (Outcome.TRUNCATED_TURNS, 0.0)


@pytest.mark.slow
def test_a_seat_of_verifiers_asks_the_role_that_is_its_model(shop: Mapping[str, Any]) -> None:
    """The user is a model of its own, and is not trained."""
    seat = shop["agent"]
    with serving(lambda body, number: ["Tea, please.", "###DONE###"][number - 1]) as user:
        env = {"id": "user-sim", "taskset": shop["taskset"], "assistant": seat}
        env = {**env, "user": {**seat, "model": "user"}}
        played = by_verifiers(env, roles=endpoint(user.url))
    assert played.outcome is Outcome.FAILURE, played.problem
    assert (len(user.asked), len(played.turns), played.reward) == (2, 2, 0.0)
    assert played.verdict.parts == {"looked_up": 0.0}


def by_program(
    command: Sequence[str],
    file: Path,
    data: Mapping[str, Any],
    replies: Sequence[str],
    **settings: Any,
) -> Trajectory:
    """The first task that a file lists, played by a program."""
    options = {"file": str(file), "train": "base", "heldout": "base", "data": data}
    made = make_environment(f"{FOLDER}/listed.py:Listed", options)
    return play(CommandAgent(command=tuple(command), reward="agent", **settings), made, replies)


@pytest.mark.slow
def test_a_task_of_tau2_bench() -> None:
    """tau2 is named by TURNWISE_TEST_TAU2, its Python, and TAU2_DATA_DIR."""
    python, data = os.environ.get("TURNWISE_TEST_TAU2"), os.environ.get("TAU2_DATA_DIR")
    if python is None or data is None:
        pytest.skip("there is no tau2")
    said = ["Create 'Important Meeting' for user_1.", "###STOP###"]
    arguments = '{"user_id": "user_1", "title": "Important Meeting"}'
    replies = [f"<create_task> {arguments}</create_task>", "<answer> It is there.</answer>"]
    with serving(lambda body, number: said[number - 1]) as user:
        played = by_program(
            [python, f"{FOLDER}/tau2_task.py"],
            Path(data) / "tau2/domains/mock/split_tasks.json",
            {"domain": "mock"},
            replies,
            roles=endpoint(user.url),
        )
    assert played.outcome is Outcome.SUCCESS, played.problem
    assert played.verdict.parts == {"tau2/DB": 1.0, "tau2/COMMUNICATE": 1.0}
    assert (len(played.turns), len(played.tokens.spans), played.capture.coverage) == (2, 1, 1.0)


BOX = """
import asyncio, shutil, tempfile
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path
from harbor.environments.base import BaseEnvironment, ExecResult

FOLDERS = ("app", "logs", "solution", "tests", "tmp")

class Box(BaseEnvironment):
    type = staticmethod(lambda: "box")
    def _validate_definition(self): ...
    async def start(self, force_build):
        self.root = Path(tempfile.mkdtemp())
        for name in (*FOLDERS, "logs/agent", "logs/verifier", "logs/artifacts"):
            (self.root / name).mkdir()
    async def stop(self, delete):
        await self.exec("tmux kill-server")
        shutil.rmtree(self.root)
    def at(self, path):
        return self.root / str(path).lstrip("/")
    async def upload_file(self, source_path, target_path):
        shutil.copy(source_path, self.at(target_path))
    async def upload_dir(self, source_dir, target_dir):
        shutil.copytree(source_dir, self.at(target_dir), dirs_exist_ok=True)
    async def download_file(self, source_path, target_path):
        shutil.copy(self.at(source_path), target_path)
    async def download_dir(self, source_dir, target_dir):
        shutil.copytree(self.at(source_dir), target_dir, dirs_exist_ok=True)
    async def exec(self, command, cwd=None, env=None, timeout_sec=None, user=None):
        words = ["bwrap", "--dev", "/dev", "--proc", "/proc", "--chdir", cwd or "/app"]
        for name in ("usr", "bin", "lib", "lib64", "etc"):
            words += ["--ro-bind-try", f"/{name}", f"/{name}"]
        for name in FOLDERS:
            words += ["--bind", str(self.root / name), f"/{name}"]
        known = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", **(env or {})}
        words += ["bash", "-c", command]
        made = await asyncio.create_subprocess_exec(
            *words, env=known, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
        )
        out, err = await made.communicate()
        return ExecResult(stdout=out.decode(), stderr=err.decode(), return_code=made.returncode)
"""
"""Bubblewrap in place of a container."""


def typed(keystrokes: str) -> str:
    """What terminus-2 is told by a policy that types these and has done all."""
    commands = [{"keystrokes": keystrokes, "duration": 1.0}]
    said = {"analysis": "", "plan": "", "commands": commands, "task_complete": True}
    return f"<answer> {json.dumps(said)}</answer>"


@pytest.mark.slow
@pytest.mark.parametrize("solves", [True, False])
def test_a_task_of_harbor(solves: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Harbor is named by TURNWISE_TEST_HARBOR, its Python, and TURNWISE_TEST_HARBOR_TASK, the
    folder recipes/multi-step of its authors' harbor-cookbook: its trial, agent and verifiers."""
    python, folder = map(os.environ.get, ("TURNWISE_TEST_HARBOR", "TURNWISE_TEST_HARBOR_TASK"))
    if python is None or folder is None or not all(map(shutil.which, ("bwrap", "tmux"))):
        pytest.skip("there is no Harbor, or no bwrap and tmux")
    (tmp_path / "own_box.py").write_text(BOX)
    (tmp_path / "names.json").write_text(json.dumps({"base": [Path(folder).name]}))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    kwargs = {"record_terminal_session": False}
    trial = {
        "agent": {"name": "terminus-2", "kwargs": kwargs},
        "environment": {"import_path": "own_box:Box"},
    }
    steps = ("scaffold", "implement", "document") if solves else ("scaffold",)
    replies = []
    for step in steps:
        solution = (Path(folder) / "steps" / step / "solution/solve.sh").read_text()
        replies += [typed(f"bash <<'END'\n{solution}\nEND\n" if solves else "")] * 2
    played = by_program(
        [python, f"{FOLDER}/harbor_task.py"],
        tmp_path / "names.json",
        {"folder": str(Path(folder).parent), "trial": trial},
        replies,
    )
    assert played.verdict is not None, played.problem
    assert played.verdict.parts == {"reward": float(solves)}
    contexts = len(steps)
    assert (len(played.turns), len(played.tokens.spans)) == (2 * contexts, contexts)
    assert played.capture.coverage == 1.0


ROW = {"responses_create_params": {"input": [{"role": "user", "content": "Reply."}]}, "id": 0}


def test_rows_of_nemo_gym_show_their_last_message(tmp_path: Path) -> None:
    file = str(tmp_path / "rows.jsonl")
    Path(file).write_text(f"{json.dumps(ROW)}\n{json.dumps(ROW)}\n")
    options = {"train": file, "heldout": file, "agent": "one"}
    made = make_environment(f"{FOLDER}/nemo_gym_tasks.py:Rows", options)
    assert [(one.id, one.prompt) for one in made.tasks("heldout")] == [
        ("heldout-0", "Reply."),
        ("heldout-1", "Reply."),
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, " cannot be read"),
        (b"\xff", " cannot be read"),
        (b"\n", ": there are no rows in it"),
        (json.dumps(ROW).encode() + b'\n\n{"resp', ", line 3: no row of NeMo Gym"),
        (b'{"id": 1}', ", line 1: no row of NeMo Gym: KeyError"),
        (b"3", ", line 1: no row of NeMo Gym"),
        (b'{"responses_create_params": {"input": []}}', ", line 1: no row of NeMo Gym"),
    ],
)
def test_a_broken_file_of_nemo_gym_is_one_line(
    text: bytes | None, problem: str, tmp_path: Path
) -> None:
    file = tmp_path / "rows.jsonl"
    if text is not None:
        file.write_bytes(text)
    options = {"train": str(file), "heldout": str(file), "agent": "one"}
    made = make_environment(f"{FOLDER}/nemo_gym_tasks.py:Rows", options)
    with pytest.raises(DataError, match=f"{file}{problem}") as error:
        made.tasks("train")
    assert "\n" not in str(error.value)


HEAD = "http://127.0.0.1:11000"
SERVERS = (
    *("resources_servers/workplace_assistant", "environment_servers/legacy_agent"),
    *("responses_api_agents/simple_agent", "responses_api_models/policy"),
)


@pytest.fixture
def gym(tmp_path: Path) -> Iterator[Environment]:
    """Rows that NeMo Gym's package has, and its servers, in the Python that is named by
    TURNWISE_TEST_NEMO_GYM, which has to be a virtual environment's."""
    if (python := os.environ.get("TURNWISE_TEST_NEMO_GYM")) is None:
        pytest.skip("there is no NeMo Gym")
    home = Path(python).parents[1]
    for server in SERVERS:
        (tmp_path / server).mkdir(parents=True)
        (tmp_path / server / ".venv").symlink_to(home)
    command = [home / "bin/gym", "env", "start", "--resources-server", "workplace_assistant"]
    command += ["--model-type", "policy", "--search-dir", FOLDER / "nemo_gym"]
    command += [f"+uv_venv_dir={tmp_path}", "+skip_venv_if_present=true"]
    known = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with subprocess.Popen(command, cwd=tmp_path, env=known) as servers:
        try:
            while not ready(f"{HEAD}/readyz"):
                assert servers.poll() is None
                time.sleep(1)
            (file,) = home.glob(f"lib/*/site-packages/{SERVERS[0]}/data/example.jsonl")
            options = {name: str(file) for name in ("train", "heldout")}
            options["agent"] = "workplace_assistant_simple_agent"
            yield make_environment(f"{FOLDER}/nemo_gym_tasks.py:Rows", options)
        finally:
            servers.terminate()


def ready(url: str) -> bool:
    try:
        with urlopen(url) as reply:
            return reply.status == 200
    except OSError:
        return False


def called(call: Mapping[str, str]) -> str:
    """A call of a row's truth, as the policy writes it."""
    name, given = call["name"], json.loads(call["arguments"])
    written = call["arguments"] if len(given) > 1 else next(iter(given.values()))
    return f"<{name}> {written}</{name}>"


@pytest.mark.slow
def test_rows_of_nemo_gym(gym: Environment) -> None:
    """The policy makes the calls that a row has as its truth, or none, or spends its budget."""
    agent = FunctionAgent(run=f"{FOLDER}/nemo_gym_tasks.py:run", reward="agent")
    limits = LIMITS.model_copy(update={"max_tokens": 50_000})
    done = "<answer> Done.</answer>"
    truths = [map(called, task.data["row"]["ground_truth"]) for task in gym.tasks("train")]
    for number, truth in enumerate(truths):
        replies = [*truth, done]
        right = play(agent, gym, replies, limits, number)
        assert right.outcome is Outcome.SUCCESS, right.problem
        found = len(right.turns), len(right.tokens.spans), right.capture.coverage
        assert found == (len(replies), 1, 1.0)
        none = play(agent, gym, [done], limits, number)
        assert (none.outcome, none.reward) == (Outcome.FAILURE, 0.0)
        cut = play(agent, gym, replies, limits.model_copy(update={"max_turns": 1}), number)
        assert (cut.outcome, cut.reward) == (Outcome.TRUNCATED_TURNS, 0.0)
