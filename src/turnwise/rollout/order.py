"""The tasks of each step, and the limits that change over the steps of RL.

Tasks come in passes over all, or are chosen by their recent rates of success. Passes are a function
of seed and step, so a resumed run neither skips a task nor repeats one. A task that is always
solved, or never, teaches a group-relative algorithm nothing: a filter drops its group when it has
been played (DAPO, arXiv 2503.14476, section 3.2), a curriculum plays another (its band of success
rates is our definition). Measured successes are kept in checkpoints.

The temperature goes from one number to another in a straight line, as in Kimi K2 (arXiv 2507.20534,
section 3.2.3: high at first, to explore). The horizon begins short and grows when success has
reached a target, as in ScalingInter-RL (arXiv 2509.08755, section 4), whose phases have fixed
lengths: the rule by success is our own. Evaluations are played at the recipe's own temperature and
`max_turns`.
"""

import math
import random
from collections import deque
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from turnwise.config import BySuccess, RolloutConfig
from turnwise.errors import ConfigError
from turnwise.seeds import derive
from turnwise.types import Group, Task


def tasks_of_step(tasks: Sequence[Task], step: int, count: int, seed: int) -> list[Task]:
    """The `count` tasks of a step; passes over `tasks` are shuffled anew, steps run across them,
    and a pass plays each task once."""
    chosen = []
    order: list[int] = []
    passed = -1
    for index in range(step * count, (step + 1) * count):
        epoch, position = divmod(index, len(tasks))
        if epoch != passed:
            order = list(range(len(tasks)))
            random.Random(derive(seed, "train", "order", epoch)).shuffle(order)
            passed = epoch
        chosen.append(tasks[order[position]])
    return chosen


def choose_tasks(tasks: Sequence[Task], count: int, seed: int) -> list[Task]:
    """`count` distinct tasks, the same ones for the same seed whatever else happens."""
    chosen = list(tasks)
    # Shuffled whole: fewer tasks are the first of more, so that all evaluations share theirs.
    random.Random(derive(seed, "evaluation")).shuffle(chosen)
    return chosen[:count]


UNPLAYED = -1.0
"""A distance below every real one from the band: tasks never played are drawn first."""


class Curriculum:
    """Success rates of tasks, and the choice by them."""

    def __init__(self, tasks: Sequence[Task], config: BySuccess, count: int) -> None:
        """`count` is a step's tasks. Raises ConfigError where nothing is left to choose."""
        if count - random_tasks(config, count) < 1:
            raise ConfigError(
                f"train.tasks_per_step is {count}, and curriculum.random_share takes all of them: "
                "lower it, or play more tasks"
            )
        if count >= len(tasks):
            raise ConfigError(
                f"the curriculum chooses {count} of {len(tasks)} tasks: lower train.tasks_per_step"
            )
        self._tasks, self._config, self._count = tasks, config, count
        self._lately: dict[str, deque[bool]] = {}

    def tasks_of_step(self, step: int, seed: int) -> list[Task]:
        """The `count` different tasks of a step, in any order.

        A random share, rounded up, comes from the passes over all tasks, whatever was measured.
        Then come tasks never played; those whose success rate is in the band; those nearest to it;
        last those whose episodes were all ungraded. Among equals chance decides.
        """
        count = self._count
        chance = random.Random(derive(seed, "train", "curriculum", step))
        passes = tasks_of_step(self._tasks, step, random_tasks(self._config, count), seed)
        ranked = list(self._tasks)
        chance.shuffle(ranked)
        ranked.sort(key=lambda task: self._distance(task.id))  # stable: equals stay shuffled
        # By id: a task that is chosen both ways, or twice in the passes, counts once.
        chosen = list({task.id: task for task in (*passes, *ranked[:count])}.values())[:count]
        chance.shuffle(chosen)  # so that each of a step's updates gets some of both
        return chosen

    def measure(self, groups: Sequence[Group]) -> None:
        """Take the graded episodes of a step into account, those that were filtered out as well."""
        for group in groups:
            for member in group.trajectories:
                # Also for a task without a grade, which no longer counts as unplayed then.
                lately = self._lately.setdefault(member.task.id, self._empty())
                if member.reward is not None and member.verdict is not None:
                    lately.append(member.verdict.success)

    def rate(self, task: str) -> float | None:
        """Share of successes among the task's last `window` graded episodes, if any."""
        lately = self._lately.get(task)
        return sum(lately) / len(lately) if lately else None

    def metrics(self) -> dict[str, float]:
        """Share of all tasks that have a success rate, and share of these in the band."""
        near = [self._distance(task) == 0.0 for task, lately in self._lately.items() if lately]
        return {
            "curriculum/measured": len(near) / len(self._tasks),
            "curriculum/in_band": sum(near) / max(len(near), 1),
        }

    def state(self) -> dict[str, Any]:
        """The measured successes of each task, oldest first."""
        return {task: list(lately) for task, lately in self._lately.items()}

    def load_state(self, state: Mapping[str, Sequence[bool]]) -> None:
        self._lately = {}
        for task, lately in state.items():
            self._lately[task] = self._empty()
            self._lately[task].extend(lately)

    def _distance(self, task: str) -> float:
        if task not in self._lately:
            return UNPLAYED
        rate = self.rate(task)
        if rate is None:
            return math.inf
        lowest, highest = self._config.band
        return max(lowest - rate, rate - highest, 0.0)

    def _empty(self) -> deque[bool]:
        return deque(maxlen=self._config.window)


def random_tasks(config: BySuccess, count: int) -> int:
    """How many of a step's `count` tasks are drawn whatever was measured: at least one."""
    return math.ceil(config.random_share * count)


def temperature_at(limits: RolloutConfig, step: int) -> float:
    """The temperature of a step, counted from 0."""
    schedule, first = limits.temperature_schedule, limits.temperature
    if schedule is None:
        return first
    share = (step - schedule.from_step) / (schedule.to_step - schedule.from_step)
    return first + min(max(share, 0.0), 1.0) * (schedule.temperature - first)


class RolloutSchedule:
    """The limits of each step."""

    def __init__(self, limits: RolloutConfig) -> None:
        self._limits = limits
        horizon = limits.horizon
        self._turns = limits.max_turns if horizon is None else horizon.turns
        self._successes: list[float] = []
        """Success of each step at the present horizon, or the mean of `horizon.part`."""

    def limits(self, step: int) -> RolloutConfig:
        """The limits of a step, counted from 0, at the present horizon."""
        changed = {"temperature": temperature_at(self._limits, step), "max_turns": self._turns}
        return self._limits.model_copy(update=changed)

    def measure(self, groups: Sequence[Group], turns: int) -> None:
        """Count a step's graded episodes, if played with the present number of turns; a horizon at
        which success has reached the target grows."""
        horizon, most = self._limits.horizon, self._limits.max_turns
        if turns != self._turns:
            return  # sampled ahead, before the horizon grew
        verdicts = [one.verdict for group in groups for one in group.graded if one.verdict]
        if horizon is None or self._turns == most or not verdicts:
            return
        part = horizon.part
        reached = (one.parts.get(part, 0.0) if part else one.success for one in verdicts)
        self._successes.append(fmean(reached))
        lately = self._successes[-horizon.window :]
        if len(lately) == horizon.window and fmean(lately) >= horizon.target:
            self._turns = min(self._turns + horizon.grow_by, most)
            self._successes = []

    def metrics(self, step: int, turns: int) -> dict[str, float]:
        """The temperature of a step and its horizon, `turns`, where they change."""
        found = {}
        if self._limits.temperature_schedule is not None:
            found["rollout/temperature"] = temperature_at(self._limits, step)
        if self._limits.horizon is not None:
            found["rollout/horizon"] = float(turns)
        return found

    def state(self) -> dict[str, Any]:
        return {"turns": self._turns, "successes": list(self._successes)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._turns, self._successes = state["turns"], list(state["successes"])
