"""Episodes of a model behind a scripted endpoint: the same verdicts, limits and outcomes."""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.chat_server import Server, serving
from tests.fakes import Capitals
from turnwise.chat.endpoint import ChatEndpoint
from turnwise.config import RolloutConfig
from turnwise.environments.base import Environment
from turnwise.environments.registry import make_environment
from turnwise.rollout.priority_semaphore import PrioritySemaphore
from turnwise.types import Action, Outcome, Task, Trajectory
from turnwise_gateway import chat_episode
from turnwise_gateway.chat_episode import CUT_OFF, NO_OBJECT, NOTHING, ChatModel, ChatRunner

LIMITS = RolloutConfig(max_turns=5, max_tool_calls=4, max_seconds=30, max_ungraded_share=1)
Message = dict[str, Any] | str


def calling(*calls: tuple[str, Any], text: str | None = None) -> dict[str, Any]:
    """A message that asks for calls; arguments that are no table are written as they are."""
    asked = []
    for place, (name, given) in enumerate(calls):
        written = given if isinstance(given, str) else json.dumps(given)
        function = {"name": name, "arguments": written}
        asked.append({"id": f"c{place}", "type": "function", "function": function})
    return {"role": "assistant", "content": text, "tool_calls": asked}


def message_of(action: Action) -> Message:
    if action.answer is not None:
        return action.answer
    return calling(*((call.name, dict(call.arguments)) for call in action.calls))


def said(body: dict[str, Any]) -> int:
    """The turns of the model so far."""
    return sum(message["role"] == "assistant" for message in body["messages"])


def scripted(*messages: Message) -> Callable[[dict[str, Any], int], Message]:
    return lambda body, number: messages[said(body)]


def play(
    environment: Environment,
    tasks: Sequence[Task],
    server: Server,
    limits: RolloutConfig = LIMITS,
    **options: Any,
) -> list[Trajectory]:
    endpoint = ChatEndpoint(server.url, "the model m", attempts=1, seconds=20)
    model = ChatModel(endpoint, "m", {"temperature": 0.5}, **options)
    runner = ChatRunner(environment, model, limits, PrioritySemaphore(4))
    groups = asyncio.run(runner.collect(tasks, 1, 0, "test"))
    return [group.trajectories[0] for group in groups]


def one(*messages: Message, **options: Any) -> tuple[Trajectory, Server]:
    environment = Capitals()
    with serving(scripted(*messages)) as server:
        (played,) = play(environment, environment.tasks("train")[:1], server, **options)
    return played, server


@pytest.mark.long
@pytest.mark.wing("environments")
@pytest.mark.parametrize("name", ["mathematics", "desk", "sql", "multi_tool"])
def test_the_oracle_behind_an_endpoint_is_the_oracle(name: str) -> None:
    from serving_running import FEW, local

    environment = make_environment(name, FEW if name in ("mathematics", "sql") else {})
    tasks = environment.tasks("heldout")[:4]
    scripts = {task.prompt: environment.oracle(task) for task in tasks}

    def words(body: dict[str, Any], number: int) -> Message:
        # The first observation may say more than the prompt.
        shown = body["messages"][1]["content"]
        script = next(script for prompt, script in scripts.items() if prompt in shown)
        return message_of(script[said(body)])

    limits = LIMITS.model_copy(update={"max_turns": 40, "max_tool_calls": 40})
    with serving(words) as server:
        played = play(environment, tasks, server, limits)
    for task, found in zip(tasks, played, strict=True):
        here = local(environment, task).trajectory
        assert found.outcome is Outcome.SUCCESS, found.problem
        assert found.verdict == here.verdict
        assert found.observed == here.observed


def test_the_conversation_is_that_of_function_calling() -> None:
    first = calling(("lookup", {"country": "France"}), ("lookup", {"country": "Atlantis"}))
    played, server = one(first, "Paris")
    assert played.outcome is Outcome.SUCCESS
    assert (played.reward, played.tool_calls, len(played.turns)) == (1.0, 2, 2)
    assert len(played.tokens) == 0
    begun, body = server.asked
    assert [message["role"] for message in begun["messages"]] == ["system", "user"]
    assert begun["messages"][1]["content"] == "Capital of France?"
    assert (begun["model"], begun["temperature"]) == ("m", 0.5)
    (offered,) = begun["tools"]
    assert offered["type"] == "function"
    assert offered["function"]["name"] == "lookup"
    assert offered["function"]["parameters"]["required"] == ["country"]
    assert body["messages"][2] == first
    results = [(one["tool_call_id"], one["content"]) for one in body["messages"][3:]]
    assert results == [("c0", "The capital is Paris."), ("c1", "Error: no country 'Atlantis'")]


@pytest.mark.parametrize(
    ("message", "correction"),
    [
        ("", NOTHING),
        (calling(("lookup", "[1]"), text="hm"), NO_OBJECT),
        (calling(("lookup", '{"country": ')), NO_OBJECT),
    ],
)
def test_turns_that_cannot_be_read_are_corrected(message: Message, correction: str) -> None:
    played, server = one(message, "Paris")
    assert played.outcome is Outcome.SUCCESS
    assert played.turns[0].action.error == correction
    *_, again, corrected = server.asked[1]["messages"]
    assert set(again) == {"role", "content"}
    assert again["content"]
    assert corrected == {"role": "user", "content": correction}


def test_a_turn_that_is_cut_off() -> None:
    environment = Capitals()
    cut = {"choices": [{"message": {"content": "Par"}, "finish_reason": "length"}]}
    with serving(scripted("", "Paris")) as server:
        server.failures = [json.dumps(cut)]
        (played,) = play(environment, environment.tasks("train")[:1], server)
    assert [turn.action.error for turn in played.turns] == [CUT_OFF, None]
    assert played.outcome is Outcome.SUCCESS


def test_an_endpoint_that_fails_leaves_the_episode_ungraded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environment = Capitals()
    with serving(scripted("Paris")) as server:
        server.failures = [500]
        (played,) = play(environment, environment.tasks("train")[:1], server)
    assert played.outcome is Outcome.INFRASTRUCTURE_MODEL
    assert played.reward is None
    assert "the model m at" in played.problem
    assert "500" in played.problem
    monkeypatch.setattr(chat_episode, "MOST_FAILURES", 2)
    tasks = [Task(str(number), "Capital of France?") for number in range(12)]
    with serving(scripted("Paris")) as server:
        server.failures = [500] * 100
        ended = play(environment, tasks, server)
        assert len(server.asked) <= 5  # two, and the others that were under way
    assert {one.outcome for one in ended} == {Outcome.INFRASTRUCTURE_MODEL}
    assert "given up after so many failures" in ended[-1].problem
