"""The planner and the worker of examples/planner_and_worker.py: each has credit of its own."""

from pathlib import Path

import pytest

from gateway_tests.playing import group_of
from tests.fakes import byte_tokenizer
from turnwise.config import RolloutConfig, load_recipe
from turnwise.engines.scripted import ScriptedEngine
from turnwise.environments.registry import make_environment
from turnwise.scaffolds.tags import TagsScaffold
from turnwise.types import Action, Group, Outcome, Task, ToolCall
from turnwise_gateway.agent_episode import make_host
from turnwise_gateway.role_parts import by_role

pytest.importorskip("uvicorn")
ROOT = Path(__file__).parents[4]
TOKENIZER = byte_tokenizer()
LIMITS = RolloutConfig(max_turns=12, max_turn_tokens=200, max_tokens=2000)
RECIPE = ROOT / "examples/planner_and_worker.toml"


def played(kind: str, town: str = "") -> tuple[Task, Group]:
    """An episode in which both do the right thing, but that the worker says `town` if given."""
    environment = make_environment(f"{ROOT}/examples/planner_and_worker.py:Team", {})
    scaffold = TagsScaffold(TOKENIZER, environment.tools(), instructions="")
    task = next(one for one in environment.tasks("train") if one.data["kind"] == kind)
    name, answer = task.secret["name"], task.secret["answer"]
    friend = environment.truth(f"friend of {name}")  # type: ignore[attr-defined]

    def worker(about: str, found: str) -> list[Action]:
        return [Action("", calls=(ToolCall("search", {"name": about}),)), Action("", answer=found)]

    def asks(question: str) -> Action:
        return Action("", calls=(ToolCall("ask", {"question": question}),))

    script = worker(name, answer)
    if kind == "team":
        script = [asks(f"friend of {name}"), *worker(name, friend)]
        script += [asks(f"town of {friend}"), *worker(friend, town or answer)]
        script.append(Action("", answer=town or answer))
    actions = iter(script)
    engine = ScriptedEngine(lambda session, prompt: scaffold.render(next(actions)))
    config = load_recipe(str(RECIPE)).agent
    assert config is not None
    config = config.model_copy(update={"run": f"{ROOT}/{config.run}"})  # type: ignore[union-attr]
    scaffolding = load_recipe(str(RECIPE)).scaffold
    host = make_host(config, scaffolding, TOKENIZER)
    group = group_of(host, engine, environment, LIMITS, tasks=[task], scaffold=scaffold)
    return task, group


def test_each_role_has_its_part_and_its_reward() -> None:
    _, group = played("team")
    (whole,) = group.trajectories
    assert whole.outcome is Outcome.SUCCESS, whole.problem
    assert len(whole.tokens.spans) == 3
    worker, planner = by_role([group])
    assert [one.id.rpartition("@")[2] for one in (worker, planner)] == ["worker", "planner"]
    assert [len(one.trajectories[0].turns) for one in (worker, planner)] == [4, 3]
    assert [one.trajectories[0].reward for one in (worker, planner)] == [1.0, 1.0]
    assert whole.capture is not None
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
