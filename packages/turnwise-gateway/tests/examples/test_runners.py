"""The runners of examples/runners drive the real packages of others, with a policy of scripted
replies; each is skipped where its package is not installed."""

import os
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from gateway_tests.playing import SCAFFOLD, group_of
from tests.chat_server import serving
from tests.fakes import byte_tokenizer
from turnwise.config import RolloutConfig, load_recipe
from turnwise.engines.scripted import ScriptedEngine
from turnwise.environments.base import Environment
from turnwise.environments.registry import make_environment
from turnwise.types import Outcome, Trajectory
from turnwise_gateway.agent_episode import make_host
from turnwise_gateway.settings import AnyAgentConfig, CommandAgent, FunctionAgent

pytest.importorskip("uvicorn")
FOLDER = Path(__file__).parents[4] / "examples/runners"
TOKENIZER = byte_tokenizer()
LIMITS = RolloutConfig(
    max_turns=6, max_turn_tokens=200, max_tokens=20_000, max_seconds=600, max_ungraded_share=1.0
)


def play(
    agent: AnyAgentConfig,
    environment: Environment,
    replies: Sequence[str],
    limits: RolloutConfig = LIMITS,
) -> Trajectory:
    """The first task, with these replies of the policy."""
    script = iter(replies)
    engine = ScriptedEngine(lambda session, prompt: TOKENIZER.encode(next(script)))
    tasks = [*environment.tasks("train"), *environment.tasks("heldout")][:1]
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


def test_a_recipe_names_a_runner() -> None:
    recipe = load_recipe(str(FOLDER / "verifiers.toml"), [])
    assert isinstance(recipe.agent, FunctionAgent)
    assert recipe.agent.reward == "agent"
    assert recipe.environment.name == recipe.agent.run.replace(":run", ":Tasks")


def test_a_recipe_names_a_program_and_a_list() -> None:
    recipe = load_recipe(str(FOLDER / "tau2.toml"), [])
    assert isinstance(recipe.agent, CommandAgent)
    assert recipe.agent.reward == "agent"
    assert recipe.agent.command[1] == "examples/runners/tau2_task.py"
    assert recipe.environment.name == "examples/runners/listed.py:Listed"


def test_listed_tasks_have_names_and_data_alone(tmp_path: Path) -> None:
    (tmp_path / "names.json").write_text('{"train": ["a", "b"], "test": ["c"]}')
    options = {"file": str(tmp_path / "names.json"), "data": {"domain": "mock"}}
    made = make_environment(f"{FOLDER}/listed.py:Listed", options)
    assert [one.id for one in made.tasks("train")] == ["a", "b"]
    assert [(one.id, one.data) for one in made.tasks("heldout")] == [("c", {"domain": "mock"})]


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
