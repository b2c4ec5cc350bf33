"""Agents that call in for their tasks, over HTTP."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from gateway_tests.hashed_engine import TOKENIZER, HashedEngine
from gateway_tests.playing import ASKING, LIMITS, RIGHT, SCAFFOLD, group_of, limits
from turnwise.config import RolloutConfig
from turnwise.errors import ConfigError
from turnwise.types import Outcome, Trajectory
from turnwise_gateway.agent_episode import make_host
from turnwise_gateway.settings import RemoteAgent

httpx = pytest.importorskip("httpx")
pytest.importorskip("uvicorn")
CLIENT = Path(__file__).parents[4] / "examples/agents/remote.py"
KEY = {"authorization": "Bearer sesame"}
Work = Callable[[str, Any], Awaitable[None]]


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNWISE_AGENT_KEY", "sesame")


def play(
    work: Work, episodes: int = 1, limits: RolloutConfig = LIMITS, places: int = 50, **settings: Any
) -> list[Trajectory]:
    """Episodes that are offered while some agents work."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    host = make_host(RemoteAgent(run="remote", port=port, **settings), SCAFFOLD, TOKENIZER)

    async def meanwhile() -> None:
        while not host.gateway.running:
            await asyncio.sleep(0.01)
        async with httpx.AsyncClient(timeout=20, verify=False, trust_env=False) as client:
            await work(f"http://127.0.0.1:{port}", client)

    engine, counts = HashedEngine([RIGHT]), {"episodes": episodes, "places": places}
    return list(group_of(host, engine, None, limits, meanwhile=meanwhile, **counts).trajectories)


async def ask(client: Any, offer: Any) -> str:
    given = offer["variables"]
    body = {"model": "policy", "messages": [{"role": "user", "content": offer["task"]["prompt"]}]}
    reply = await client.post(f"{given['OPENAI_BASE_URL']}/chat/completions", json=body)
    return str(reply.json()["choices"][0]["message"]["content"])


def test_each_task_is_taken_by_one_agent() -> None:
    taken = []

    async def agent(server: str, client: Any) -> None:
        while len(taken) < 6:
            offered = await client.get(f"{server}/next?seconds=0.2", headers=KEY)
            if offered.status_code == 204:
                continue
            offer = offered.json()
            assert set(offer["task"]) == {"id", "prompt", "data"}
            taken.append(offer["address"])
            assert await ask(client, offer) == "Paris"
            assert (await client.post(f"{offer['address']}/end")).status_code == 200

    async def work(server: str, client: Any) -> None:
        await asyncio.gather(*(agent(server, client) for _ in range(3)))

    played = play(work, episodes=6)
    assert [one.outcome for one in played] == [Outcome.SUCCESS] * 6
    assert len(set(taken)) == 6


def test_who_has_no_key_gets_no_task() -> None:
    async def work(server: str, client: Any) -> None:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "sesame"}):
            refused = await client.get(f"{server}/next", headers=headers)
            assert refused.status_code == 401
            assert refused.json()["error"]["message"] == "the key is wrong"
        for seconds in ("soon", "nan", "inf"):
            wrong = await client.get(f"{server}/next?seconds={seconds}", headers=KEY)
            assert wrong.status_code == 400
        offer = (await client.get(f"{server}/next", headers=KEY)).json()
        assert (await client.get(f"{server}/next", headers=KEY)).status_code == 204
        await ask(client, offer)
        await client.post(f"{offer['address']}/end")

    assert play(work)[0].outcome is Outcome.SUCCESS


def test_a_task_that_no_agent_takes_is_ungraded() -> None:
    async def work(server: str, client: Any) -> None: ...

    (played,) = play(work, pickup_seconds=0.2)
    assert (played.outcome, played.reward) == (Outcome.INFRASTRUCTURE_STEP, None)
    assert "no agent called in within agent.pickup_seconds = 0.2" in played.problem


@pytest.mark.long
def test_waiting_for_an_agent_is_no_time_of_its_own_and_work_is() -> None:
    async def work(server: str, client: Any) -> None:
        await asyncio.sleep(1.0)
        offer = (await client.get(f"{server}/next?seconds=5", headers=KEY)).json()
        await ask(client, offer)  # and then nothing: it does not say that it has ended

    (played,) = play(work, limits=limits(max_seconds=0.5))
    assert (played.outcome, played.reward) == (Outcome.TRUNCATED_TIME, 1.0)


@pytest.mark.long
def test_a_task_is_not_lost_with_an_agent_that_has_hung_up() -> None:
    async def work(server: str, client: Any) -> None:
        first = (await client.get(f"{server}/next?seconds=5", headers=KEY)).json()
        with pytest.raises(httpx.ReadTimeout):
            await client.get(f"{server}/next?seconds=9", headers=KEY, timeout=0.2)
        await client.post(f"{first['address']}/end")  # so that the second one is offered
        second = (await client.get(f"{server}/next?seconds=9", headers=KEY)).json()
        await ask(client, second)
        await client.post(f"{second['address']}/end")

    played = play(work, episodes=2, places=1)
    assert sorted(str(one.outcome) for one in played) == ["infrastructure_step", "success"]


@pytest.mark.long
def test_the_example_starts_a_program_for_each_task() -> None:
    program = ASKING + 'ask(json.loads(os.environ["TURNWISE_TASK"])["prompt"])'
    started = []

    async def work(server: str, client: Any) -> None:
        command = [sys.executable, str(CLIENT), server, "--", sys.executable, "-S", "-c", program]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))

    played = play(work, episodes=2)
    assert [one.outcome for one in played] == [Outcome.SUCCESS] * 2
    said, _ = started[0].communicate(timeout=20)  # it ends when the run does
    assert said == "2 tasks played\n"


def test_without_a_key_in_the_environment_nothing_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TURNWISE_AGENT_KEY")
    with pytest.raises(ConfigError, match="no environment variable TURNWISE_AGENT_KEY: set it"):
        make_host(RemoteAgent(run="remote", port=8123), SCAFFOLD, TOKENIZER)
