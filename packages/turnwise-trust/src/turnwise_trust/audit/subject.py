"""The subject of an audit: an environment, the tasks that are played, and what its oracle does."""

import asyncio
import json
import math
import random
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import median
from typing import Any, TypeVar

from turnwise.config import RolloutConfig
from turnwise.environments.base import Environment
from turnwise.environments.registry import make_environment
from turnwise.errors import DataError
from turnwise.seeds import derive
from turnwise.storage.audits import Finding
from turnwise.tools.tool import Tool
from turnwise.types import Action, Task, Trajectory
from turnwise_environments.choosing import all_tasks, spread
from turnwise_trust.audit.attempts import LIMITS, Policy, Run, attempts, scripted
from turnwise_trust.audit.calls import EnvironmentRaised, known_oracle, of_environment

T = TypeVar("T")

FEW = 4
"""Tasks that are played of the slowest environments."""
SECONDS = 2.0
"""Seconds that one episode of each task may take together: an audit plays some dozens of them."""

SHARES = 5
"""The parts of the time that is left, of which a probe may take one."""
MOST_LATE = 2
"""Episodes without a verdict that may take as long as an episode may."""


class OutOfTime(Exception):
    """The time of an audit, or of a probe, is over."""


class Ungraded(Exception):
    """No episode got a verdict, so that nothing was paid and nothing refused."""


@dataclass
class Clock:
    """The moment of `time.monotonic()` after which no episode is begun."""

    end: float = math.inf


@dataclass(frozen=True, eq=False)
class Subject:
    """An environment that is audited, with all that probes share."""

    name: str
    """The name by which a command knows it."""
    options: Mapping[str, Any]
    environment: Environment
    """The prototype of its episodes."""
    tasks: Sequence[Task]
    """The tasks that are played, of both splits, with their secrets."""
    seed: int = 0
    oracle: Mapping[str, Sequence[Action]] = field(default_factory=dict)
    """The actions of a perfect agent by task id, where the environment knows them."""
    problem: str = ""
    """The first error of its oracle."""
    late: list[str] = field(default_factory=list)
    """The episodes that ran into the deadline, so far: shared by all that is made of this one."""
    graded: Counter[bool] = field(default_factory=Counter)
    """The number of episodes with a verdict, and of those without; shared likewise."""
    limits: RolloutConfig = LIMITS
    unmeasured: list[str] = field(default_factory=list)
    """The checks for which there was no time, or not for all of their tasks."""
    clock: Clock = field(default_factory=Clock)
    """Shared, as these lists are, by all that is made of this one."""
    run: Run = asyncio.run
    beat: Callable[[], None] = lambda: None
    """Called before and after episodes: it says that nothing stands still."""

    @property
    def title(self) -> str:
        return titled(self.name, self.options, self.seed)

    @property
    def left(self) -> float:
        """Seconds in which episodes may be begun; 0 or less when the time is over."""
        return self.clock.end - time.monotonic()

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Inside, episodes are begun for so many seconds at most."""
        before = self.clock.end
        self.clock.end = min(before, time.monotonic() + seconds)
        try:
            yield
        finally:
            self.clock.end = before

    def shared(self, parts: Sequence[T]) -> Iterator[T]:
        """Yield the parts of a work, each in its share of the time left; what one leaves is for
        those after it."""
        for number, part in enumerate(parts):
            with self.within(self.left / min(SHARES, len(parts) - number)):
                yield part

    def goes_on(self) -> bool:
        """Say that nothing stands still, and whether there is time left."""
        self.beat()
        return self.left > 0

    def begin(self) -> None:
        """Note that an episode is to begin. Raises OutOfTime, and EnvironmentRaised as `play`."""
        self.in_time([])
        if self.left <= 0:
            raise OutOfTime

    def play(self, policy: Policy, tasks: Sequence[Task] | None = None) -> list[Trajectory]:
        """Episodes of a policy, one for each task; fewer where the time is over. Raises
        EnvironmentRaised where MOST_LATE have run into the deadline: an audit of such an
        environment would take hours."""
        chosen = self.tasks if tasks is None else tasks
        return [one for task in chosen for one in self._played(policy, task)]

    def _played(self, policy: Policy, task: Task) -> list[Trajectory]:
        self.in_time([])
        where = (self.limits, self.clock.end, self.run)
        return self.in_time(attempts(self.environment, [task], policy, self.seed, *where))

    def in_time(self, played: list[Trajectory]) -> list[Trajectory]:
        """Note which of these episodes were late, and return them; raises as `play`."""
        self.beat()
        self.graded.update(one.verdict is not None for one in played)
        for one in played:
            if not one.outcome.graded and one.seconds >= self.limits.max_seconds:
                self.late.append(f"task {one.task.id}: {one.outcome.value}: {one.problem}")
        if len(self.late) >= MOST_LATE:
            raise EnvironmentRaised(f"{len(self.late)} episodes hang, as {self.late[0]}")
        return played

    @cached_property
    def of_oracle(self) -> list[Trajectory]:
        """Episodes of the oracle: of the tasks that it can do."""
        known = [task for task in self.tasks if task.id in self.oracle]
        return [one for task in known for one in self.play(scripted(self.oracle[task.id]), [task])]

    @cached_property
    def of_random(self) -> list[Trajectory]:
        """Episodes of an agent that knows the tools and nothing else."""
        return [
            one
            for task in self.tasks
            for one in self.play(scripted(self.random_actions(task)), [task])
        ]

    def random_actions(self, task: Task, number: int = 0) -> Sequence[Action]:
        """The environment's random actions for a task; another number gives others."""
        stream = random.Random(derive("audit", "random", task.id, self.seed, number))
        with of_environment(f"random_actions() of task {task.id}"):
            return self.environment.random_actions(task.public(), stream)

    @cached_property
    def tools(self) -> Sequence[Tool]:
        """The environment's tools, as an episode that has not begun has them."""
        with of_environment("tools()"):
            return self.environment.tools()

    @cached_property
    def pay(self) -> dict[str, float]:
        """The oracle's reward by task id; 1 where it has none above 0."""
        rewards = {one.task.id: one.reward or 0.0 for one in self.of_oracle}
        known = {name: reward for name, reward in rewards.items() if reward > 0}
        return {task.id: known.get(task.id, 1.0) for task in self.tasks}

    @cached_property
    def answers(self) -> dict[str, str]:
        """The oracle's last answer by task id, where it ends with one."""
        ends = {name: actions[-1].answer for name, actions in self.oracle.items() if actions}
        return {name: answer for name, answer in ends.items() if answer is not None}

    @cached_property
    def seconds(self) -> float:
        """Seconds of an episode, in the middle: the oracle's, or an idle agent's without one; a
        random one's where it takes longer, as a wrong answer is compared in more ways. Raises
        OutOfTime where there was no time for any."""
        kinds = (self.of_oracle or self.idle, self.of_random)
        if not any(kinds):
            raise OutOfTime
        return max(median(one.seconds for one in played) for played in kinds if played)

    @cached_property
    def idle(self) -> list[Trajectory]:
        """Episodes of an agent that answers nothing."""
        return self.play(scripted([]))

    @cached_property
    def idle_at_work(self) -> list[Trajectory]:
        """The idle agent's episodes in which something was to be done."""
        return at_work(self.idle, self.oracle)

    @cached_property
    def unsolved(self) -> Sequence[Task]:
        """The tasks that doing nothing does not solve, on which attacks are tried; all of them
        where it solves each."""
        left = [one.task for one in self.idle if not (one.verdict and one.verdict.success)]
        return left or self.tasks


Probe = Callable[[Subject], Iterable[Finding]]
"""One attack, or one measurement: its findings, at least one, `passed` for what was tried in
vain."""


def titled(name: str, options: Mapping[str, Any], seed: int) -> str:
    """An environment's name, its options and a seed, as words of a command."""
    words = [f"{key}={json.dumps(value)}" for key, value in options.items()]
    return shlex.join([name, *words, "--seed", str(seed)])


def subject_of(
    name: str,
    options: Mapping[str, Any],
    most_tasks: int,
    seed: int = 0,
    seconds: float = math.inf,
    beat: Callable[[], None] = lambda: None,
) -> Subject:
    """Make an environment, which is audited for so many seconds, and choose its tasks: at most so
    many, fewer where an episode is slow.
    Raises ConfigError or DataError for one that cannot be made with these options."""
    clock = Clock(time.monotonic() + seconds)
    environment = make_environment(name, options)
    tasks = spread(all_tasks(environment), most_tasks)
    if not tasks:
        raise DataError(f"environment {name}: tasks() gives none, of neither split")
    subject = Subject(name, options, environment, tasks, seed, clock=clock, beat=beat)
    known, problem = known_oracle(environment, tasks, subject.goes_on)
    subject = replace(subject, oracle=known, problem=problem)
    most = max(FEW, int(SECONDS / _seconds(replace(subject, tasks=spread(tasks, 2)))))
    return replace(subject, tasks=spread(tasks, min(most, most_tasks)))


def _seconds(subject: Subject) -> float:
    """Seconds of an episode: of each kind the shorter one, as the first may start a sandbox."""
    try:
        kinds = (subject.of_oracle or subject.idle, subject.of_random)
        shortest = [min(one.seconds for one in played) for played in kinds if played]
        return max(shortest, default=LIMITS.max_seconds)
    except EnvironmentRaised:  # the first probe says so
        return LIMITS.max_seconds


def at_work(
    played: Sequence[Trajectory], oracle: Mapping[str, Sequence[Action]]
) -> list[Trajectory]:
    """The episodes in which something was to be done. Where the oracle mostly acts and on some
    tasks only answers, those are in order as they are, and doing nothing is right."""
    acts = {name for name, actions in oracle.items() if any(one.calls for one in actions)}
    if 2 * len(acts) <= len(oracle):
        return list(played)
    return [one for one in played if one.task.id in acts or one.task.id not in oracle]
