"""Episodes that are compared: of the same actions, played again, at once, or judged again."""

import asyncio
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from turnwise.environments.base import Environment
from turnwise.evaluation.intervals import wilson
from turnwise.rollout.loop import LATE
from turnwise.rollout.runner import within
from turnwise.seeds import derive
from turnwise.types import Action, Observation, Task, Trajectory, Turn, Verdict
from turnwise_environments.choosing import COMPARED, spread
from turnwise_trust.audit.attempts import LIMITS, Attempt, scripted
from turnwise_trust.audit.subject import Subject

SHOWN = 60
"""Characters of a text that a finding quotes."""
SECONDS = 5.0
"""Seconds that the episodes of one comparison may take together, as far as one can tell before."""

AT_ONCE = 8
"""Episodes, or verdicts, at the same time: a server may have room for no more."""


@dataclass(frozen=True)
class Script:
    """The actions of an episode, whatever it shows. Example: Script("oracle", task, actions)."""

    kind: str
    task: Task
    actions: Sequence[Action]

    def planned(self, environment: Environment, seed: int) -> dict[str, Any]:
        """The arguments of an `Attempt` that plays it."""
        return {
            "planned": Trajectory(self.task, "audit", 0, derive("audit", self.task.id, seed)),
            "prototype": environment,
            "limits": within(LIMITS, environment.budget(self.task)),
            "policy": scripted(self.actions),
        }


@dataclass(kw_only=True)
class Held(Attempt):
    """An episode that is not judged when it ends, and keeps what it holds until `release`: so it
    can be judged several times."""

    async def _grade(self) -> None:
        """Nothing yet."""

    async def _close(self) -> None:
        """Nothing yet."""

    async def judge(self) -> Trajectory:
        """The episode with a verdict; without one where it cannot be graded."""
        ended = self.outcome
        if ended.graded:
            await self._judge()
        judged = self.trajectory
        self.outcome, self.verdict, self.problem = ended, None, ""
        return judged

    async def release(self) -> None:
        await super()._close()


def compared(subject: Subject, episodes: int) -> list[Task]:
    """Tasks for a comparison that plays so many episodes of each: at most COMPARED, fewer where an
    episode is slow, at least one."""
    known = [*subject.of_oracle, *subject.of_random]
    cost = fmean(one.seconds for one in known) * episodes if known else 0.0
    most = COMPARED if cost == 0 else min(COMPARED, int(SECONDS / cost))
    return spread(subject.tasks, max(1, most))


def scripts(subject: Subject, tasks: Sequence[Task]) -> list[Script]:
    """The oracle's actions for each task, where it is known, and random ones."""
    found = []
    for task in tasks:
        if task.id in subject.oracle:
            found.append(Script("oracle", task, subject.oracle[task.id]))
        found.append(Script("random", task, subject.random_actions(task)))
    return found


def played(subject: Subject, chosen: Sequence[Script], at_once: bool = False) -> list[Trajectory]:
    """Play each script, one after the other, or AT_ONCE at once."""
    subject.begin()
    episodes = [Attempt(**one.planned(subject.environment, subject.seed)) for one in chosen]

    async def work() -> list[Trajectory]:
        size = AT_ONCE if at_once else 1
        groups = (episodes[start : start + size] for start in range(0, len(episodes), size))
        return [one for group in groups for one in await asyncio.gather(*(e.run() for e in group))]

    return subject.in_time(subject.run(work()))


def judged(subject: Subject, script: Script, seed: int, times: int) -> list[Trajectory]:
    """One episode, judged so many times."""
    subject.begin()
    episode = Held(**script.planned(subject.environment, seed))

    async def work() -> list[Trajectory]:
        try:
            await episode.run()
            return [await episode.judge() for _ in range(times)]
        finally:
            await episode.release()

    return subject.in_time(subject.run(work()))


def rate(count: int, total: int) -> dict[str, Any]:
    """The figure of a finding that is a share, with its interval; nothing where nothing was
    counted."""
    if not total:
        return {}
    low, high = wilson(count, total)
    return {"figure": count / total, "low": low, "high": high}


def seen(trajectory: Trajectory) -> list[dict[str, Any]]:
    """Plain data of an episode: its first message, each turn, its end, with what it earned."""
    first = trajectory.first
    shown = {"first message": None if first is None else _shown(first)}
    return [shown, *map(_turn, trajectory.turns), _end(trajectory)]


def _turn(turn: Turn) -> dict[str, Any]:
    step = turn.step
    if step is None:
        return {"observation": None}
    return {
        "observation": None if step.observation is None else _shown(step.observation),
        "tool results": [[one.content, one.ok] for one in step.results],
        "end": [step.done, step.abort, step.truncated],
        "reward": step.reward,
    }


def _shown(observation: Observation) -> str:
    """The text, and a hash of the images."""
    images = b"".join(observation.images)
    return observation.content + (hashlib.sha256(images).hexdigest() if images else "")


def _end(trajectory: Trajectory) -> dict[str, Any]:
    return {"outcome": trajectory.outcome.value, **verdict_of(trajectory.verdict)}


def verdict_of(verdict: Verdict | None) -> dict[str, Any]:
    """The numbers of a verdict, as plain data; nothing where there is none."""
    if verdict is None:
        return {}
    parts = {name: list(numbers) for name, numbers in verdict.turn_parts.items()}
    return {
        "reward of the verdict": verdict.reward,
        "success": verdict.success,
        "parts": {**verdict.parts, **parts},
    }


def difference(one: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]]) -> str:
    """The first that differs between what two episodes showed (`seen`); empty where nothing does,
    and where one was cut off by the clock, which may have let the other one go on.

    >>> difference([{"first message": "a"}], [{"first message": "b"}])
    "first message: 'a', then 'b'"
    """
    ends = [shown[-1].get("outcome") for shown in (one, other) if shown]
    return "" if any(end in LATE for end in ends) else next(_differences(one, other), "")


def _differences(
    one: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    for place, (left, right) in enumerate(zip(one, other, strict=False)):
        where = f"turn {place}, " if 0 < place < min(len(one), len(other)) - 1 else ""
        for name in {**left, **right}:
            if left.get(name) != right.get(name):
                yield f"{where}{name}: {_quoted(left.get(name), right.get(name))}"
    if len(one) != len(other):
        yield f"{len(one) - 2} turns, then {len(other) - 2}"


def _quoted(left: Any, right: Any) -> str:
    """Two values from a little before the place where they begin to differ."""
    one, other = repr(left), repr(right)
    equal = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0)
    start = max(0, equal - SHOWN // 3)
    before = "…" if start else ""
    return ", then ".join(f"{before}{text[start : start + SHOWN]}" for text in (one, other))
