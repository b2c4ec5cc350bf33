"""The desk: the policy by hand, the oracle, trivial and careless agents, the user, snapshots."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from environment_playing import answered, calling, judged, played, prototype, said
from turnwise.tokens import Source
from turnwise_environments.choosing import all_tasks
from turnwise_environments.desk.environment import ServiceDesk
from turnwise_environments.desk.tasks import Policy, Wish, WishKind, forbidden_by
from turnwise_environments.desk.users import User

made = prototype("desk")


@pytest.mark.long
def test_every_task_changes_the_database_and_refusals_are_spread(made: ServiceDesk) -> None:
    for task in all_tasks(made):
        assert task.data["state"] != task.secret["state"]
        prompt = task.prompt.rpartition("Customer:")[2]
        assert str(task.secret["told"]) not in prompt.replace(".", " ").split()
    rules = Counter(task.info["rule"] for task in all_tasks(made))
    assert set(rules) == {0, 1, 2, 3, 4, 5}
    assert max(count for rule, count in rules.items() if rule) < 400


ORDER = {"status": "open", "age": 30}


@pytest.mark.parametrize(
    ("kind", "change", "honest", "rule"),
    [
        ("cancel", {}, True, 0),
        ("cancel", {}, False, 1),
        ("cancel", {"status": "sent"}, True, 2),
        ("cancel", {"status": "sent"}, False, 1),
        ("change_street", {}, True, 0),
        ("change_street", {"status": "delivered"}, True, 5),
        ("take_back", {}, True, 3),
        ("take_back", {"status": "delivered"}, True, 0),
        ("take_back", {"status": "delivered", "age": 31}, True, 4),
    ],
)
def test_the_policy_by_hand(
    kind: WishKind, change: dict[str, Any], honest: bool, rule: int
) -> None:
    assert forbidden_by(Policy(10, 30), ORDER | change, Wish(kind, 1), honest) == rule


def test_a_refund_is_half_of_the_price_after_so_many_days(made: ServiceDesk) -> None:
    found = set()
    for task in made.tasks("train"):
        if task.secret["call"][0] != "cancel":
            continue
        order = task.data["state"]["orders"][str(task.info["order"])]
        days = int(task.prompt.partition("more than ")[2].split()[0])
        share = 2 if order["age"] > days else 1
        assert task.secret["call"][1]["refund"] == order["price"] // share
        found.add(share)
    assert found == {1, 2}


@pytest.mark.long
def test_one_thing_wrong_and_all_is_lost(made: ServiceDesk) -> None:
    for task in made.tasks("train")[:25]:
        script = list(made.oracle(task))
        place = len(script) - 3
        name, arguments = task.secret["call"]
        assert judged(made, task, *script).reward == 1.0
        without = [*script[:place], *script[place + 1 :]]
        assert judged(made, task, *without).reward == 0.0, "nothing was done"
        assert judged(made, task, *script[:-1]).reward == 0.0, "the question was not answered"
        assert judged(made, task, *script[:-1], answered("1 2 3 4 5 60")).reward == 0.0
        twice = [*script[: place + 1], script[place], *script[place + 1 :]]
        idempotent = name == "refuse"
        assert judged(made, task, *twice).reward == float(idempotent)
        for key, value in arguments.items():
            other = value + 1 if isinstance(value, int) else "nowhere"
            wrong = calling(name, **{**arguments, key: other})
            altered = [*script[:place], wrong, *script[place + 1 :]]
            assert judged(made, task, *altered).reward == 0.0
        harm = calling("change_street", order=arguments["order"], street="away")
        assert judged(made, task, *script[: place + 1], harm, *script[-2:]).reward == 0.0
        reads = [calling("show_order", order=int(n)) for n in task.data["state"]["orders"]]
        assert judged(made, task, *reads, *script).reward == 1.0


def test_the_user_tells_one_thing_at_a_time() -> None:
    user = User([["code", "C"], ["Street", "S"], ["", "Q"]])
    assert user.hear("Which STREET?") == "S"
    assert user.hear("well") == "C"
    assert user.hear("done") == "Q"
    assert user.hear("7") is None


def test_what_the_user_says_is_the_users(made: ServiceDesk) -> None:
    environment = made.fresh()
    task = made.tasks("train")[0]
    asyncio.run(environment.reset(task.public(), 0))
    step = asyncio.run(environment.step(answered("What is the code?")))
    assert step.observation.source == Source.USER
    assert said(step) == f"Customer: {task.data['script'][0][1]}"


def test_what_is_not_there_is_told_and_writes_are_marked(made: ServiceDesk) -> None:
    calls = (calling("show_order", order=1), calling("check_code", name="nobody", code=1))
    seen = played(made, made.tasks("train")[0], *calls).trajectory.observed
    assert seen == ("Error: there is no order 1", "Error: there is no customer 'nobody'")
    marks = {tool.name for tool in made.tools() if tool.consequence == "write"}
    assert marks == {"cancel", "change_street", "refuse", "take_back"}


@pytest.mark.long
def test_some_wishes_only_and_the_rules_that_matter_for_them() -> None:
    few = ServiceDesk(count=100, short=True, wishes=["change_street", "take_back"])
    tasks = all_tasks(few)
    assert {task.info["wish"] for task in tasks} == {"change_street", "take_back"}
    assert {task.info["rule"] for task in tasks} == {0, 1, 3, 4, 5}
    for task in tasks:
        assert "2 cancel" not in task.prompt
        assert "3 take back" in task.prompt
    assert not any(action.thought for action in few.oracle(tasks[0]))
