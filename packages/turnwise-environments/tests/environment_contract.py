"""What every environment keeps, whatever it is about.

Not here: whether its verifier is right (each environment's own tests), and defects that
measuring has to find (`test_measurement.py`).
"""

import asyncio
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from environment_playing import steps_of, verdict_of
from turnwise.environments.base import Environment
from turnwise.environments.registry import make_environment
from turnwise.rewards.measuring import SLACK
from turnwise.rewards.parts import Scope
from turnwise.types import Action, Task, ToolCall
from turnwise_environments.choosing import COMPARED, all_tasks, spread
from turnwise_environments.measurement import (
    MODULE,
    NOTHING,
    Play,
    fingerprint,
    is_concurrent,
    is_restorable,
    oracles,
    played_all,
    random_script,
    success,
)

EXACT = 5e-5
"""What a declared score is rounded to, at most."""
TELLING = 6
"""Characters from which on a text is no other's by chance."""


def keeps_its_word(
    environment: Environment, *, most: int, compared: int = COMPARED, hidden: Sequence[str] = ()
) -> None:
    """All but determinism, which is another process's; `most` tasks are played for the scores,
    `compared` restored and played at once. `hidden`: entries of a task's secret that its prompt
    has nothing of."""
    tasks = all_tasks(environment)
    few = spread(tasks, compared)
    before = _content(few)
    splits_are_disjoint(environment)
    scores_are_as_declared(environment, spread(tasks, most))
    secrets_are_kept(environment, spread(tasks, most), hidden)
    assert asyncio.run(is_restorable(environment, few)) is (environment.restorable or None)
    assert asyncio.run(is_concurrent(environment, few))
    asyncio.run(is_closed_twice(environment, few[0]))
    whatever_is_called_is_told(environment, few[0])
    assert _content(few) == before, "an episode changes no task"


def splits_are_disjoint(environment: Environment) -> None:
    """By identity, and by what tasks show and hold where luck does not make the difference."""
    train, heldout = environment.tasks("train"), environment.tasks("heldout")
    assert train == environment.tasks("train")
    if not environment.same_splits:
        assert not {task.id for task in train} & {task.id for task in heldout}
        assert not set(_content(train)) & set(_content(heldout))


def _content(tasks: Sequence[Task]) -> list[str]:
    """What each shows and holds."""
    return [json.dumps([one.prompt, dict(one.data)], sort_keys=True, default=str) for one in tasks]


def scores_are_as_declared(
    environment: Environment, tasks: Sequence[Task], exactly: bool = False
) -> None:
    """The oracle always succeeds, doing nothing as often as declared, and so do random actions:
    within four standard errors, or exactly."""
    scores = environment.spec.reference_scores
    if list(oracles(environment, tasks[:1])):
        plays = played_all(environment, tasks, [environment.oracle(task) for task in tasks])
        assert success(plays) == scores.get("oracle", 1.0) == 1.0
        parts_are_as_declared(environment, plays)
    idle = played_all(environment, tasks, [[NOTHING] * 10] * len(tasks))
    assert success(idle) == scores.get("noop", 0.0)
    parts_are_as_declared(environment, idle)
    plays = played_all(environment, tasks, [random_script(environment, task) for task in tasks])
    parts_are_as_declared(environment, plays)
    if "random" in scores:
        chance = scores["random"]
        error = 4 * math.sqrt(chance * (1 - chance) / len(tasks)) + 1 / len(tasks)
        assert success(plays) == pytest.approx(chance, abs=EXACT if exactly else error)


def parts_are_as_declared(environment: Environment, plays: Sequence[Play]) -> None:
    """Every verdict has the declared parts and no others, plain numbers within their ranges, one
    for each turn where they are of turns; their sums over turns are within theirs."""
    declared = environment.spec.parts
    for play in plays:
        verdict, count = verdict_of(play), len(play.trajectory.turns)
        found: dict[str, Any] = {**verdict.parts, **verdict.turn_parts}
        assert found.keys() == declared.keys(), play.trajectory.task.id
        assert len(found) == len(verdict.parts) + len(verdict.turn_parts), "one name, one part"
        for name, part in declared.items():
            of_turns = part.scope is Scope.TURNS
            assert (name in verdict.turn_parts) is of_turns
            numbers = found[name] if of_turns else [found[name]]
            assert len(numbers) == (count if of_turns else 1)
            for number in numbers:
                assert type(number) is float
                assert math.isfinite(number)
                assert part.low <= number <= part.high, (name, number)
            low, high = part.bounds(count)
            assert low - SLACK <= sum(numbers) <= high + SLACK, (name, numbers)


def secrets_are_kept(
    environment: Environment, tasks: Sequence[Task], hidden: Sequence[str]
) -> None:
    """No text in these entries of a secret is in the prompt, or in what is shown first."""
    plays = played_all(environment, tasks, [[NOTHING]] * len(tasks))
    for task, play in zip(tasks, plays, strict=True):
        assert not task.public().secret
        shown = f"{task.prompt}\n{play.seen[0]}"
        for text in _texts([task.secret[name] for name in hidden]):
            assert len(text) < TELLING or text not in shown, (task.id, text)


def _texts(value: Any) -> Iterator[str]:
    """All that is at the ends of its lists and tables."""
    if isinstance(value, Mapping):
        yield from _texts(list(value.values()))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _texts(part)
    else:
        yield str(value)


HOSTILE: tuple[Any, ...] = (
    *("", " ", "\0", "\ud800", "x" * 5000, "[" * 5000, "../../etc/passwd", "'; DROP TABLE a; --"),
    *(-1, 10**30, 1e308, True, None, [], ["x"], {"x": 1}),
)
"""Arguments that nothing asked for."""


def whatever_is_called_is_told(environment: Environment, task: Task) -> None:
    """No call, whatever its arguments, raises: a tool that is not there, arguments that are missing
    or too many, and values of any type are the agent's mistakes, or harmless; all is judged."""
    tools = {one.name: [*one.schema["parameters"]["properties"]] for one in environment.tools()}
    wrong = [ToolCall("no_such_tool", {}), ToolCall("__init__", {}), ToolCall("verify", {})]
    wrong += [
        ToolCall(name, {**dict.fromkeys(names, "x"), "surplus": 1}) for name, names in tools.items()
    ]
    wrong += [
        ToolCall(one.name, {})
        for one in environment.tools()
        if len(tools[one.name]) == 1 and one.schema["parameters"].get("required")
    ]
    calls = [
        ToolCall(name, dict.fromkeys(names, value))
        for name, names in tools.items()
        for value in HOSTILE
        if names
    ]
    scripts = [[Action("", calls=(call,)), NOTHING] for call in (*wrong, *calls)]
    plays = played_all(environment, [task] * len(scripts), scripts)
    for call, play in zip(wrong, plays, strict=False):
        (result, *_) = steps_of(play)[0].results
        assert not result.ok, call
        assert result.content.startswith("Error: "), call
    assert success(plays) == environment.spec.reference_scores.get("noop", 0.0)


async def is_closed_twice(environment: Environment, task: Task) -> None:
    """An episode is closed again without harm, begun or not, and another one can be played."""
    for begun in (False, True):
        episode = environment.fresh()
        if begun:
            await episode.reset(task.public(), 0)
        await episode.close()
        await episode.close()
    again = environment.fresh()
    await again.reset(task.public(), 0)
    await again.close()


def another_process_has_the_same(*cases: tuple[str, Mapping[str, Any]]) -> None:
    """Tasks, observations and rewards of environments, each a name and its options, with other
    hash seeds."""
    code = (
        f"import json, sys; from {MODULE} import fingerprint, make_environment;"
        "print(json.dumps([fingerprint(make_environment(*one)) for one in json.load(sys.stdin)]))"
    )
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": seed},
        input=json.dumps(cases),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    for one, there in zip(cases, found, strict=True):
        assert fingerprint(make_environment(*one)) == there, one
