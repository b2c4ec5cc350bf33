"""A language model as the user: a small server, and ways for it to fail."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from desk_library import LEND, TASKS, written
from environment_playing import answered, calling, rolled
from tests.chat_server import Server, serving
from tests.fakes import byte_tokenizer
from turnwise.chat import endpoint
from turnwise.environments.base import Environment
from turnwise.environments.registry import make_environment
from turnwise.errors import InfrastructureError, NotSupportedError
from turnwise.scaffolds.tags import TagsScaffold
from turnwise.types import Outcome
from turnwise_environments.choosing import all_tasks
from turnwise_environments.desk.users import STOP, Dialogue, ModelUser, ModelUserSettings
from turnwise_environments.measurement import is_restorable, played_all, success


def words(body: dict[str, Any], number: int) -> str:
    """Say a new thing each time, and end after the agent has said `done`."""
    said = body["messages"][-1]["content"]
    over = "done" in said or said.isdecimal()
    return f"<think>hm</think> {STOP if over else f'Sentence {number}.'}"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(endpoint, "FIRST_PAUSE", 0.01)
    with serving(words) as made:
        yield made


def desk(folder: Path, server: Server, **settings: Any) -> Environment:
    user = {"url": server.url, "model": "m", **settings}
    return make_environment("own_desk", written(folder, TASKS[:1]) | {"user": user})


SCRIPT = [answered("Who are you?"), calling("lend", **LEND["kwargs"]), answered("It is done.")]


def test_a_conversation(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OWN_KEY", "secret")
    environment = desk(tmp_path, server, key_variable="OWN_KEY")
    (task,) = all_tasks(environment)
    assert "Ada" not in task.prompt, "what the user wants is for the user to tell"
    (play,) = played_all(environment, [task], [SCRIPT])
    assert play.trajectory.reward == 1.0
    assert play.seen[0] == "Be {kind}.\nCustomer: Sentence 1."
    assert play.seen[1][0] == "Customer: Sentence 2."
    last = server.asked[-1]["messages"]
    assert [one["role"] for one in last] == ["system", *["user", "assistant"] * 2, "user"]
    assert "You are Ada. Borrow Rivers." in last[0]["content"]
    assert [one["content"] for one in last[3:]] == ["Who are you?", "Sentence 2.", "It is done."]
    assert "lend" not in json.dumps(server.asked), "no tool is shown to the user"
    assert set(server.headers) == {"Bearer secret"}
    with pytest.raises(NotSupportedError, match="language model"):
        environment.oracle(task)


def test_what_was_said_is_said_again(tmp_path: Path, server: Server) -> None:
    environment = desk(tmp_path, server, recording=str(tmp_path / "user.jsonl"))
    tasks = all_tasks(environment)
    assert asyncio.run(is_restorable(environment, tasks))
    (first,) = played_all(environment, tasks, [SCRIPT])
    count = len(server.asked)
    with (tmp_path / "user.jsonl").open("a") as file:
        file.write('\n{"key": "cut')
    again = desk(tmp_path, server, recording=str(tmp_path / "user.jsonl"))
    (second,) = played_all(again, tasks, [SCRIPT])
    assert second.seen == first.seen
    assert len(server.asked) == count, "all of it was recorded"
    made = again.fresh()
    asyncio.run(made.reset(tasks[0].public(), 5))
    made.reseed(6)
    asyncio.run(made.step(answered("Who?")))
    assert len(server.asked) == count + 2, "another seed is another conversation"
    seeds = [body["seed"] for body in server.asked[-2:]]
    assert seeds[0] != seeds[1]


def hear(server: Server, **settings: Any) -> str | None:
    user = ModelUser(ModelUserSettings(server.url, "m", **settings))
    return asyncio.run(user.hear(Dialogue("You are Ada."), "Hello."))


@pytest.mark.long
def test_what_may_be_better_next_time_is_tried_again(server: Server) -> None:
    server.failures = [503, '{"choices": [{"message": {"content": null}}]}']
    assert hear(server) == "Sentence 3."
    server.failures = [60.0]
    assert hear(server, seconds=2.0) == "Sentence 5."


@pytest.mark.parametrize(
    ("failures", "attempts", "message"),
    [
        ([404], 1, "404"),
        ([500, 500, 429], 3, "429"),
        (["not JSON"] * 3, 3, "does not answer as"),
        ([60.0] * 3, 3, r"no answer within 0\.1 s"),
    ],
)
def test_an_endpoint_that_fails(
    server: Server, failures: list[int | float | str], attempts: int, message: str
) -> None:
    server.failures = list(failures)
    with pytest.raises(InfrastructureError, match=message):
        hear(server, seconds=0.1 if failures == [60.0] * 3 else 60.0)
    assert len(server.asked) == attempts


def test_a_conversation_that_ends_before_it_begins(tmp_path: Path, server: Server) -> None:
    """It is not kept either: the next one may begin."""
    over = json.dumps({"choices": [{"message": {"role": "assistant", "content": STOP}}]})
    server.failures = [over]
    kept = str(tmp_path / "said.jsonl")
    user = ModelUser(ModelUserSettings(server.url, "m", recording=kept))
    with pytest.raises(InfrastructureError, match="ended the conversation before it began"):
        asyncio.run(user.begin(Dialogue("I want a book.")))
    assert asyncio.run(user.begin(Dialogue("I want a book."))) == "Sentence 2."


def test_a_server_that_is_gone() -> None:
    user = ModelUser(ModelUserSettings("http://127.0.0.1:9/v1", "m", attempts=1))
    with pytest.raises(InfrastructureError, match="the user's model at"):
        asyncio.run(user.hear(Dialogue(), "Hello."))


def test_the_built_in_desk_with_a_model_as_the_user(server: Server) -> None:
    options = {"count": 4, "user": {"url": server.url, "model": "m"}}
    environment = make_environment("desk", options)
    scripted = make_environment("desk", {"count": 4})
    tasks = all_tasks(environment)
    scripts = [
        [*(one for one in scripted.oracle(task) if one.calls), answered(task.secret["told"])]
        for task in tasks
    ]
    plays = played_all(environment, tasks, scripts)
    assert success(plays) == 1.0
    assert plays[0].seen[0].endswith("Customer: Sentence 1.")
    system = server.asked[0]["messages"][0]["content"]
    assert "I am " in system
    assert "My code is" in system
    assert asyncio.run(is_restorable(environment, tasks))


def test_an_episode_whose_user_fails_is_ungraded(tmp_path: Path, server: Server) -> None:
    environment = desk(tmp_path, server, attempts=1)
    scaffold = TagsScaffold(byte_tokenizer(), environment.tools(), instructions="")
    turn = scaffold.render(answered("Hello"))
    for failures, outcome in (
        ([500], Outcome.INFRASTRUCTURE_RESET),
        ([200, 500], Outcome.INFRASTRUCTURE_STEP),
    ):
        server.failures = list(failures)
        (trajectory,) = rolled(
            environment,
            scaffold,
            lambda *_: turn,
            all_tasks(environment),
            max_tokens=700,
            max_ungraded_share=1.0,
        )
        assert trajectory.outcome == outcome
        assert trajectory.reward is None
        assert "the user's model at" in trajectory.problem
