"""Several environments as one: shares, budgets, each episode in its own, clashes refused."""

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest

from environment_playing import (
    answered,
    calling,
    judged,
    module,
    played,
    said,
    steps_of,
    verdict_of,
)
from turnwise.environments.base import Budget, Environment
from turnwise.environments.registry import make_environment
from turnwise.errors import ConfigError
from turnwise.types import Action, Task, ToolCall
from turnwise_environments.joint import Joint

BANDIT: dict[str, Any] = {"share": 1}
SUMS: dict[str, Any] = {
    "name": "mathematics",
    "options": {"tasks": {"count": 30, "max_steps": 1}},
    "max_turns": 3,
    "max_tokens": 200,
}
PROOFS: dict[str, Any] = {"options": {"tasks": {"count": 20}}, "share": 0.5}
TABLES = {"environments": {"sums": SUMS, "proofs": PROOFS}}


def made(**environments: dict[str, Any]) -> Joint:
    found = make_environment("joint", {"environments": environments})
    assert isinstance(found, Joint)
    return found


@pytest.fixture(scope="module")
def both() -> Joint:
    return made(sums=SUMS, proofs=PROOFS)


def first(environment: Environment, name: str) -> Task:
    return next(one for one in environment.tasks("heldout") if one.info["environment"] == name)


def test_tasks_come_by_share(both: Joint) -> None:
    """30 sums at a share of 1 leave room for 15 proofs at a half."""
    for split in ("train", "heldout"):
        names = [task.info["environment"] for task in both.tasks(split)]
        assert (names.count("sums"), names.count("proofs")) == (30, 15)
        assert names[:30] != ["sums"] * 30
        assert {task.id.partition("/")[0] for task in both.tasks(split)} == {"sums", "proofs"}
    assert both.warnings == ("proofs: 15 of 20 training tasks are used, so that shares hold",)


@pytest.mark.parametrize("name", ["sums", "proofs"])
def test_an_episode_is_one_of_its_own_environment(both: Joint, name: str) -> None:
    task = first(both, name)
    assert judged(both, task, *both.oracle(task)).success
    assert not judged(both, task, answered("nothing")).success


def test_budgets_are_those_of_the_tasks_environment(both: Joint, mine: Path) -> None:
    assert both.budget(first(both, "sums")) == Budget(max_turns=3, max_tokens=200)
    assert both.budget(first(both, "proofs")) == Budget()
    own = {"name": f"{mine}:Ending", "max_turns": 3, "max_tool_calls": 5}
    environment = made(one=own, two=own)
    assert environment.budget(first(environment, "one")) == Budget(2, max_tool_calls=5)


def told(environment: Environment, task: Task, tool: str, **arguments: Any) -> str:
    """What a call in the task's episode gives."""
    (step,) = steps_of(played(environment, task, calling(tool, **arguments)))
    return said(step)


def test_the_tools_of_another_environment_are_mistakes(both: Joint) -> None:
    assert [tool.name for tool in both.tools()] == ["calculator", "check"]
    assert told(both, first(both, "sums"), "calculator", expression="2 * 3") == "6"
    refused = told(both, first(both, "proofs"), "calculator", expression="2 * 3")
    assert refused == "Error: there is no tool 'calculator'; tools: check"


ENDING = """
from dataclasses import replace
from turnwise import Environment, Task, Verdict, tool
from turnwise.environments.base import Budget

class Ending(Environment):
    def tasks(self, split):
        return [Task("a", "b")]

    def budget(self, task):
        return Budget(max_turns=2)

    async def reset(self, task, seed):
        self.begun, self.folder = task.id, "its own"
        return await super().reset(task, seed)

    @tool
    def stop(self) -> str:
        \"""End the episode.\"""
        return "stopped"

    async def step(self, action):
        return replace(await super().step(action), done=True)

    async def verify(self, trajectory):
        return Verdict(1.0, (self.begun, trajectory.task.id) == ("a", "a"))

class Other(Ending):
    @tool
    def calculator(self, number: int) -> str:
        \"""Another one.\"""
        return ""

@tool
def double(number: int) -> str:
    \"""Twice a number.\"""
    return str(2 * number)
"""
mine = module("mine.py", ENDING)


def test_an_environment_sees_its_own_ids_and_nothing_is_called_after_its_end(mine: Path) -> None:
    """Also where a tool that is run for all of them stands in the same turn."""
    table = {"name": f"{mine}:Ending"}
    environment = make_environment(
        "joint", {"environments": {"one": table, "two": table}}, tools=[f"{mine}:double"]
    )
    doubled = [ToolCall("double", {"number": number}) for number in (4, 8)]
    batch = Action("", calls=(doubled[0], ToolCall("stop", {}), doubled[1]))
    task, episode = environment.tasks("heldout")[0], environment.fresh()
    asyncio.run(episode.reset(task.public(), 0))
    assert str(episode.folder) == "its own"
    play = played(environment, task, batch)
    (step,) = steps_of(play)
    assert [result.content for result in step.results] == ["8", "stopped"]
    assert verdict_of(play).success


def test_tools_and_rules_of_the_recipe_hold_in_all_of_them(mine: Path) -> None:
    tables = {"sums": {**SUMS, "tools": []}, "proofs": PROOFS}
    environment = make_environment(
        "joint", {"environments": tables}, {"calculator": 0}, tools=[f"{mine}:double"]
    )
    for name in ("sums", "proofs"):
        assert told(environment, first(environment, name), "double", number=4) == "8"
    limited = told(environment, first(environment, "sums"), "calculator", expression="1")
    assert limited == "Error: calculator may be used 0 times only"


def test_ablations_are_those_of_each(both: Joint) -> None:
    (name,) = both.ablations()
    ruled = make_environment("joint", TABLES, {"calculator": 5}, tools=["calculate"])
    assert list(ruled.ablations()) == [name]
    assert name == "sums_no_calculator"
    variant = both.ablations()[name]
    refused = told(variant, first(both, "sums"), "calculator", expression="2 * 3")
    assert refused.startswith("Error: ")
    assert told(both, first(both, "sums"), "calculator", expression="2 * 3") == "6"


def test_the_spec_is_that_of_all(both: Joint) -> None:
    spec = both.spec
    assert spec.name == "joint"
    assert spec.version == "sums: mathematics 1, proofs: proofs 1"
    assert spec.reference_scores["oracle"] == 1.0
    assert "correct" not in spec.parts  # proofs report no such number
    more = made(sums=SUMS, proofs={**PROOFS, "share": 0.25}).spec
    assert more.data_hash != spec.data_hash


@pytest.mark.parametrize(
    ("environments", "said"),
    [
        ({"sums": SUMS}, "give two or more in environment.options.environments"),
        ({"sums": SUMS, "a/b": BANDIT}, "a/b: give a name without a slash"),
        ({"sums": SUMS, "bandit": 3}, "bandit is 3: give a table"),
        ({"sums": SUMS, "bandit": {"share": 0}}, "bandit.share is 0: give a finite one above 0"),
        ({"sums": SUMS, "bandit": {"share": math.inf}}, "bandit.share is inf: give a finite one"),
        ({"sums": SUMS, "bandit": {"shares": 1}}, "'shares'.*share"),
        ({"sums": SUMS, "bandits": {}}, "environments.bandits: .*bandit"),
        ({"sums": SUMS, "bandit": {"share": 0.001}}, "bandit gets no train task, as sums has 30"),
        ({"sums": {"options": {}, "name": "mathematics", "max_turns": -1}, "bandit": {}}, "max_tu"),
    ],
)
def test_what_does_not_go_together_is_refused(environments: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make_environment("joint", {"environments": environments})


def test_two_tools_of_one_name_are_refused(mine: Path) -> None:
    with pytest.raises(ConfigError, match="sums and other have a tool 'calculator' each"):
        made(sums=SUMS, other={"name": f"{mine}:Other"})
