"""An environment as an OpenEnv server, with turnwise's own client, raw messages, and the official
client where it is installed."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest

from environment_playing import verdict_of
from serving_running import A_HANG, FEW, local, running
from tests.fakes import Capitals
from turnwise.environments.base import Environment
from turnwise.environments.registry import make_environment
from turnwise.errors import ConfigError, InfrastructureError
from turnwise.tools.tool import tool
from turnwise.types import Action, Step, ToolCall
from turnwise_environments.measurement import played_all
from turnwise_environments.serving.offer import Offer, check_servable
from turnwise_environments.serving.openenv import OpenEnvClient, action_model, serving_openenv

pytest.importorskip(
    "websockets", reason="websockets is not installed: pip install 'turnwise[openenv]'"
)


def through_act(script: Sequence[Action]) -> list[Action]:
    """A script's actions in the one tool of an OpenEnv environment."""
    found = []
    for action in script:
        calls = tuple(
            ToolCall("act", {"tool": call.name, "arguments": dict(call.arguments)})
            for call in action.calls
        )
        found.append(Action("", calls=calls, answer=action.answer))
    return found


@pytest.mark.long
@pytest.mark.parametrize(("name", "given"), [("mathematics", FEW), ("desk", {}), ("sql", FEW)])
def test_our_own_client_plays_the_same_episode(
    name: str, given: dict[str, Any], tmp_path: Path
) -> None:
    environment = make_environment(name, given)
    tasks = environment.tasks("heldout")[:3]
    resets = tmp_path / "resets.jsonl"
    lines = ({"task": number, "split": "heldout"} for number in range(len(tasks)))
    resets.write_text("\n".join(json.dumps(line) for line in lines))
    with running(lambda: serving_openenv(Offer(environment), "127.0.0.1", 0)) as url:
        options = {
            "url": url,
            "answer_field": "answer",
            "tasks": {"file": str(resets), "heldout_share": 0},
        }
        client = make_environment("openenv", options)
        by_number = {task.data["reset"]["task"]: task for task in client.tasks("train")}
        scripts = [through_act(environment.oracle(task)) for task in tasks]
        plays = played_all(client, [by_number[number] for number in range(len(tasks))], scripts)
    for task, play in zip(tasks, plays, strict=True):
        here = local(environment, task)
        assert play.seen[0] == here.seen[0].strip()
        assert [one[0] for one in play.seen[1:-1]] == [one[0] for one in here.seen[1:-1]]
        assert play.trajectory.reward == here.trajectory.reward
        assert verdict_of(play).success == verdict_of(here).success is True


class Paying(Capitals):
    """Each call is worth something."""

    async def step(self, action: Action) -> Step:
        step = await super().step(action)
        return Step(step.observation, step.results, step.done, reward=0.25)

    @tool
    def fall(self) -> str:
        """Fall over."""
        raise RuntimeError("the password is sesame")


def said(environment: Environment, *messages: Any, **options: Any) -> list[Any]:
    """The data of the replies to some messages; of `close` None."""

    async def work() -> list[Any]:
        offer = Offer(environment, **options)
        client = OpenEnvClient(offer, action_model(environment))
        replies = []
        async with asyncio.timeout(A_HANG):
            for message in messages:
                text = message if isinstance(message, str) else json.dumps(message)
                reply = await client.answer(text)
                replies.append(reply and reply["data"])
        await client.session.close()
        return replies

    return asyncio.run(work())


def reset(**data: Any) -> dict[str, Any]:
    return {"type": "reset", "data": data}


def step(**data: Any) -> dict[str, Any]:
    return {"type": "step", "data": data}


def lookup(country: str) -> dict[str, Any]:
    return step(tool="lookup", arguments={"country": country})


def test_rewards_add_up_and_the_state_has_the_verdict() -> None:
    state = {"type": "state"}
    replies = said(
        Paying(),
        state,
        reset(task=0, episode_id="mine"),
        lookup("France"),
        state,
        step(answer="Paris"),
        state,
    )
    assert replies[0] == {"episode_id": None, "step_count": 0}
    assert replies[1] == {
        "observation": {"text": "Capital of France?"},
        "reward": None,
        "done": False,
    }
    assert (replies[2]["reward"], replies[2]["done"]) == (0.25, False)
    assert replies[3] == {"episode_id": "mine", "step_count": 1, "task": "France"}
    assert (replies[4]["reward"], replies[4]["done"]) == (1.25, True)
    assert replies[5]["reward"] == 1.5
    assert replies[5]["success"]
    assert (replies[5]["outcome"], replies[5]["detail"]) == ("success", "Paris")


def test_what_a_client_does_wrong() -> None:
    replies = said(
        Capitals(),
        "hello",
        {"type": "dance"},
        lookup("France"),
        reset(task=5),
        reset(task=0, split="test"),
        reset(colour="red"),
        reset(task=0),
        step(tool="look"),
        step(tool="lookup", answer="Paris"),
        step(),
        lookup("Atlantis"),
        step(answer="Rome"),
        lookup("France"),
        {"type": "close"},
    )
    codes = [reply.get("code") for reply in replies[:-1]]
    invalid, failed = "VALIDATION_ERROR", "EXECUTION_ERROR"
    assert codes[:6] == ["INVALID_JSON", "UNKNOWN_TYPE", failed, failed, invalid, invalid]
    assert codes[6:] == [None, invalid, invalid, invalid, None, None, failed]
    assert replies[2]["message"] == "no episode has begun: begin one first"
    assert replies[3]["message"].startswith("there is no task 5: split train has 2")
    assert replies[8]["errors"][0]["msg"] == "Value error, give either a tool or an answer"
    assert replies[10]["observation"] == {"text": "Error: no country 'Atlantis'"}
    assert (replies[11]["reward"], replies[11]["done"]) == (0.0, True)
    assert replies[12]["message"] == "the episode is over: begin another one"
    assert replies[13] is None


def test_a_failing_environment_gives_no_grade_and_no_secrets() -> None:
    lines: list[str] = []
    messages = (reset(task=0), step(tool="fall"), {"type": "state"})
    _, broken, state = said(Paying(), *messages, say=lines.append)
    assert len(lines) == 1
    assert lines[0].startswith("task France: infrastructure_step: RuntimeError: the password is")
    assert broken["message"] == "the episode is over without a grade: infrastructure_step"
    assert state["outcome"] == "infrastructure_step"
    assert not state["graded"]
    assert "sesame" not in json.dumps([broken, state])


def test_an_environment_without_tools() -> None:
    bare = make_environment("mathematics", {**FEW, "interpreter": "none"})
    assert [one["done"] for one in said(bare, reset(task=0), step(answer="1"))] == [False, True]


def test_a_seed_chooses_the_task() -> None:
    first, second, again = said(Capitals(), reset(seed=0), reset(seed=1), reset(seed=2))
    assert first != second
    assert first == again
    assert said(Capitals(), reset())[0]["observation"]["text"].startswith("Capital of ")


def test_schemas_and_health() -> None:
    with running(lambda: serving_openenv(Offer(Capitals()), "127.0.0.1", 0)) as url:
        found = {
            path: httpx2.get(f"{url}/{path}", trust_env=False)
            for path in ("schema", "health", "metadata", "nothing")
        }
    properties = found["schema"].json()["action"]["properties"]
    assert {"tool", "arguments", "answer", "metadata"} == set(properties)
    assert "Look a country up." in properties["arguments"]["description"]
    assert found["health"].json() == {"status": "healthy"}
    assert found["metadata"].json()["name"] == "capitals"
    assert found["nothing"].status_code == 404


async def test_bounds_on_connections() -> None:
    """In number, in time, and not from a page of the web."""
    from websockets.asyncio.client import connect
    from websockets.exceptions import InvalidStatus

    offer = Offer(Capitals(), sessions=1, patience=0.5)
    async with asyncio.timeout(A_HANG), serving_openenv(offer, "127.0.0.1", 0) as url:
        address = "ws" + url.removeprefix("http") + "/ws"
        with pytest.raises(InvalidStatus, match="403"):
            await connect(address, origin="http://example.org")
        async with connect(address) as one, connect(address) as other:
            await one.send(json.dumps(reset(task=0)))
            await one.recv()
            assert offer.under_way == 1
            full = json.loads(await other.recv())
            silent = json.loads(await one.recv())
        while offer.under_way:
            await asyncio.sleep(0.01)
    codes = [full["data"]["code"], silent["data"]["code"]]
    assert codes == ["CAPACITY_REACHED", "SESSION_ERROR"]


async def test_a_full_server_is_infrastructure_for_our_own_client() -> None:
    offer = Offer(Capitals(), sessions=1)
    with running(lambda: serving_openenv(offer, "127.0.0.1", 0)) as url:
        client = make_environment("openenv", {"url": url, "tasks": {"count": 1}})
        (task, *_) = client.tasks("train")
        one, other = client.fresh(), client.fresh()
        await one.reset(task, 0)
        try:
            with pytest.raises(InfrastructureError, match="CAPACITY_REACHED"):
                await other.reset(task, 0)
        finally:
            await one.close()
            await other.close()


class Painted(Capitals):
    shows_images = True


def test_images_are_refused() -> None:
    with pytest.raises(ConfigError, match="capitals shows images"):
        check_servable(Painted(), images=False)
    check_servable(Painted(), images=True)


async def test_the_official_client() -> None:
    core = pytest.importorskip("openenv.core.generic_client", reason="pip install openenv-core")

    with running(lambda: serving_openenv(Offer(Capitals()), "127.0.0.1", 0)) as url:
        async with core.GenericEnvClient(base_url=url) as client:
            begun = await client.reset(task=0)
            looked = await client.step({"tool": "lookup", "arguments": {"country": "France"}})
            ended = await client.step({"answer": "Paris"})
            state = await client.state()
    assert begun.observation == {"text": "Capital of France?"}
    assert (looked.reward, looked.done) == (None, False)
    assert (ended.reward, ended.done) == (1.0, True)
    assert state["success"]
