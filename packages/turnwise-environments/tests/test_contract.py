"""The contract, of every built-in environment.

Those that need a server, or files that are long to write, keep it in tests of their own.
"""

import json
import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from desk_library import written
from environment_contract import (
    another_process_has_the_same,
    keeps_its_word,
    scores_are_as_declared,
)
from environment_playing import opened, theorem
from turnwise.environments.registry import ENVIRONMENTS
from turnwise.environments.tasksets import SPLITS
from turnwise.types import Task
from turnwise_environments.choosing import all_tasks
from turnwise_environments.multi_tool.tasks import towns

SANDBOXED = 3
"""Tasks with which an environment is made anew whose verdicts are a sandbox's."""


class Case(NamedTuple):
    """How much of an environment is played."""

    options: dict[str, Any] = {}
    few: dict[str, Any] = {}
    """Options for another process, in their place: it makes and plays all of it again."""
    most: int = 100
    compared: int = 16
    counted: bool = False
    """Whether the declared success of random actions is that of all its tasks."""
    hidden: tuple[str, ...] = ()
    """Entries of a task's secret that its prompt has nothing of."""
    package: str = ""
    """The optional package that it needs."""


CASES = {  # by name, and a word for its options where it is there twice
    "attempts": Case({"name": "doors", "options": {"rooms": 2}}),
    "attempts at sums": Case({"name": "mathematics", "memory": "trajectory"}, hidden=("answer",)),
    "bandit": Case(),
    "bandit again": Case({"pulls": 3}),
    "code": Case(few={"tasks": {"count": SANDBOXED}}, most=24, compared=4, hidden=("solution",)),
    "deep_research": Case(compared=8, counted=True, hidden=("answers", "open")),
    "desk": Case(few={"count": 16}, counted=True),
    "desk short": Case({"short": True, "count": 16, "wishes": ["change_street", "take_back"]}),
    "doors": Case(),
    "frozen_lake": Case({"maps": 60}, package="gymnasium"),
    "frozen_lake slippery": Case({"maps": 40, "slippery": True}, package="gymnasium"),
    "function_calling": Case(few={"count": 100}, hidden=("calls", "answers")),
    "gymnasium": Case({"id": "FrozenLake-v1", "success": 1}, package="gymnasium"),
    "joint": Case(
        {
            "environments": {
                "short": {"name": "mathematics", "options": {"tasks": {"max_steps": 1}}},
                "long": {"name": "mathematics", "options": {"tasks": {"max_steps": 4}}},
            }
        }
    ),
    "long_walk": Case({"length": 20, "herald_every": 6, "count": 40}),
    "mathematics": Case(few={"tasks": {"count": 100}}, hidden=("answer", "solution")),
    "mathematics in writing": Case(
        {"tasks": {"digits": 2, "terms": 3, "count": 40}, "interpreter": "none"}, hidden=("answer",)
    ),
    "multi_tool": Case(few={"count": 20}, counted=True, hidden=("answer",)),
    "own_desk": Case(),
    "proofs": Case(few={"tasks": {"count": 60}}, counted=True, hidden=("proof",)),
    "reasoning_gym": Case(
        {"datasets": "word_ladder", "count": 4},
        package="reasoning_gym",
        hidden=("answer", "settings"),
    ),
    "repair": Case(
        {"tasks": {"count": 40}, "seconds": 120.0},
        few={"tasks": {"count": SANDBOXED}},
        most=24,
        compared=4,
        hidden=("solution",),
    ),
    "search": Case(hidden=("answers", "wanted")),
    "shell": Case(
        few={"tasks": {"count": SANDBOXED}},
        most=24,
        compared=4,
        hidden=("state", "answer", "commands"),
    ),
    "shop": Case(few={"count": 20}, counted=True, hidden=("product",)),
    "shop_web": Case(few={"count": 20}, hidden=("product",)),
    "sokoban": Case({"tasks": {"boards": 20}}),
    "sql": Case(
        {"tasks": {"grammar": "full"}},
        few={"tasks": {"count": 40}},
        counted=True,
        hidden=("statement", "answer"),
    ),
    "sql small": Case(
        {"tasks": {"grammar": "small"}},
        few={"tasks": {"grammar": "small", "count": 40}},
        counted=True,
        hidden=("statement", "answer"),
    ),
    "textworld": Case(
        {"tasks": {"count": 3}, "max_steps": 6}, package="textworld", hidden=("walkthrough",)
    ),
    "village": Case({"count": 16}, most=16, compared=4),
    "web_forms": Case(few={"count": 26}, counted=True),
}
ELSEWHERE = {
    "harbor": "adapters/test_harbor.py",
    "inspect": "adapters/test_inspect_ai.py",
    "openapi": "../../turnwise-synthesis/tests/test_openapi.py",
    "openenv": "adapters/test_openenv.py",
    "recorded_calls": "function_calling/test_recorded.py",
    "verifiers": "adapters/test_verifiers.py",
}


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return written(tmp_path_factory.mktemp("desk"))


def has_package(case: Case) -> bool:
    return not case.package or find_spec(case.package) is not None


LONG = ("code", "desk", "reasoning_gym", "repair", "shell", "sql", "textworld")
"""Those that take long: their programs run apart, or a smaller relative is played here too."""


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=pytest.mark.slow) if one in LONG else one for one in CASES]
)
def test_the_contract(name: str, desk: dict[str, Any]) -> None:
    case = CASES[name]
    if not has_package(case):
        pytest.skip(f"{case.package} is not installed")
    for environment in opened(name.split()[0], desk if name == "own_desk" else case.options):
        keeps_its_word(environment, most=case.most, compared=case.compared, hidden=case.hidden)


APART: dict[str, Callable[[Task], list[str]]] = {
    "code": lambda task: [json.dumps([expected for _, expected, _ in task.secret["cases"]])],
    "deep_research": lambda task: [task.secret["answers"][0].lower()],
    "desk": lambda task: [task.prompt + str(task.data["script"])],
    "function_calling": lambda task: [" / ".join(task.data["requests"])],
    "mathematics": lambda task: [str(re.findall(r"\d+|\b[a-z]+", task.prompt))],  # without names
    "multi_tool": lambda task: [task.prompt, *({*re.findall(r"\w+", task.prompt)} & TOWNS)],
    "proofs": lambda task: [theorem(task).shape],
    "shell": lambda task: [task.prompt],
    "shop": lambda task: [task.prompt, task.secret["product"]],
    "sql": lambda task: [task.prompt.partition(") ")[2]],
    "web_forms": lambda task: [task.prompt, *task.data.get("labels", [])],
}
"""What no task of one split has in common with any of the other."""
TOWNS = {town.name for split in towns().values() for town in split}


@pytest.mark.long
@pytest.mark.parametrize("name", APART)
def test_what_is_asked_in_one_split_is_not_asked_in_the_other(name: str) -> None:
    for environment in opened(name, {}):
        tasks = [environment.tasks(split) for split in SPLITS]
        train, heldout = ({part for one in found for part in APART[name](one)} for found in tasks)
        assert not train & heldout
        counts = set(map(len, tasks))
        assert counts == {1000} or (name == "deep_research" and min(counts) >= 400)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.counted])
def test_the_declared_scores_are_those_of_all_tasks(name: str) -> None:
    for environment in opened(name.split()[0], CASES[name].options):
        scores_are_as_declared(environment, all_tasks(environment), exactly=True)


@pytest.mark.slow
def test_another_process_has_the_same_tasks_and_observations(desk: dict[str, Any]) -> None:
    few = [
        (name.split()[0], desk if name == "own_desk" else case.few or case.options)
        for name, case in CASES.items()
        if has_package(case)
    ]
    another_process_has_the_same(*few)


def test_no_environment_is_left_out() -> None:
    assert {name.split()[0] for name in CASES} | ELSEWHERE.keys() == set(ENVIRONMENTS.names())
    for path in ELSEWHERE.values():
        assert "keeps_its_word(" in (Path(__file__).parent / path).read_text(), path
