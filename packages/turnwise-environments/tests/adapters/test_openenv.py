"""OpenEnv: a real server of openenv-core's, and small servers that do not keep to the protocol."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from environment_contract import keeps_its_word
from environment_playing import answered, calling, verdict_of
from serving_running import http_server, listening
from turnwise.environments.base import Environment
from turnwise.environments.registry import make_environment
from turnwise.errors import ConfigError, DataError, InfrastructureError
from turnwise.types import Action
from turnwise_environments.adapters.openenv import (
    OpenEnv,
    ResetFile,
    Seeds,
    Session,
    _mistakes,
    shown,
)
from turnwise_environments.choosing import all_tasks
from turnwise_environments.measurement import played_all, success

pytest.importorskip(
    "websockets", reason="websockets is not installed: pip install 'turnwise[openenv]'"
)

SERVER = """
import sys, time, os
import uvicorn
from openenv.core.env_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State

class Guess(Action):
    number: int
    word: str = ""

class Seen(Observation):
    hint: str

class Guessing(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True
    def __init__(self):
        super().__init__()
        self._state = State()
    def reset(self, seed=None, episode_id=None, low=0, **kwargs):
        if low < 0:
            raise ValueError("low is 0 or more")
        self.number, self.low = low + seed % 10, low
        return Seen(hint=f"between {low} and {low + 9}")
    def step(self, action, timeout_s=None, **kwargs):
        if action.word == "raise":
            raise RuntimeError("broken")
        if action.word == "sleep":
            time.sleep(60)
        if action.word == "die":
            os._exit(3)
        right = action.number == self.number
        hint = "right" if right else "higher" if action.number < self.number else "lower"
        return Seen(hint=hint, done=right, reward=1.0 if right else None)
    @property
    def state(self):
        return self._state

app = create_fastapi_app(Guessing, Guess, Seen, max_concurrent_envs=20)
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
"""


@contextmanager
def started(folder: Path) -> Iterator[str]:
    """A server's address."""
    pytest.importorskip("openenv", reason="openenv-core is not installed: pip install openenv-core")
    script = folder / "server.py"
    script.write_text(SERVER)
    with listening("-W", "ignore", str(script)) as (address, _):
        yield address


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with started(tmp_path_factory.mktemp("server")) as address:
        yield address


def guess(number: Any, **more: Any) -> Action:
    return calling("act", number=number, **more)


def search(low: int, high: int, number: int) -> list[Action]:
    """Halving until the number is found."""
    actions: list[Action] = []
    while True:
        middle = (low + high) // 2
        actions.append(guess(middle))
        if middle == number:
            return actions
        low, high = (middle + 1, high) if middle < number else (low, middle - 1)


def test_episodes(url: str) -> None:
    environment = make_environment(
        "openenv", {"url": url, "tasks": {"count": 10}, "prompt": "Guess."}
    )
    tasks = all_tasks(environment)
    assert len(tasks) == 20
    numbers = [task.data["reset"]["seed"] % 10 for task in tasks]
    plays = played_all(environment, tasks, [search(0, 9, number) for number in numbers])
    assert success(plays) == 1.0
    assert plays[0].seen[0] == "Guess.\nbetween 0 and 9"
    assert plays[0].trajectory.reward == 1.0
    assert plays[0].trajectory.turns[-1].step.reward == 1.0
    assert not environment.restorable
    keeps_its_word(environment, most=20, compared=8)
    (tool,) = environment.tools()
    assert set(tool.schema["parameters"]["properties"]) == {"number", "word"}
    assert tool.schema["parameters"]["required"] == ["number"]


def test_what_does_not_fit_is_the_agents_to_read(url: str) -> None:
    environment = make_environment("openenv", {"url": url, "tasks": {"count": 1}})
    (task, *_) = all_tasks(environment)
    number = task.data["reset"]["seed"] % 10
    wrong = [guess("many"), guess(1, colour="red"), calling("look")]
    two = Action("", calls=(*guess(number).calls, *guess(0).calls))
    (play,) = played_all(environment, [task], [[*wrong, two]])
    texts = [str(entry[0]) for entry in play.seen[1:5]]
    assert texts[0].startswith("Error: act: argument 'number': Input should be a valid integer")
    assert texts[1].startswith("Error: act: argument 'colour': Extra inputs")
    assert texts[2] == "Error: there is no tool 'look'; tools: act"
    assert texts[3] == "right", "the call after the end was not made"
    assert play.trajectory.reward == 1.0


def test_an_answer_as_an_action_and_resets_of_ones_own(url: str, tmp_path: Path) -> None:
    resets = tmp_path / "resets.jsonl"
    resets.write_text('{"seed": 3, "low": 50}\n{"seed": 4, "low": -1}\n')
    options = {
        "url": url,
        "tasks": {"file": str(resets), "heldout_share": 0},
        "answer_field": "number",
    }
    environment = make_environment("openenv", options)
    (task,) = [one for one in environment.tasks("train") if one.data["reset"]["low"] == 50]
    (play,) = played_all(environment, [task], [[answered("53")]])
    assert play.seen[0] == "between 50 and 59"
    assert verdict_of(play).success
    (bad,) = [one for one in environment.tasks("train") if one.data["reset"]["low"] == -1]
    with pytest.raises(InfrastructureError, match="EXECUTION_ERROR: low is 0 or more"):
        played_all(environment, [bad], [[]])


def test_an_environment_that_raises_sleeps_or_dies(tmp_path: Path, url: str) -> None:
    environment, hasty = (
        make_environment("openenv", {"url": url, "tasks": {"count": 1}, "seconds": seconds})
        for seconds in (60.0, 2.0)
    )
    (task, *_) = all_tasks(environment)
    with pytest.raises(InfrastructureError, match="EXECUTION_ERROR: broken"):
        played_all(environment, [task], [[guess(0, word="raise")]])
    start = time.monotonic()
    with pytest.raises(InfrastructureError, match="no reply within 2 s"):
        played_all(hasty, [task], [[guess(0, word="sleep")]])
    assert time.monotonic() - start < 45
    with started(tmp_path) as address:
        other = make_environment("openenv", {"url": address, "tasks": {"count": 1}})
        with pytest.raises(InfrastructureError, match=address):
            played_all(other, [task], [[guess(0, word="die")]])


@pytest.fixture
def schema_only() -> Iterator[str]:
    """A server that has a schema and nothing else."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            schema = {"action": {"properties": {"text": {"type": "string"}, "metadata": {}}}}
            body = json.dumps(schema if self.path == "/schema" else {}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None: ...

    with http_server(Handler) as place:
        yield f"http://{place}"


def test_options_that_make_no_sense(schema_only: str, tmp_path: Path) -> None:
    (tmp_path / "none.jsonl").write_text("")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"tasks": {"count": 0}}, "'tasks.count' is 0: give a value of at least 1"),
        ({"tasks": {"heldout_share": 0.1}}, "'tasks.heldout_share' goes with tasks.file"),
        ({"tasks": {"file": "x.jsonl", "count": 5}}, "'tasks.count' does not go with tasks.file"),
        ({"url": "127.0.0.1:1"}, "write http://host:port"),
        ({"url": "http://127.0.0.1:9"}, "no server answers at http://127.0.0.1:9"),
        ({"url": f"{schema_only}/other"}, "does not answer as an OpenEnv server"),
        ({"answer_field": "metadata"}, "answer_field 'metadata': the fields are text"),
    ]
    for change, message in cases:
        with pytest.raises(ConfigError, match=message):
            make_environment("openenv", {"url": schema_only, **change})
    with pytest.raises(DataError, match="no resets in it"):
        OpenEnv(schema_only, ResetFile(str(tmp_path / "none.jsonl")))


def test_a_server_without_sessions(schema_only: str) -> None:
    environment: Environment = OpenEnv(schema_only, Seeds(1))
    with pytest.raises(InfrastructureError, match="openenv: "):
        played_all(environment, all_tasks(environment)[:1], [[]])


async def test_a_tool_that_the_recipe_adds(schema_only: str) -> None:
    environment = make_environment("openenv", {"url": schema_only}, tools=["calculate"])
    step = await environment.step(calling("calculate", expression="6 * 7"))
    assert [result.content for result in step.results] == ["42"]


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (None, "no reply within 0.5 s"),
        ("hello", "no JSON"),
        ("[]", "no message"),
        ('{"type": "observation", "data": {}}', "without an observation"),
        ('{"type": "observation", "data": {"observation": {}, "reward": NaN}}', "reward is nan"),
        ('{"type": "observation", "data": {"observation": {}, "reward": "high"}}', "is 'high'"),
        ('{"type": "error", "data": {"code": "CAPACITY_REACHED", "message": "full"}}', "full"),
    ],
)
async def test_replies_that_are_none(reply: str | None, message: str) -> None:
    """Of a server that always says it; None is silence."""
    from websockets.asyncio.server import ServerConnection, serve

    async def said(connection: ServerConnection) -> None:
        async for _ in connection:
            if reply is not None:
                await connection.send(reply)

    async with serve(said, "127.0.0.1", 0) as server:
        session = Session(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", 0.5)
        await session.open()
        with pytest.raises(InfrastructureError, match=message):
            await session.ask({"type": "reset", "data": {}})
        await session.close()


def test_an_observation_as_text() -> None:
    assert shown({"text": "a\nb"}) == "a\nb"
    assert shown({"board": [1, 2]}) == "[1, 2]"
    assert shown({"text": "é", "score": 2}) == "text: é\nscore: 2"
    assert shown({"text": "x" * 300_000}).endswith("x\n[100000 more characters are not shown]")


@pytest.mark.parametrize("errors", [None, [], ["bad"], {"loc": 1}, [{"loc": None}]])
def test_a_mistake_that_is_told_in_an_odd_way(errors: Any) -> None:
    assert _mistakes({"errors": errors, "message": "no such move"}) == "act: no such move"
