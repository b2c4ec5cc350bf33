"""Replay: the same tasks, seeds and actions again, in other processes, in another order, at once.

A process that has played nothing before plays all scripts in order, then backwards; another one,
with another hash seed, plays them in order. What differs between the two processes is not
determined by task, seed and actions. What differs only between the two passes of one process, or
between episodes alone and at once, was left behind by other episodes.

`python -m turnwise_trust.audit.replay ARGUMENTS FILE` is such a process.
"""

import asyncio
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from turnwise.environments.registry import make_environment
from turnwise.storage.audits import Finding
from turnwise.types import Task
from turnwise_environments.choosing import all_tasks
from turnwise_environments.measurement import is_restorable, record
from turnwise_trust.audit.calls import EnvironmentRaised, known_oracle, of_environment
from turnwise_trust.audit.plays import Script, compared, difference, played, rate, scripts, seen
from turnwise_trust.audit.subject import OutOfTime, Subject

MODULE = "turnwise_trust.audit.replay"
SECONDS = 40.0
"""Seconds that a process may take."""
HASH_SEEDS = ("1", "2")
RESTORED = 2
"""Tasks whose episodes are restored before each step."""
PASSES = 4
"""Times that each script is played, all processes together."""

DETERMINISM, ISOLATION = "episode determinism", "cross-episode isolation"
Passes = Sequence[Sequence[Sequence[Mapping[str, Any]]]]
"""Sights of each pass, by script and turn (`seen`)."""


def replay(subject: Subject) -> Iterator[Finding]:
    """Compare episodes of the same task, seed and actions: they have to be the same."""
    tasks = compared(subject, 3 * PASSES)
    chosen = _scripts(subject, tasks)
    here = _told(subject, tasks)
    first, second = _elsewhere(subject, tasks)
    differ = _differences(chosen, first["passes"][0], second["passes"][0])
    if not here["tasks"] == first["tasks"] == second["tasks"]:
        differ = ["tasks() gives others, or in another order", *differ]
    yield _finding(
        DETERMINISM,
        differ,
        chosen,
        "two processes with different hash seeds",
        "Derive all randomness from the seed of reset(): no set order, hash(), clock or global "
        "random state.",
    )
    if differ:
        yield Finding(ISOLATION, note="not judged: the episodes are not determined by their seeds")
        return
    at_once = [_plain(seen(one)) for one in played(subject, chosen, at_once=True)]
    differ = [
        *(f"after others: {one}" for one in _differences(chosen, *first["passes"])),
        *(f"at once: {one}" for one in _differences(chosen, first["passes"][0], at_once)),
        *(
            ["an episode that is restored goes on otherwise"]
            if _unrestorable(subject, tasks)
            else []
        ),
    ]
    yield _finding(
        ISOLATION,
        differ,
        chosen,
        "a new process, after all others, and at once",
        "Keep an episode's state in what reset() makes anew: fresh() copies the instance, and "
        "shares its lists, its class and its module.",
    )


def _scripts(subject: Subject, tasks: Sequence[Task]) -> list[Script]:
    """Scripts of each task, with one that does nothing: what others left could do its work."""
    return [*scripts(subject, tasks), *(Script("idle", task, []) for task in tasks)]


def _finding(
    check: str, differ: Sequence[str], chosen: Sequence[Script], how: str, remedy: str
) -> Finding:
    count = len(chosen)
    found = min(len(differ), count)
    note = f"{count} episodes of the same task, seed and actions in {how}"
    said = f"{note}: {differ[0]}" if differ else f"{note} show and earn the same"
    return Finding(
        check, **rate(found, count), bound=0.0, passed=not differ, note=said, remedy=remedy
    )


def _differences(
    chosen: Sequence[Script],
    one: Sequence[Sequence[Mapping[str, Any]]],
    other: Sequence[Sequence[Mapping[str, Any]]],
) -> list[str]:
    """A sentence for each script whose episodes differ."""
    return [
        f"task {script.task.id}, {script.kind} actions, {said}"
        for script, left, right in zip(chosen, one, other, strict=False)
        if (said := difference(left, right))
    ]


def _unrestorable(subject: Subject, tasks: Sequence[Task]) -> bool:
    """Whether snapshots lose something; they are asked of episodes only that all get a verdict."""
    if any(one.verdict is None for one in [*subject.of_oracle, *subject.of_random]):
        return False
    with of_environment("snapshot() or restore()"):
        return asyncio.run(is_restorable(subject.environment, tasks[:RESTORED])) is False


def _elsewhere(subject: Subject, tasks: Sequence[Task]) -> list[Mapping[str, Any]]:
    """Have two other processes play, side by side. Raises EnvironmentRaised where one fails,
    OutOfTime where it takes too long."""
    arguments = [subject.name, dict(subject.options), [task.id for task in tasks], subject.seed]
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{hash_seed}.json" for hash_seed in HASH_SEEDS]
        begun = [_begun(json.dumps(arguments), file) for file in files]
        try:
            for process in begun:
                subject.beat()
                _await(process, min(SECONDS, subject.left))
        finally:
            for process in begun:
                process.kill()
                process.communicate()
        return [json.loads(file.read_text()) for file in files]


def _begun(arguments: str, file: Path) -> subprocess.Popen[str]:
    """A process that plays and writes what it saw; the file's name is its hash seed."""
    return subprocess.Popen(
        [sys.executable, "-m", MODULE, arguments, str(file)],
        env={**os.environ, "PYTHONHASHSEED": file.stem, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def _await(process: subprocess.Popen[str], seconds: float) -> None:
    try:
        _, said = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise OutOfTime from None
    if process.returncode:
        last = (said.strip().splitlines() or ["nothing was said"])[-1]
        raise EnvironmentRaised(f"another process cannot play: {last}")


def _told(subject: Subject, tasks: Sequence[Task], passes: Passes = ()) -> Mapping[str, Any]:
    """The record of a process: a digest of all tasks, and what was seen."""
    rows = [
        [task.id, task.prompt, dict(task.data), dict(task.secret)]
        for task in all_tasks(subject.environment)
    ]
    digest = hashlib.sha256(record(rows).encode()).hexdigest()
    told: Mapping[str, Any] = _plain({"tasks": digest, "passes": passes})
    return told


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=str))


def _main(arguments: str, file: str) -> None:
    name, options, ids, seed = json.loads(arguments)
    environment = make_environment(name, options)
    by_id = {task.id: task for task in all_tasks(environment)}
    tasks = [by_id[one] for one in ids if one in by_id]
    known, problem = known_oracle(environment, tasks)
    subject = Subject(name, options, environment, tasks, seed, known, problem)
    chosen = _scripts(subject, tasks)
    forward = [seen(one) for one in played(subject, chosen)]
    backward = [seen(one) for one in played(subject, chosen[::-1])][::-1]
    Path(file).write_text(json.dumps(_told(subject, tasks, [forward, backward])))


if __name__ == "__main__":
    _main(*sys.argv[1:])
