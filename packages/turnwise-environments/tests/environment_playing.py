"""Episodes of given actions, and the actions: for the tests of environments."""

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.sandboxes import working
from turnwise.config import RolloutConfig
from turnwise.engines.scripted import ScriptedEngine
from turnwise.environments.base import Environment
from turnwise.environments.registry import make_environment
from turnwise.rollout.priority_semaphore import PrioritySemaphore
from turnwise.rollout.runner import RolloutRunner
from turnwise.scaffolds.base import Scaffold
from turnwise.types import Action, Step, Task, ToolCall, Trajectory, Verdict
from turnwise_environments.measurement import Play, played_all
from turnwise_environments.proofs.tasks import Theorem
from turnwise_environments.rewards.proofs import parse


def calling(name: str, /, **arguments: Any) -> Action:
    """An action that calls one tool."""
    return Action("", calls=(ToolCall(name, arguments),))


def answered(text: str) -> Action:
    """An action that answers."""
    return Action("", answer=text)


def played(environment: Environment, task: Task, *actions: Action) -> Play:
    """The episode."""
    (play,) = played_all(environment, [task], [actions])
    return play


def rolled(
    environment: Environment,
    scaffold: Scaffold,
    policy: Callable[[str, list[int]], Sequence[int]],
    tasks: Sequence[Task],
    **limits: Any,
) -> list[Trajectory]:
    """An episode of each task in the loop that trains; the policy is a function of session and
    prompt."""
    engine, seats = ScriptedEngine(policy), PrioritySemaphore(1)
    runner = RolloutRunner(environment, scaffold, engine, RolloutConfig(**limits), seats)
    groups = asyncio.run(runner.collect(tasks, 1, 0, "test"))
    return [group.trajectories[0] for group in groups]


def judged(environment: Environment, task: Task, *actions: Action) -> Verdict:
    """What the verifier says of the episode."""
    return verdict_of(played(environment, task, *actions))


def verdict_of(play: Play) -> Verdict:
    """What the verifier said of an episode."""
    assert play.trajectory.verdict is not None
    return play.trajectory.verdict


def steps_of(play: Play) -> list[Step]:
    """The steps of an episode, one for each turn."""
    return [turn.step for turn in play.trajectory.turns if turn.step is not None]


def reward(environment: Environment, task: Task, *actions: Action) -> float:
    """What the episode is worth."""
    return judged(environment, task, *actions).reward


def said(step: Step | None) -> str:
    """What the agent is shown after a step."""
    return step.observation.content


def write(path: Path, *records: Any) -> str:
    """Writes a file of records, an array in a .json file, else a line each; gives its path."""
    lines = "".join(f"{json.dumps(record)}\n" for record in records)
    path.write_text(json.dumps(records) if path.suffix == ".json" else lines)
    return str(path)


@cache
def _made(name: str, options: str) -> Environment:
    return make_environment(name, json.loads(options))


def opened(name: str, options: dict[str, Any]) -> Iterator[Any]:
    """A built-in environment while it is used, made once in this process: a prototype that no test
    may change. A skip where its sandbox does not work."""
    environment: Any = _made(name, json.dumps(options))
    sandbox = getattr(environment, "sandbox", None)
    if sandbox is None:
        yield environment
        return
    with working(sandbox):
        yield environment


def prototype(name: str, **options: Any) -> Callable[[], Iterator[Any]]:
    """A fixture: the environment, made once for the tests of a file."""

    @pytest.fixture(scope="module")
    def made() -> Iterator[Any]:
        yield from opened(name, options)

    return made


def module(name: str, text: str) -> Any:
    """A fixture: a file of Python with this text, for the tests of a file."""

    @pytest.fixture(scope="module")
    def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
        path: Path = tmp_path_factory.mktemp("own") / name
        path.write_text(text)
        return path

    return own


def theorem(task: Task) -> Theorem:
    """The theorem of a task of `proofs`."""
    premises = tuple(parse(one) for one in task.secret["premises"])
    steps = int(task.info["steps"])
    return Theorem(premises, parse(task.secret["conclusion"]), task.secret["proof"], steps)
