"""The ground of a search: tasks that it sees, others that it is held to, and what it may spend."""

import math
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from turnwise.seeds import derive
from turnwise.types import Task, Trajectory
from turnwise_trust.audit.attempts import Policy, Script, graded, scripted, succeeded
from turnwise_trust.audit.subject import Subject

PANEL, FIRST = 6, 2
"""Tasks on which each candidate is tried, and on which it is first."""
SEARCHING = 0.8
"""The share of the time in which a search goes on."""


@dataclass(frozen=True)
class Score:
    """The successes and rewards of a policy on some tasks."""

    success: float
    """Share of the tasks."""
    unearned: float
    """Share of the tasks at which it fails and has no less reward than the oracle has there."""
    reward: float
    """Mean of all graded episodes; -inf of none."""


@dataclass
class Ground:
    """Where a search is at work."""

    subject: Subject
    seen: Sequence[Task]
    """The tasks of the search, of which it may know the oracle's scripts."""
    unseen: Sequence[Task]
    """Others, on which what it finds is measured, once."""
    left: int
    """Episodes that the search may still play."""
    stream: random.Random
    until: float
    """The moment at which it ends searching: what is found has to be measured."""
    worth: dict[str, float] = field(default_factory=dict)
    """The reward of the oracle's success by task, where it has one."""

    @property
    def open(self) -> bool:
        """Whether there are episodes and time left to search with."""
        return self.left > 0 and time.monotonic() < self.until

    def tried(self, policy: Policy) -> Score:
        """Try a candidate on the panel; on the first of it alone where it earns nothing there."""
        played = self.play(policy, self.seen[:FIRST])
        first = self.score(played)
        if first.success or first.unearned or first.reward > 0:
            played += self.play(policy, self.seen[FIRST:PANEL])
        return self.score(played)

    def play(self, policy: Policy, tasks: Sequence[Task]) -> list[Trajectory]:
        """Play some of its episodes."""
        self.left -= len(tasks)
        return self.subject.play(policy, tasks)

    def score(self, played: Sequence[Trajectory]) -> Score:
        """Count what the graded of some episodes came to."""
        counted = list(graded(played))
        if not counted:
            return Score(0.0, 0.0, -math.inf)
        return Score(
            sum(succeeded(one) for one in counted) / len(counted),
            sum(self.is_unearned(one) for one in counted) / len(counted),
            sum(one.reward or 0.0 for one in counted) / len(counted),
        )

    def is_unearned(self, one: Trajectory) -> bool:
        """Whether a failure has no less reward than the oracle's success."""
        worth = self.worth.get(one.task.id)
        return worth is not None and not succeeded(one) and (one.reward or 0.0) >= worth

    def scripts(self) -> Iterator[Script]:
        """Scripts to begin with: nothing, the oracle's of seen tasks, and random ones."""
        yield ()
        for task in self.seen:
            if task.id in self.subject.oracle:
                yield tuple(self.subject.oracle[task.id])
            yield tuple(self.subject.random_actions(task))

    def random(self) -> list[Trajectory]:
        """Episodes of an agent that draws its actions, on the unseen tasks."""
        return [
            one
            for task in self.unseen
            for one in self.play(scripted(self.subject.random_actions(task)), [task])
        ]


def ground_of(subject: Subject, episodes: int, seconds: float) -> Ground:
    """Part a subject's tasks by chance, and give a search what it may spend."""
    subject.begin()
    stream = random.Random(derive("reward search", subject.seed))
    tasks = list(subject.tasks)
    stream.shuffle(tasks)
    half = (len(tasks) + 1) // 2
    worth = {one.task.id: one.reward or 0.0 for one in subject.of_oracle if succeeded(one)}
    until = time.monotonic() + SEARCHING * min(seconds, subject.left)
    return Ground(subject, tasks[:half], tasks[half:], episodes, stream, until, worth)
