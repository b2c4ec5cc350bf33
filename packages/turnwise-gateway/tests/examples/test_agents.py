"""The programs of examples/agents do what they are for, with a policy that does the right thing;
planner and worker of examples/planner_and_worker.py have credit each of its own."""

import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from gateway_tests.playing import SCAFFOLD, group_of
from tests.fakes import byte_tokenizer
from turnwise.config import RolloutConfig, ScaffoldConfig, load_recipe
from turnwise.engines.scripted import ScriptedEngine
from turnwise.environments.base import Environment
from turnwise.environments.registry import make_environment
from turnwise.scaffolds.tags import TagsScaffold
from turnwise.tokens import Source
from turnwise.types import Action, Group, Outcome, Task, ToolCall, Trajectory
from turnwise_gateway.agent_episode import make_host
from turnwise_gateway.roles import by_role
from turnwise_gateway.settings import AnyAgentConfig, CommandAgent, FunctionAgent

pytest.importorskip("uvicorn")
ROOT = Path(__file__).parents[4]
FOLDER = ROOT / "examples/agents"
TOKENIZER = byte_tokenizer()
LIMITS = RolloutConfig(max_turns=12, max_turn_tokens=200, max_tokens=20_000, max_tool_calls=8)


def scripted(
    agent: AnyAgentConfig,
    environment: Environment,
    task: Task,
    actions: Iterable[Action],
    scaffolding: ScaffoldConfig = SCAFFOLD,
) -> Group:
    """One episode, in which these are the policy's actions, in the order of its requests."""
    scaffold = TagsScaffold(TOKENIZER, environment.tools(), instructions="")
    script = iter(actions)
    engine = ScriptedEngine(lambda session, prompt: scaffold.render(next(script)))
    host = make_host(agent, scaffolding, TOKENIZER)
    return group_of(host, engine, environment, LIMITS, tasks=[task], scaffold=scaffold)


def play(agent: AnyAgentConfig, environment: str = "People") -> Trajectory:
    """One episode, in which the policy acts as the oracle does."""
    made = make_environment(f"{FOLDER}/people.py:{environment}", {})
    task = made.tasks("train")[0]
    return scripted(agent, made, task, made.oracle(task)).trajectories[0]


def check(played: Trajectory, turns: int = 3) -> None:
    """It succeeded, in one context of exact tokens."""
    assert played.outcome is Outcome.SUCCESS, played.problem
    assert len(played.turns) == turns
    assert played.capture.coverage == 1.0
    assert not played.capture.refused


@pytest.mark.long
@pytest.mark.parametrize(
    ("file", "package"),
    [
        ("chat.py", "json"),
        ("openai_loop.py", "openai"),
        ("langchain_agent.py", "langchain_openai"),
        ("langgraph_agent.py", "langgraph"),
        ("pydantic_ai_agent.py", "pydantic_ai"),
        ("anthropic_stream.py", "anthropic"),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_agent_on_a_package_of_others(file: str, package: str) -> None:
    pytest.importorskip(package)
    played = play(FunctionAgent(run=f"{FOLDER / file}:run"))
    check(played)
    assert len(played.tokens.spans) == 1


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_agent_that_rewrites_its_history_has_a_context_for_each_turn() -> None:
    """smolagents sends earlier calls as words, which the policy did not write so."""
    pytest.importorskip("smolagents")
    played = play(FunctionAgent(run=f"{FOLDER}/smolagents_agent.py:run"), "Concluding")
    check(played)
    assert len(played.tokens.spans) == 3
    assert int(played.tokens.mask.sum()) == played.capture.sampled


TYPED = """
from pydantic_ai import ToolOutput


async def run(task, model):
    async with AsyncOpenAI(base_url=model.base_url, api_key=model.api_key) as client:
        chat = OpenAIChatModel(model.name, provider=OpenAIProvider(openai_client=client))
        agent = Agent(chat, output_type=ToolOutput(Answer, name="final_answer"))

        @agent.tool_plain
        def search(name: str) -> str:
            return look_up(task.data["records"], name)

        return (await agent.run(task.prompt)).output["answer"]
"""


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_agent_whose_answer_has_a_type_demands_a_call(tmp_path: Path) -> None:
    pytest.importorskip("pydantic_ai")
    imports = (FOLDER / "pydantic_ai_agent.py").read_text().partition("async def")[0]
    kind = (
        "from typing_extensions import TypedDict\n\nAnswer = TypedDict('Answer', {'answer': str})\n"
    )
    file = tmp_path / "typed.py"
    file.write_text(f"import sys\nsys.path.append({str(FOLDER)!r})\n{imports}{kind}{TYPED}")
    check(play(FunctionAgent(run=f"{file}:run"), "Concluding"))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_two_agents_with_a_hand_off_have_a_context_each() -> None:
    pytest.importorskip("agents")
    played = play(FunctionAgent(run=f"{FOLDER}/handoff.py:run"), "Handing")
    check(played, turns=4)
    assert len(played.tokens.spans) == 2
    assert (played.tokens.source == Source.INHERITED).any()


@pytest.mark.long
@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node")
def test_a_program_in_javascript() -> None:
    check(play(CommandAgent(command=("node", str(FOLDER / "fetch.mjs")))))


@pytest.mark.parametrize(
    ("file", "begin"), [("chat.py", "import json"), ("langgraph_agent.py", "async def run")]
)
def test_the_page_shows_this_code(file: str, begin: str) -> None:
    _, first, rest = (FOLDER / file).read_text().partition(begin)
    assert f"```python\n{first}{rest}```" in (ROOT / "docs/start/own_agent.md").read_text()


def test_a_sibling_is_found_without_leaving_its_folder_first() -> None:
    play(FunctionAgent(run=f"{FOLDER}/chat.py:run"))
    assert str(FOLDER) in sys.path[1:]


RECIPE = ROOT / "examples/planner_and_worker.toml"


def played(kind: str, town: str = "") -> tuple[Task, Group]:
    """An episode in which both do the right thing, but that the worker says `town` if given."""
    environment = make_environment(f"{ROOT}/examples/planner_and_worker.py:Team", {})
    task = next(one for one in environment.tasks("train") if one.data["kind"] == kind)
    name, answer = task.secret["name"], task.secret["answer"]
    friend = environment.truth(f"friend of {name}")

    def worker(about: str, found: str) -> list[Action]:
        return [Action("", calls=(ToolCall("search", {"name": about}),)), Action("", answer=found)]

    def asks(question: str) -> Action:
        return Action("", calls=(ToolCall("ask", {"question": question}),))

    script = worker(name, answer)
    if kind == "team":
        script = [asks(f"friend of {name}"), *worker(name, friend)]
        script += [asks(f"town of {friend}"), *worker(friend, town or answer)]
        script.append(Action("", answer=town or answer))
    recipe = load_recipe(str(RECIPE))
    agent = recipe.agent.model_copy(update={"run": f"{ROOT}/{recipe.agent.run}"})
    return task, scripted(agent, environment, task, script, recipe.scaffold)


def test_each_role_has_its_part_and_its_reward() -> None:
    _, group = played("team")
    (whole,) = group.trajectories
    assert whole.outcome is Outcome.SUCCESS, whole.problem
    assert len(whole.tokens.spans) == 3
    worker, planner = by_role([group])
    assert [one.id.rpartition("@")[2] for one in (worker, planner)] == ["worker", "planner"]
    assert [len(one.trajectories[0].turns) for one in (worker, planner)] == [4, 3]
    assert [one.trajectories[0].reward for one in (worker, planner)] == [1.0, 1.0]
    assert whole.capture.coverage == 1.0


def test_a_worker_that_is_wrong_once_has_half_of_its_reward() -> None:
    _, group = played("team", town="Nowhere")
    worker, planner = by_role([group])
    assert (worker.trajectories[0].reward, planner.trajectories[0].reward) == (0.5, 0.0)


@pytest.mark.parametrize("kind", ["friend", "town"])
def test_a_worker_s_task_has_no_planner(kind: str) -> None:
    task, group = played(kind)
    (worker,) = by_role([group])
    assert worker.id.endswith("@worker")
    assert worker.trajectories[0].reward == 1.0
    assert worker.trajectories[0].answer == task.secret["answer"]
