"""The runners of examples/runners drive the real packages of others, with a policy of scripted
replies; each is skipped where its package is not installed."""

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
from turnwise.environments.registry import make_environment
from turnwise.types import Outcome, Trajectory
from turnwise_gateway.agent_episode import make_host
from turnwise_gateway.settings import FunctionAgent

pytest.importorskip("uvicorn")
FOLDER = Path(__file__).parents[4] / "examples/runners"
TOKENIZER = byte_tokenizer()
LIMITS = RolloutConfig(
    max_turns=6, max_turn_tokens=200, max_tokens=20_000, max_seconds=60, max_ungraded_share=1.0
)


def play(
    file: str,
    options: Mapping[str, Any],
    replies: Sequence[str],
    limits: RolloutConfig = LIMITS,
    **settings: Any,
) -> Trajectory:
    """The first task, with these replies of the policy."""
    made = make_environment(f"{FOLDER / file}:Tasks", options)
    script = iter(replies)
    engine = ScriptedEngine(lambda session, prompt: TOKENIZER.encode(next(script)))
    agent = FunctionAgent(run=f"{FOLDER / file}:run", reward="agent", **settings)
    host = make_host(agent, SCAFFOLD, TOKENIZER)
    tasks = [*made.tasks("train"), *made.tasks("heldout")][:1]
    return group_of(host, engine, made, limits, tasks=tasks).trajectories[0]


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
    """A taskset of several turns, with tools that have a state; its environment's options."""
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
    return {"env": {"taskset": {"id": "own-shop"}, "agent": agent}}


def test_a_recipe_names_a_runner() -> None:
    recipe = load_recipe(str(FOLDER / "verifiers.toml"), [])
    assert isinstance(recipe.agent, FunctionAgent)
    assert recipe.agent.reward == "agent"
    assert recipe.environment.name == recipe.agent.run.replace(":run", ":Tasks")


REPLIES = (
    *("<shop_price> tea</shop_price>", "<answer> It is 3.</answer>"),
    *("<shop_price> rice</shop_price>", "<answer> 7 in all.</answer>"),
)


@pytest.mark.long
def test_a_taskset_of_verifiers_with_turns_tools_and_a_judge(shop: Mapping[str, Any]) -> None:
    """Their user speaks twice, their server has the tool, their judge asks a model of its own."""
    with serving(lambda body, number: "yes") as judge:
        judging = {"id": "reference", "base_url": judge.url, "model": "judge", "weight": 0.5}
        taskset = {**shop["env"]["taskset"], "task": {"judges": [judging]}}
        played = play("verifiers_tasks.py", {"env": {**shop["env"], "taskset": taskset}}, REPLIES)
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
        taskset = {**shop["env"]["taskset"], "task": {"judges": [judging]}}
        played = play("verifiers_tasks.py", {"env": {**shop["env"], "taskset": taskset}}, REPLIES)
    assert (played.outcome, played.verdict) == (Outcome.GRADER_ERROR, None)


@pytest.mark.slow
def test_a_budget_ends_a_rollout_of_verifiers(shop: Mapping[str, Any]) -> None:
    limits = LIMITS.model_copy(update={"max_turns": 3})
    played = play("verifiers_tasks.py", shop, REPLIES, limits)
    assert (played.outcome, played.reward) == (Outcome.TRUNCATED_TURNS, 0.0)


@pytest.mark.slow
def test_a_seat_of_verifiers_asks_the_role_that_is_its_model(shop: Mapping[str, Any]) -> None:
    """The user is a model of its own, and is not trained."""
    seat = shop["env"]["agent"]
    with serving(lambda body, number: ["Tea, please.", "###DONE###"][number - 1]) as user:
        env = {"id": "user-sim", "taskset": shop["env"]["taskset"], "assistant": seat}
        roles = {"policy": {}, "user": {"policy": {"kind": "endpoint", "url": user.url}}}
        roles["user"]["policy"]["name"] = "someone"
        options = {"env": {**env, "user": {**seat, "model": "user"}}}
        played = play("verifiers_tasks.py", options, REPLIES, roles=roles)
    assert played.outcome is Outcome.FAILURE, played.problem
    assert (len(user.asked), len(played.turns), played.reward) == (2, 2, 0.0)
    assert played.verdict.parts == {"looked_up": 0.0}
