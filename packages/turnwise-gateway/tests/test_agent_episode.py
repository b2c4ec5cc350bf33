"""Episodes that an agent of the user's own plays: outcomes, rewards, deadlines, clean ends."""

import asyncio
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from gateway_tests.hashed_engine import TOKENIZER, HashedEngine
from gateway_tests.playing import ASKING, LIMITS, RIGHT, SCAFFOLD, group_of, limits, written
from tests.fakes import Capitals, Rooms
from tests.processes import ended
from turnwise.config import RolloutConfig
from turnwise.errors import ConfigError, RunStoppedError
from turnwise.types import Observation, Outcome, Task, Trajectory, Verdict
from turnwise_gateway.agent_episode import make_host
from turnwise_gateway.settings import CommandAgent, FunctionAgent, RoleConfig

pytest.importorskip("uvicorn")
FUNCTION = """
import asyncio, time

async def run(task, model):
    async def ask(words=task.prompt):
        reply = await model.chat([{'role': 'user', 'content': words}])
        return reply['choices'][0]['message']['content']
"""


def play(
    agent: FunctionAgent | CommandAgent,
    engine: Any = None,
    limits: RolloutConfig = LIMITS,
    episodes: int = 1,
    environment: Capitals | None = None,
) -> list[Trajectory]:
    """Episodes of one task."""
    host, engine = make_host(agent, SCAFFOLD, TOKENIZER), engine or HashedEngine([RIGHT])
    return list(group_of(host, engine, environment, limits, episodes=episodes).trajectories)


def function(folder: Path, body: str, **settings: Any) -> FunctionAgent:
    """An agent of these lines."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return written(folder, FUNCTION + lines, **settings)


def one(
    folder: Path, body: str, settings: dict[str, Any] | None = None, **others: Any
) -> Trajectory:
    (played,) = play(function(folder, body, **(settings or {})), **others)
    return played


def test_the_environment_judges_the_last_reply(tmp_path: Path) -> None:
    played = one(tmp_path, "await ask()")
    assert played.outcome is Outcome.SUCCESS
    assert played.reward == 1.0
    assert played.answer == "Paris"
    assert TOKENIZER.decode(played.tokens.ids.tolist()) == f"Capital of France?\n{RIGHT}"
    assert played.capture.calls == 1
    played = one(tmp_path, "await ask()\nreturn 'Lyon'")  # stands in its place
    assert (played.answer, played.outcome) == ("Lyon", Outcome.FAILURE)


@pytest.mark.long
@pytest.mark.parametrize(
    ("returned", "reward", "success"),
    [
        ("0.5", 0.5, False),
        ("1", 1.0, True),
        ("True", 1.0, True),
        ("{'reward': 0.2, 'success': True, 'parts': {'style': 1}}", 0.2, True),
    ],
)
def test_the_agent_s_own_reward(
    tmp_path: Path, returned: str, reward: float, success: bool
) -> None:
    played = one(tmp_path, f"await ask()\nreturn {returned}", {"reward": "agent"})
    assert played.reward == reward
    assert (played.outcome is Outcome.SUCCESS) == success


OWN_TOOL = """schema = {'type': 'function', 'function': {'name': 'look'}}
await model.chat([{'role': 'user', 'content': 'Book.'}], [schema])
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("call", "outcome", "problem"),
    [
        ("assert await model.call('book', room=7) == 'Room 7 is yours.'", Outcome.SUCCESS, ""),
        ("assert 'room' in await model.call('book', room='x')", Outcome.FAILURE, ""),
        ("assert 'no tool' in await model.call('leave')", Outcome.FAILURE, ""),
        ("await model.call('book', room=13)", Outcome.INFRASTRUCTURE_STEP, "KeyError"),
    ],
)
def test_an_agent_calls_the_environment_s_tools(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, call: str, outcome: Outcome, problem: str
) -> None:
    played = one(tmp_path, OWN_TOOL + call, environment=Rooms())
    assert (played.outcome, problem in played.problem) == (outcome, True)
    assert "tools of its own" not in caplog.text


def test_a_missing_reward_is_none_and_one_too_many_is_said(tmp_path: Path) -> None:
    missing = one(tmp_path, "await ask()", {"reward": "agent"})
    assert (missing.outcome, missing.reward) == (Outcome.GRADER_ERROR, None)
    assert "the agent gave no reward" in missing.problem
    unasked = one(tmp_path, "await ask()\nreturn 1.0")
    assert (unasked.outcome, unasked.reward) == (Outcome.GRADER_ERROR, None)
    assert 'agent.reward="agent"' in unasked.problem


@pytest.mark.long
@pytest.mark.parametrize(
    ("body", "outcome", "problem"),
    [
        ("await ask()\nraise ValueError('oh')", Outcome.AGENT_ABORT, "ValueError: oh ("),
        ("raise ValueError('oh')", Outcome.INFRASTRUCTURE_STEP, "ValueError: oh"),
        ("return 'Paris'", Outcome.INFRASTRUCTURE_STEP, "got no reply"),
        ("await ask()\nreturn [1]", Outcome.AGENT_ABORT, "an agent returns nothing"),
        ("for _ in range(9): await ask()", Outcome.TRUNCATED_TURNS, "max_turns"),
        ("await ask()\nawait ask('x' * 900)", Outcome.TRUNCATED_TOKENS, "length"),
    ],
)
def test_each_end_has_its_outcome(
    tmp_path: Path, body: str, outcome: Outcome, problem: str
) -> None:
    played = one(tmp_path, body)
    assert played.outcome is outcome
    assert problem in played.problem
    assert (played.reward is None) == (not outcome.graded)


ROLES = {
    "reward": "agent",
    "credit": "role",
    "roles": {"planner": RoleConfig(), "worker": RoleConfig()},
}
BOTH = "await model.chat([{'role': 'user', 'content': 'x'}], role='worker')\nawait ask()\n"


def test_roles_are_rewarded_by_what_the_agent_returns_and_by_the_gateway(tmp_path: Path) -> None:
    returned = BOTH + "return {'reward': 1, 'roles': {'worker': 0.5}}"
    played = one(tmp_path, returned, ROLES)
    assert (played.reward, played.verdict.roles) == (1.0, {"worker": 0.5})
    assert [turn.role for turn in played.turns] == ["worker", "planner"]
    posted = (
        BOTH + "import httpx\n"
        "async with httpx.AsyncClient() as client:\n"
        "    for role, reward in (('planner', 1.0), ('worker', 0.0)):\n"
        "        given = {'role': role, 'reward': reward}\n"
        "        done = await client.post(model.anthropic_base_url + '/reward', json=given)\n"
        "        assert done.is_success, done.text\n"
    )
    played = one(tmp_path, posted, ROLES)
    assert (played.reward, played.verdict.roles) == (0.5, {"planner": 1.0, "worker": 0.0})


def test_a_reward_of_a_role_that_there_is_not_is_the_agent_s_mistake(tmp_path: Path) -> None:
    played = one(tmp_path, BOTH + "return {'reward': 1, 'roles': {'judge': 0.5}}", ROLES)
    assert played.outcome is Outcome.AGENT_ABORT
    assert "no trained role 'judge': 'planner', 'worker'" in played.problem


HANGING_UP = """
from turnwise_gateway.requests import Message, Request
request = Request((Message("user", task.prompt),))
"""


@pytest.mark.long
@pytest.mark.parametrize(
    "body",
    [
        "await model._session.ask(request)",
        "await model._session.ask(request)\nraise ValueError('cancelled')",
        "asyncio.create_task(model._session.ask(request))\nawait asyncio.sleep(0.05)",
    ],
)
def test_an_agent_that_hangs_up_on_every_reply_has_failed(tmp_path: Path, body: str) -> None:
    played = one(tmp_path, HANGING_UP + body, engine=HashedEngine([RIGHT], seconds=0.5))
    assert (played.outcome, played.reward) == (Outcome.AGENT_ABORT, 0.0)
    assert played.problem.startswith("the agent hung up on every reply")
    assert ("ValueError: cancelled" in played.problem) == ("raise" in body)
    assert not played.turns


def test_an_agent_that_hangs_up_on_an_engine_that_fails_is_ungraded(tmp_path: Path) -> None:
    body = HANGING_UP + "await model._session.ask(request)\nawait model._session.ask(request)"
    played = one(tmp_path, body, engine=HashedEngine([RIGHT], fails=[2]))
    assert (played.outcome, played.reward) == (Outcome.INFRASTRUCTURE_MODEL, None)


@pytest.mark.long
@pytest.mark.parametrize(
    ("line", "outcome", "problem"),
    [
        ("await asyncio.sleep(60)", Outcome.TRUNCATED_TIME, ""),
        ("time.sleep(60)", Outcome.AGENT_ABORT, "it blocks the event loop at"),
    ],
)
def test_an_agent_that_hangs_is_late_and_graded_and_one_that_blocks_the_loop_is_told_so(
    tmp_path: Path, line: str, outcome: Outcome, problem: str
) -> None:
    played = one(tmp_path, f"await ask()\n{line}", limits=limits(max_seconds=0.5))
    assert (played.outcome, played.reward) == (outcome, 1.0)
    assert problem in played.problem
    assert played.seconds < 20


@pytest.mark.long
def test_time_in_which_the_model_is_slow_does_not_count(tmp_path: Path) -> None:
    engine, own = HashedEngine([RIGHT], seconds=0.5), limits(max_seconds=0.3)
    played = one(tmp_path, "await ask()\nawait ask()", engine=engine, limits=own)
    assert played.outcome is Outcome.SUCCESS


class Broken(HashedEngine):
    """Has a bug that every other request meets."""

    asked = 0

    async def generate(self, *given: Any, **others: Any) -> Any:
        self.asked += 1
        if self.asked % 2:
            raise KeyError("a bug")
        return await super().generate(*given, **others)


def test_a_bug_in_answering_costs_its_episode_and_one_in_all_ends_the_run(tmp_path: Path) -> None:
    body = "try:\n    await ask()\nexcept Exception:\n    pass\nreturn 'Paris'"
    agent = function(tmp_path, body)
    played = play(agent, Broken([RIGHT]), episodes=4)
    assert sorted(one.outcome for one in played) == sorted(
        [Outcome.INFRASTRUCTURE_MODEL, Outcome.SUCCESS] * 2
    )
    assert any(
        "a bug of turnwise's in answering the agent: KeyError" in one.problem for one in played
    )
    with pytest.raises(RunStoppedError, match="KeyError"):
        play(agent, Broken([RIGHT]), limits(max_ungraded_share=0.25), episodes=4)


PLAIN = f"""{ASKING}
def run(task, model):
    said = ask(task.prompt, model.anthropic_base_url, model=model.name)
"""


def test_a_plain_function_runs_in_a_thread_and_has_the_environment_s_tools(tmp_path: Path) -> None:
    played = play(written(tmp_path, PLAIN + "    return said\n"), episodes=3)
    assert [one.outcome for one in played] == [Outcome.SUCCESS] * 3
    booking = "    assert model.call_sync('book', room=7) == 'Room 7 is yours.'\n"
    (booked,) = play(written(tmp_path, PLAIN + booking), environment=Rooms())
    assert booked.outcome is Outcome.SUCCESS, booked.problem


OFFERING = """
FORM = {"type": "object", "properties": {"country": {"type": "string"}}}

async def run(task, model):
    tool = {"type": "function", "function": {"name": "lookup", "parameters": FORM}}
    await model.chat([{"role": "user", "content": task.prompt}], tools=[tool])
"""


@pytest.mark.parametrize(("said", "warned"), [(RIGHT, False), ("<lookup> France</lookup>", True)])
def test_tools_of_one_s_own_are_told_of_once_the_policy_calls_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, said: str, warned: bool
) -> None:
    play(written(tmp_path, OFFERING), HashedEngine([said]), environment=Rooms())
    assert ("tools of its own" in caplog.text) is warned
    assert ('`await model.call("book", …)`' in caplog.text) is warned


OWN_LOOP = """
import asyncio

def run(task, model):
    async def work():
        await model.chat([{'role': 'user', 'content': task.prompt}])
        assert await model.call('book', room=7) == 'Room 7 is yours.'
    asyncio.run(work())
"""


class Looping(HashedEngine):
    """Notes the loops in which it is asked; an engine that batches belongs to one."""

    async def generate(self, *given: Any, **others: Any) -> Any:
        self.loops = {*getattr(self, "loops", ()), asyncio.get_running_loop()}
        return await super().generate(*given, **others)


def test_a_plain_function_may_begin_a_loop_of_its_own(tmp_path: Path) -> None:
    engine = Looping([RIGHT])
    played = play(written(tmp_path, OWN_LOOP), engine, episodes=2, environment=Rooms())
    assert [one.outcome for one in played] == [Outcome.SUCCESS] * 2
    assert len(engine.loops) == 1


def test_a_function_that_cannot_be_one_is_refused(tmp_path: Path) -> None:
    agent = written(tmp_path, "def run(task):\n    pass\n")
    with pytest.raises(ConfigError, match=r"write run\(task, model\)"):
        play(agent)
    with pytest.raises(ConfigError, match="unknown function 'walk'"):
        play(FunctionAgent(run=agent.run.replace(":run", ":walk")))


PROGRAM = f"""{ASKING}
task = json.loads(os.environ["TURNWISE_TASK"])
assert sys.argv[1] == task["prompt"] == "Capital of France?"
assert "answers" not in os.environ["TURNWISE_TASK"]
assert os.environ["OPENAI_BASE_URL"] == os.environ["TURNWISE_GATEWAY"] + "/v1"
assert os.environ["OPENAI_API_KEY"] in os.environ["OPENAI_BASE_URL"]
for alias in ("HAIKU", "SONNET", "OPUS", "FABLE"):
    assert os.environ[f"ANTHROPIC_DEFAULT_{{alias}}_MODEL"] == "policy"
ask(sys.argv[1], model=os.environ["OPENAI_MODEL"])
"""


def command(folder: Path, lines: str, *more: str) -> CommandAgent:
    file = folder / "agent.py"
    file.write_text(PROGRAM + lines)
    return CommandAgent(command=(sys.executable, str(file), "{prompt}", *more))


def test_a_program_finds_its_task_and_the_policy_in_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by way of a proxy, through which the policy cannot be reached."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "example.org")
    monkeypatch.setenv("no_proxy", "")
    played = play(command(tmp_path, ""), episodes=2)
    assert [one.outcome for one in played] == [Outcome.SUCCESS] * 2
    assert os.environ["no_proxy"] == os.environ["NO_PROXY"] == "example.org,127.0.0.1"


class InFolders(Capitals):
    """Gives each episode a folder, in which the agent has to leave a file."""

    async def reset(self, task: Task, seed: int) -> Observation:
        self.folder = Path(tempfile.mkdtemp())
        return await super().reset(task, seed)

    async def verify(self, trajectory: Trajectory) -> Verdict:
        left = [file.name for file in self.folder.iterdir()]
        return Verdict(float(left == ["left"]), left == ["left"])

    async def close(self) -> None:
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


def test_an_agent_works_in_the_folder_of_its_episode(tmp_path: Path) -> None:
    program = command(tmp_path, "open('left', 'w').close()")
    played = play(program, episodes=2, environment=InFolders())
    assert [one.outcome for one in played] == [Outcome.SUCCESS] * 2
    own = function(tmp_path, "await ask()\n(model.folder / 'left').touch()")
    assert play(own, environment=InFolders())[0].outcome is Outcome.SUCCESS


def test_a_program_that_fails_is_quoted_without_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_SERVICE_TOKEN", "abcdefgh12345")
    (played,) = play(command(tmp_path, "sys.exit(f'{dict(os.environ)} no idea')"))
    assert played.outcome is Outcome.AGENT_ABORT
    assert " ended with code 1: " in played.problem
    assert played.problem.endswith(" no idea")
    assert "'OPENAI_API_KEY': '[secret]'" in played.problem
    assert "abcdefgh12345" not in played.problem
    (missing,) = play(CommandAgent(command=("no-such-program",)))
    assert missing.outcome is Outcome.INFRASTRUCTURE_STEP
    assert "cannot be started" in missing.problem


@pytest.mark.long
def test_a_program_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    mark = tmp_path / "pids"
    lines = (
        "import subprocess\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        f"open({str(mark)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        "time.sleep(60)\n"
    )
    begun = time.monotonic()
    (played,) = play(command(tmp_path, lines), limits=limits(max_seconds=3.0))
    assert played.outcome is Outcome.TRUNCATED_TIME
    assert time.monotonic() - begun < 30
    assert ended(map(int, mark.read_text().split()))
