"""Deadlines of an episode, its budget of time, and the seeds of its parts.

Environments here wait for ever for an event that nobody sets. A test that would wait with them ends
with TimeoutError; the time is counted by a clock that only the environment turns.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from tests.fakes import Capitals, Restorable
from tests.rollout.clockwork import JumpingLoop
from tests.rollout.playing import ANSWER, LOOKUP, Breaking, encode, scaffold_of
from tests.test_seeds import golden
from turnwise.config import RolloutConfig
from turnwise.engines.base import Completion, Sampling
from turnwise.engines.scripted import ScriptedEngine
from turnwise.environments.base import Environment
from turnwise.rollout.episode import Episode
from turnwise.rollout.priority_semaphore import PrioritySemaphore
from turnwise.times import Doing
from turnwise.types import Action, Observation, Outcome, Step, Task, Trajectory

LIMITS = RolloutConfig(max_turns=6, max_turn_tokens=80, max_tokens=700)
A_HANG = 120.0
"""Seconds after which a test says that something hangs; nothing waits so long if all is well."""


class Recording(ScriptedEngine):
    """Says the turns one after the other, the last again and again, and keeps the samplings."""

    def __init__(self, turns: Sequence[str]) -> None:
        said = iter(turns)
        super().__init__(lambda session, prompt: encode(next(said, turns[-1])))
        self.samplings: list[Sampling] = []

    async def generate(
        self, prompt: Sequence[int], sampling: Sampling, *, session: str
    ) -> Completion:
        self.samplings.append(sampling)
        return await super().generate(prompt, sampling, session=session)


def episode(
    environment: Environment,
    engine: ScriptedEngine,
    trajectory: Trajectory | None = None,
    limits: RolloutConfig = LIMITS,
    loop: type[asyncio.AbstractEventLoop] = asyncio.SelectorEventLoop,
    **options: Any,
) -> Trajectory:
    """Played by itself. Raises TimeoutError where it would never end."""
    if trajectory is None:
        trajectory = Trajectory(environment.tasks("train")[0], "test/0/France", 0, seed=77)

    async def play() -> Trajectory:
        played = Episode(
            planned=trajectory,
            prototype=environment,
            limits=limits,
            scaffold=scaffold_of(environment),
            engine=engine,
            session="s",
            semaphore=PrioritySemaphore(1),
            **options,
        )
        async with asyncio.timeout(A_HANG):
            return await played.run()

    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(play())


@pytest.mark.parametrize(
    ("where", "outcome", "reward"),
    [
        ("reset", Outcome.INFRASTRUCTURE_RESET, None),
        ("step", Outcome.AGENT_RESOURCE_LIMIT, 1.0),  # the answer was given
        ("verify", Outcome.GRADER_TIMEOUT, None),
        ("close", Outcome.SUCCESS, 1.0),
        ("nowhere", Outcome.SUCCESS, 1.0),
    ],
)
def test_an_environment_that_never_answers_is_left_at_the_deadline(
    where: str, outcome: Outcome, reward: float | None
) -> None:
    """What was won before it hangs is kept."""
    limits = LIMITS.model_copy(update={"max_seconds": A_HANG / 2})
    played = episode(Breaking(where), Recording([ANSWER]), limits=limits, loop=JumpingLoop)
    assert (played.outcome, played.reward) == (outcome, reward)
    assert ("TimeoutError" in played.problem) is (where in ("reset", "step", "close"))


@dataclass
class Clock:
    """Stands still until it is turned."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Slow(Capitals):
    """Each reset and step takes so many seconds of the clock, and none of anybody's time."""

    clock: Clock
    reset_takes: float
    step_takes: float

    async def reset(self, task: Task, seed: int) -> Observation:
        self.clock.now += self.reset_takes
        return await super().reset(task, seed)

    async def step(self, action: Action) -> Step:
        self.clock.now += self.step_takes
        return await super().step(action)


@pytest.mark.parametrize(
    ("reset_takes", "step_takes", "turns", "outcome"),
    [
        (0.0, 40.0, 3, Outcome.TRUNCATED_TIME),  # 40 + 40 + 40 >= 100
        (30.0, 40.0, 2, Outcome.TRUNCATED_TIME),  # 30 + 40 + 40 >= 100
        (100.0, 0.0, 0, Outcome.TRUNCATED_TIME),
        (0.0, 16.5, 6, Outcome.TRUNCATED_TURNS),
    ],
)
def test_the_time_of_all_turns_is_summed(
    reset_takes: float, step_takes: float, turns: int, outcome: Outcome
) -> None:
    clock = Clock()
    slow = Slow(clock, reset_takes, step_takes)
    limits = LIMITS.model_copy(update={"max_seconds": 100.0})
    played = episode(slow, Recording([LOOKUP]), limits=limits, clock=clock)
    assert (played.outcome, len(played.turns)) == (outcome, turns)
    assert played.seconds == reset_takes + turns * step_takes


def test_the_engines_time_is_not_the_episodes() -> None:
    """How long a turn takes to be sampled depends on the other episodes."""
    clock = Clock()

    class Busy(Recording):
        async def generate(
            self, prompt: Sequence[int], sampling: Sampling, *, session: str
        ) -> Completion:
            clock.now += 1e6
            return await super().generate(prompt, sampling, session=session)

    played = episode(Slow(clock, 1.0, 2.0), Busy([LOOKUP, ANSWER]), clock=clock)
    assert played.outcome == Outcome.SUCCESS
    assert [(span.doing, span.end - span.start) for span in played.times.spans] == [
        (Doing.ENVIRONMENT, 1.0),
        (Doing.SAMPLING, 1e6),
        (Doing.TOOLS, 2.0),
        (Doing.SAMPLING, 1e6),
        (Doing.TOOLS, 2.0),
        (Doing.GRADING, 0.0),
    ]
    assert played.times.seconds == played.seconds == 2e6 + 5.0


class Seeded(Restorable):
    """Keeps the seeds that it is given."""

    def __init__(self) -> None:
        self.seeds: list[tuple[str, int]] = []

    def fresh(self) -> "Seeded":
        return self

    async def reset(self, task: Task, seed: int) -> Observation:
        self.seeds.append(("reset", seed))
        return await super().reset(task, seed)

    def reseed(self, seed: int) -> None:
        self.seeds.append(("reseed", seed))


def test_the_environment_and_every_turn_have_seeds_of_their_own() -> None:
    environment, engine = Seeded(), Recording([LOOKUP, LOOKUP, "no tags", ANSWER])
    episode(environment, engine)
    assert environment.seeds == [("reset", golden(77, "environment"))]
    seeds = [sampling.seed for sampling in engine.samplings]
    assert seeds == [golden(77, "sampling", turn) for turn in range(4)]
    assert len(set(seeds)) == 4


@pytest.mark.wing("algorithms")
def test_a_branch_is_seeded_by_where_it_begins() -> None:
    """Environment and draws are those of the child and not of its parent; turns are counted on."""
    from turnwise_algorithms.branching import branch_at, child_of

    environment, engine = Seeded(), Recording([LOOKUP, ANSWER])
    parent = episode(environment, engine, snapshots=True)
    child = child_of(parent, 1, episode=3, seed=5, label="train/2")
    assert child.seed == golden(5, "train/2", "test/0/France", 0, 1, 3)
    engine.samplings.clear()
    episode(environment, engine, child, start=branch_at(parent, 1))
    assert environment.seeds[-1] == ("reseed", golden(child.seed, "environment"))
    assert [sampling.seed for sampling in engine.samplings] == [golden(child.seed, "sampling", 1)]


@pytest.mark.wing("algorithms")
def test_a_branch_whose_beginning_cannot_be_restored_is_ungraded() -> None:
    from turnwise_algorithms.branching import branch_at, child_of

    class Forgetful(Seeded):
        def restore(self, state: bytes) -> None:
            raise KeyError("score")

    parent = episode(Seeded(), Recording([LOOKUP, ANSWER]), snapshots=True)
    child = child_of(parent, 1, episode=3, seed=5, label="train/2")
    played = episode(Forgetful(), Recording([ANSWER]), child, start=branch_at(parent, 1))
    assert played.outcome == Outcome.INFRASTRUCTURE_RESET
    assert played.reward is None
    assert "KeyError: 'score'" in played.problem
