"""Episodes before a run: the untrained policy's, until a budget of seconds is used; and scripted
ones of an idle agent, of the oracle, and of what the policy did, once more.

Groups are those with which training begins: its tasks in its order, its group size and sampling.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from turnwise.config import Recipe, RolloutConfig
from turnwise.errors import ConfigError
from turnwise.rollout.order import tasks_of_step
from turnwise.rollout.runner import RolloutRunner, members_of, new_groups, within
from turnwise.types import Action, Group, Outcome, Task, Trajectory
from turnwise_environments.choosing import spread
from turnwise_trust.audit.attempts import LIMITS, Attempt, scripted
from turnwise_trust.audit.calls import known_oracle
from turnwise_trust.audit.subject import at_work

FIRST_WAVE = 2
"""Groups that are played first, so that it is known how long more will take."""
SCRIPTED_SECONDS = 10.0
"""Time for each kind of scripted episodes, at most."""
SCRIPTED_TASKS = 64
REPLAYED = 128
"""Episodes that are played and judged again, half of them successes where there are as many."""


@dataclass(frozen=True)
class Wave:
    """Groups that were played at the same time."""

    groups: Sequence[Group]
    seconds: float
    """Wall-clock time of all."""


@dataclass(frozen=True)
class Rehearsal:
    """All that was played before a run."""

    recipe: Recipe
    runner: RolloutRunner
    train: Sequence[Task]
    heldout: Sequence[Task]
    waves: Sequence[Wave]
    idle: Sequence[Trajectory] = ()
    """Episodes of an agent that answers nothing, a task each."""
    oracle: Sequence[Trajectory] = ()
    """Episodes of the environment's own oracle, where it has one."""
    problem: str = ""
    """The first error of that oracle."""
    again: Sequence[tuple[Trajectory, Trajectory]] = ()
    """Episodes of the policy, each with what became of the same actions under the same seed."""
    not_again: str = ""
    """Why none was played again."""

    @property
    def groups(self) -> list[Group]:
        """All groups of the policy, in order."""
        return [one for wave in self.waves for one in wave.groups]

    @property
    def episodes(self) -> list[Trajectory]:
        """All episodes of the policy."""
        return members_of(self.groups)

    @property
    def seconds(self) -> float:
        """Wall-clock time of the policy's episodes."""
        return sum(wave.seconds for wave in self.waves)


async def play(
    recipe: Recipe,
    runner: RolloutRunner,
    tasks: Sequence[Task],
    seconds: float,
    most: int,
    before: Sequence[Wave] = (),
    keep: Callable[[Wave], None] = lambda wave: None,
    late: float = 0.0,
) -> list[Wave]:
    """Play at most `most` groups of training tasks, in waves of a step's size, as long as the next
    wave is likely to end within `seconds`, or until it is cancelled after the first wave; one that
    has not ended so many seconds `late` is given up, all of it, since its short episodes alone
    would not be a sample. Ungraded episodes stay in. Waves that were played `before` are part of
    it; each new one is given to `keep`. Raises ConfigError where not even the first wave ends."""
    # A preflight counts the ungraded, where a run would stop.
    runner = replace(runner, limits=runner.limits.model_copy(update={"max_ungraded_share": 1.0}))
    size, seed = recipe.train.group_size, recipe.seed
    planned = new_groups(tasks_of_step(tasks, 0, most, seed), size, seed, "preflight")
    done = {group.id for wave in before for group in wave.groups}
    planned = [group for group in planned if group.id not in done]
    end = time.monotonic() + seconds
    waves = [*before]
    wanted = FIRST_WAVE
    while planned and wanted:
        try:
            async with asyncio.timeout(end + late - time.monotonic()):
                waves.append(await _wave(runner, planned[:wanted]))
            keep(waves[-1])
        except TimeoutError:
            if waves:
                break
            raise ConfigError(
                f"{size * len(planned[:wanted])} episodes did not end within "
                f"{seconds + late:.0f} seconds: "
                "raise --seconds, or lower rollout.max_turns or max_turn_tokens"
            ) from None
        except asyncio.CancelledError:  # Ctrl-C: what was played is looked at
            if not waves:
                raise
            _uncancel()
            break
        planned = planned[wanted:]
        # More at once take less each, so this is rather too long than too short.
        each = waves[-1].seconds / len(waves[-1].groups)
        fit = (end - time.monotonic()) / max(each, 1e-9)
        wanted = min(recipe.train.tasks_per_step, int(max(fit, 0)))
    return waves


def _uncancel() -> None:
    task = asyncio.current_task()
    assert task is not None  # a coroutine runs in one
    task.uncancel()


async def _wave(runner: RolloutRunner, planned: Sequence[Group]) -> Wave:
    begun = time.monotonic()
    groups = await runner.judge(await runner.play_groups(planned))
    return Wave(groups, time.monotonic() - begun)


def rehearsal(
    recipe: Recipe,
    runner: RolloutRunner,
    train: Sequence[Task],
    heldout: Sequence[Task],
    waves: Sequence[Wave],
    seconds: float = SCRIPTED_SECONDS,
) -> Rehearsal:
    """Play what needs no model, after the policy's episodes, each kind for so many seconds. Starts
    an event loop of its own."""
    tasks = spread(train, SCRIPTED_TASKS)
    end = time.monotonic() + seconds
    known, problem = known_oracle(runner.environment, tasks, lambda: time.monotonic() < end)
    planned = [Trajectory(task, "preflight", 0, recipe.seed) for task in tasks]
    played = Rehearsal(recipe, runner, train, heldout, waves)
    why = _not_again(runner)
    return replace(
        played,
        idle=at_work(
            _scripted(runner, planned, [()] * len(planned), LIMITS, seconds),
            known,
        ),
        oracle=_scripted(
            runner,
            [one for one in planned if one.task.id in known],
            [known[task.id] for task in tasks if task.id in known],
            LIMITS,
            seconds,
        ),
        problem=problem,
        again=() if why else _again(runner, played.episodes, seconds),
        not_again=why,
    )


def _not_again(runner: RolloutRunner) -> str:
    """Why actions alone do not give an episode again."""
    if runner.player is not None or runner.workers is not None:
        return "another process or an agent of its own plays the episodes"
    return "" if runner.limits.context == "fail" else "contexts follow one another"


def _again(
    runner: RolloutRunner, episodes: Sequence[Trajectory], seconds: float
) -> list[tuple[Trajectory, Trajectory]]:
    """Episodes that the agent ended itself, beside what their actions come to once more."""
    succeeded = [one for one in episodes if one.outcome == Outcome.SUCCESS]
    failed = [one for one in episodes if one.outcome == Outcome.FAILURE]
    half = REPLAYED // 2
    chosen = spread(succeeded, max(half, REPLAYED - len(failed)))
    chosen += spread(failed, REPLAYED - len(chosen))
    actions = [[turn.action for turn in one.turns] for one in chosen]
    played = _scripted(runner, chosen, actions, runner.limits, seconds)
    return list(zip(chosen, played, strict=False))


def _scripted(
    runner: RolloutRunner,
    planned: Sequence[Trajectory],
    actions: Sequence[Sequence[Action]],
    limits: RolloutConfig,
    seconds: float,
) -> list[Trajectory]:
    """Play scripts one after the other, as far as the time goes."""
    end = time.monotonic() + seconds

    async def work() -> list[Trajectory]:
        return [
            await Attempt(
                planned=Trajectory(one.task, one.group, one.episode, one.seed),
                prototype=runner.environment,
                limits=within(limits, runner.environment.budget(one.task)),
                policy=scripted(script),
            ).run()
            for one, script in zip(planned, actions, strict=True)
            if time.monotonic() < end
        ]

    return asyncio.run(work())
