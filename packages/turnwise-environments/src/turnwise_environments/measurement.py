"""Measurements of an environment without a model: reference scores, determinism, snapshots, speed.

`python -m turnwise_environments.measurement NAME OPTIONS` prints the fingerprint of an environment:
what `deterministic` compares with that of another process.
"""

import asyncio
import hashlib
import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from turnwise.environments.base import Environment
from turnwise.environments.registry import make_environment
from turnwise.errors import (
    DataError,
    DeadlineError,
    InfrastructureError,
    NotSupportedError,
    UserError,
)
from turnwise.rewards.verdicts import VerdictError, checked_verdict
from turnwise.seeds import derive
from turnwise.tokens import Source
from turnwise.types import Action, Observation, Outcome, Step, Task, Trajectory, Turn
from turnwise_environments.choosing import COMPARED, all_tasks, spread

MOST_STEPS = 1000
PLAYED = ("oracle", "noop", "random")
MODULE = "turnwise_environments.measurement"
NOTHING = Action("", answer="")


@dataclass(frozen=True)
class Measurement:
    """One row of the table. None marks what cannot be measured: without an oracle, snapshots, or
    the environment itself."""

    name: str
    tasks: int | None = None
    """Tasks of both splits together."""
    oracle: float | None = None
    """Success, 0 to 1, of the oracle, of an idle agent (`noop`) and of a random one."""
    noop: float | None = None
    random: float | None = None
    deterministic: bool | None = None
    """Another process with another hash seed has the same tasks, observations and rewards."""
    snapshot: bool | None = None
    """An episode that is restored before any step goes on as it did, bit for bit."""
    concurrent: bool | None = None
    """COMPARED episodes at once see what they see one after the other."""
    steps_per_second: float | None = None
    """Speed of the oracle's episodes, played one after the other, resets and verdicts included; of
    random ones without an oracle."""
    reference_scores: Mapping[str, float] = field(default_factory=dict)
    """Success of other trivial policies, as the environment states it."""
    weaknesses: tuple[str, ...] = ()
    """Ways to deceive its verifier that are known."""
    warnings: tuple[str, ...] = ()
    """Oddities of its data, such as records that are left out."""
    note: str = ""
    """Why it was not measured."""
    played: int = 0
    """Tasks that were played, once by each script: what shares of success are of."""
    oracle_played: int = 0
    """Tasks among them that the oracle can do, of which its share is."""


@dataclass
class Play:
    """An episode that was played by a script."""

    trajectory: Trajectory
    seen: list[Any] = field(default_factory=list)
    """All that the agent was shown and rewarded with, as plain data."""


def measure(name: str, options: Mapping[str, Any], most_tasks: int) -> Measurement:
    """Play at most `most_tasks` tasks of an environment with three scripts, and some again. Raises
    ConfigError or DataError for an environment that cannot be made with these options."""
    environment = make_environment(name, options)
    tasks = all_tasks(environment)
    chosen = spread(tasks, most_tasks)
    compared = spread(chosen, COMPARED)
    known = list(oracles(environment, chosen))
    scripts = {
        "random": [(task, random_script(environment, task)) for task in chosen],
        "oracle": known,
    }
    plays, speeds = {}, {}
    for kind, pairs in scripts.items():
        start = time.monotonic()
        plays[kind] = played_all(environment, [one for one, _ in pairs], [one for _, one in pairs])
        steps = sum(len(play.trajectory.turns) for play in plays[kind])
        speeds[kind] = steps / (time.monotonic() - start)
    partly = known and len(known) < len(chosen)
    few = [f"the oracle is of the {len(known)} tasks that it can do"] if partly else []
    idle = played_all(environment, chosen, [[NOTHING] * MOST_STEPS] * len(chosen))
    return Measurement(
        name=name,
        tasks=len(tasks),
        oracle=success(plays["oracle"]) if known else None,
        noop=success(idle),
        random=success(plays["random"]),
        deterministic=is_deterministic(name, options, environment),
        snapshot=asyncio.run(is_restorable(environment, compared)),
        concurrent=asyncio.run(is_concurrent(environment, compared)),
        steps_per_second=speeds["oracle" if known else "random"],
        reference_scores={
            name: share
            for name, share in environment.spec.reference_scores.items()
            if name not in PLAYED
        },
        weaknesses=tuple(environment.weaknesses),
        warnings=(*environment.task_set.warnings, *environment.warnings, *few),
        played=len(chosen),
        oracle_played=len(known),
    )


def measure_all(names: Sequence[str], most_tasks: int) -> Iterator[Measurement]:
    """A row for each name, one by one; one that cannot be made or run here has a note that says
    why."""
    for name in names:
        try:
            yield measure(name, {}, most_tasks)
        except (UserError, DeadlineError, InfrastructureError) as error:
            yield Measurement(name, note=str(error))


def oracles(
    environment: Environment, tasks: Sequence[Task]
) -> Iterator[tuple[Task, Sequence[Action]]]:
    """The tasks of which the environment knows what a perfect agent does, each with that."""
    for task in tasks:
        with suppress(NotSupportedError):
            yield task, environment.oracle(task)


def random_script(environment: Environment, task: Task) -> Sequence[Action]:
    """The environment's random actions for a task, the same each time."""
    stream = random.Random(derive("random policy", task.id))
    return environment.random_actions(task.public(), stream)


def success(plays: Sequence[Play]) -> float:
    """Share of the episodes that succeeded; 0 of none."""
    verdicts = [play.trajectory.verdict for play in plays]
    return sum(verdict is not None and verdict.success for verdict in verdicts) / max(len(plays), 1)


def played_all(
    environment: Environment, tasks: Sequence[Task], scripts: Sequence[Sequence[Action]]
) -> list[Play]:
    """One episode after the other; none without scripts."""

    async def work() -> list[Play]:
        pairs = zip(tasks, scripts, strict=False)
        return [await played(environment, task, script) for task, script in pairs]

    return asyncio.run(work())


async def played(prototype: Environment, task: Task, script: Sequence[Action]) -> Play:
    """Play a script to its end or the episode's, and have it judged."""
    environment = prototype.fresh()
    play = Play(Trajectory(task, "measured", 0, derive("measured", task.id)))
    try:
        prompt = await environment.reset(task.public(), play.trajectory.seed)
        _check_kind(prompt, Observation, environment, "reset")
        play.trajectory = replace(play.trajectory, first=prompt)
        play.seen.append(prompt.content)
        for action in script[:MOST_STEPS]:
            step = await environment.step(action)
            _check_kind(step, Step, environment, "step")
            _record(play, action, step)
            if step.done or step.abort:
                break
        await _judge(environment, play)
    finally:
        await environment.close()
    return play


def _check_kind(found: object, kind: type, environment: Environment, method: str) -> None:
    if not isinstance(found, kind):
        own = f"{type(environment).__name__}.{method}"
        raise DataError(f"{own} returned {found!r:.40}: return {kind.__name__}(…)")


def fingerprint(environment: Environment) -> str:
    """A hash of all tasks, and of what COMPARED of them show and reward."""
    tasks = all_tasks(environment)
    digest = hashlib.sha256()
    for task in tasks:
        digest.update(record([task.id, task.prompt, task.secret]).encode())
    for task in spread(tasks, COMPARED):
        scripts = [random_script(environment, task)]
        scripts += [actions for _, actions in oracles(environment, [task])]
        for play in played_all(environment, [task] * len(scripts), scripts):
            digest.update(json.dumps(play.seen).encode())
    return digest.hexdigest()


def record(data: Any) -> str:
    """A text, which is the same for the same data in each process."""
    try:
        return json.dumps(data, default=_as_text)
    except TypeError:  # keys that JSON lacks
        return _as_text(data)


def _as_text(value: Any) -> str:
    """A value that JSON lacks, the same text in each process: sets in order, no addresses."""
    if isinstance(value, Mapping):
        return str([(_as_text(name), _as_text(one)) for name, one in value.items()])
    if isinstance(value, list | tuple):
        return str([*map(_as_text, value)])
    if isinstance(value, set | frozenset):
        return str(sorted(map(_as_text, value)))
    return re.sub(" at 0x[0-9a-f]+", "", str(value))


def is_deterministic(name: str, options: Mapping[str, Any], environment: Environment) -> bool:
    """Whether a process with another hash seed has the same fingerprint."""
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    command = [sys.executable, "-m", MODULE, name, json.dumps(dict(options))]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONHASHSEED": seed},
        stdout=subprocess.PIPE,
        text=True,
    )
    # One that failed there and not here depends on the process; it has said why.
    return not done.returncode and done.stdout.strip() == fingerprint(environment)


async def is_restorable(prototype: Environment, tasks: Sequence[Task]) -> bool | None:
    """Whether an episode that is restored in another instance, before each step, goes on the same;
    None without snapshots."""
    if not prototype.restorable:
        return None
    # Restored into an episode of another task, of which nothing may be left.
    for task, other in zip(tasks, [*tasks[1:], *tasks[:1]], strict=True):
        scripts = [random_script(prototype, task)]
        scripts += [actions for _, actions in oracles(prototype, [task])]
        for script in scripts:
            if not await _goes_on(prototype, task, other, script):
                return False
    return True


async def _goes_on(
    prototype: Environment, task: Task, other: Task, script: Sequence[Action]
) -> bool:
    whole, second = prototype.fresh(), prototype.fresh()
    one, two = (Play(Trajectory(task, "measured", 0, 0)) for _ in range(2))
    try:
        # The second one has another task's scene, nothing of which may stay.
        await whole.reset(task.public(), derive("measured", task.id))
        await second.reset(other.public(), derive("measured", other.id))
        for action in script[:MOST_STEPS]:
            state = whole.snapshot()
            second.restore(state)
            if second.snapshot() != state:
                return False
            step, again = await whole.step(action), await second.step(action)
            _record(one, action, step)
            _record(two, action, again)
            if one.seen != two.seen or whole.snapshot() != second.snapshot():
                return False
            second.restore(state)
            if second.snapshot() != state:
                return False
            if step.done or step.abort:
                break
        second.restore(whole.snapshot())
        await _judge(whole, one)
        await _judge(second, two)
        return one.seen == two.seen
    finally:
        await whole.close()
        await second.close()


async def is_concurrent(prototype: Environment, tasks: Sequence[Task]) -> bool:
    """Whether episodes that are played at once see what each of them sees alone."""
    pairs = list(oracles(prototype, tasks))
    pairs = pairs or [(task, random_script(prototype, task)) for task in tasks]
    alone = [await played(prototype, task, script) for task, script in pairs]
    together = await asyncio.gather(*(played(prototype, task, script) for task, script in pairs))
    return [play.seen for play in alone] == [play.seen for play in together]


def _record(play: Play, action: Action, step: Step) -> None:
    observation = step.observation or Observation("", Source.ENVIRONMENT)
    results = [[result.content, result.ok] for result in step.results]
    turns = (*play.trajectory.turns, Turn(action, step))
    play.trajectory = replace(play.trajectory, turns=turns)
    play.seen.append([observation.content, results, step.done, step.abort, step.reward])


async def _judge(environment: Environment, play: Play) -> None:
    found = await environment.verify(play.trajectory)
    try:
        verdict = checked_verdict(play.trajectory, found)
    except VerdictError as error:
        where = f"{environment.spec.name}, task {play.trajectory.task.id}"
        raise DataError(f"{where}: the verdict is none: {error}") from error
    outcome = Outcome.SUCCESS if verdict.success else Outcome.FAILURE
    play.trajectory = replace(play.trajectory, verdict=verdict, outcome=outcome)
    of_turns = {name: list(numbers) for name, numbers in verdict.turn_parts.items()}
    play.seen.append([verdict.reward, verdict.success, dict(verdict.parts), of_turns])


if __name__ == "__main__":
    answer = os.dup(1)
    os.dup2(2, 1)  # what an environment's own code prints is not the fingerprint
    own = make_environment(sys.argv[1], json.loads(sys.argv[2]))
    os.write(answer, fingerprint(own).encode())
