"""Several environments as one, for joint RL: each episode is a task of one of them.

    [environment]
    name = "joint"

    [environment.options.environments.search]
    share = 2
    max_turns = 5

    [environment.options.environments.sums]
    name = "mathematics"
    options = { tasks = { max_steps = 2 } }

Tasks, tools and verdicts are those of the environments, whose names stand before the tasks' ids and
in their label `environment`, so that metrics and reports tell them apart. The policy is shown the
tools of all of them; a call of another environment's tool is a mistake. Source: joint training over
many tasks, each with a budget of its own, as in Kimi K2 (arXiv 2507.20534, section 3.2.3). Not
here: how the tasks of a step are drawn (`rollout/order.py`).
"""

import hashlib
import json
import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from turnwise.conflicts import Claim
from turnwise.environments.base import Budget, Environment, EnvironmentSpec, Rewards
from turnwise.environments.derived import joined
from turnwise.environments.registry import make_environment
from turnwise.environments.tasksets import SPLITS, Split
from turnwise.errors import ConfigError
from turnwise.options import Options, checked_options
from turnwise.ranges import Range
from turnwise.sandbox.base import CodeSandbox
from turnwise.seeds import derive
from turnwise.tools.tool import Tool
from turnwise.types import Action, Observation, Step, Task, Trajectory, Verdict

LABEL = "environment"
"""The label of a task that names its environment."""
KINDS: Sequence[Rewards] = ("shares", "signed", "unknown")
"""Kinds of rewards; each may have those before it."""


@dataclass(frozen=True)
class Member(Options):
    """An environment of several. Example: Member(name="search", share=2, max_turns=5)."""

    name: str = ""
    """A name from `turnwise list`, or `path/to/file.py:Class`; empty for the table's own name."""
    options: dict[str, Any] = field(default_factory=dict)
    """Arguments of its constructor; settings of a sandbox are among them, as `sandbox`."""
    tools: list[str] = field(default_factory=list)
    """Tools besides its own, as `environment.tools`."""
    consequential: dict[str, Any] = field(default_factory=dict)
    """Rules for consequential tools, as `environment.consequential`."""
    share: Annotated[float, Range(0)] = 1.0
    """Its part of the tasks, in proportion to those of the others."""
    max_turns: Annotated[int, Range(0)] = 0
    """Turns of its episodes at most, if fewer than `rollout.max_turns`; 0 for these."""
    max_turn_tokens: Annotated[int, Range(0)] = 0
    """Tokens of a turn, likewise."""
    max_tokens: Annotated[int, Range(0)] = 0
    """Tokens of a trajectory, likewise."""
    max_tool_calls: Annotated[int, Range(0)] = 0
    """Tool calls of an episode, likewise."""

    @property
    def budget(self) -> Budget:
        """The budgets that are given."""
        given = {name: getattr(self, name) or None for name in Budget._fields}
        return Budget(**given)


class Joint(Environment):
    """See the module."""

    def __init__(self, environments: dict[str, Any]) -> None:
        """`environments` has a table for each of two or more.

        Raises ConfigError for fewer, for what is wrong with one, and for two tools of one name that
        are not the same.
        """
        if len(environments) < 2:
            raise ConfigError("joint: give two or more in environment.options.environments")
        self._configs = {name: _member(name, table) for name, table in environments.items()}
        self._members = {name: _made(name, config) for name, config in self._configs.items()}
        self._tools = _common_tools(self._members)
        self._current: Environment | None = None
        members = self._members.values()
        self.shows_images = any(member.shows_images for member in members)
        self.same_splits = any(member.same_splits for member in members)
        self.sandbox, self.verdict_programs = _slowest_sandbox(list(members))
        self.weaknesses = [
            f"{name}: {weakness}"
            for name, member in self._members.items()
            for weakness in member.weaknesses
        ]
        self._chosen = {split: self._choose(split) for split in SPLITS}
        told = [
            f"{name}: {warning}"
            for name, member in self._members.items()
            for warning in (*member.task_set.warnings, *member.warnings)
        ]
        self.warnings = (*told, *self._left_out())

    @property
    def spec(self) -> EnvironmentSpec:
        """The names and versions of all; parts of the reward that all report in the same way; turn
        rewards where all have them."""
        specs = {name: member.spec for name, member in self._members.items()}
        first, *others = specs.values()
        shares = {name: config.share for name, config in self._configs.items()}
        content = json.dumps([shares, {name: spec.data_hash for name, spec in specs.items()}])
        total = sum(shares.values())
        known = set(first.reference_scores).intersection(*(one.reference_scores for one in others))
        return EnvironmentSpec(
            name="joint",
            version=", ".join(f"{name}: {one.name} {one.version}" for name, one in specs.items()),
            data_hash=hashlib.sha256(content.encode()).hexdigest(),
            reference_scores={
                score: sum(shares[n] * one.reference_scores[score] for n, one in specs.items())
                / total
                for score in sorted(known)
            },
            turn_rewards=all(one.turn_rewards for one in specs.values()),
            rewards=max((one.rewards for one in specs.values()), key=KINDS.index),
            parts={
                name: part
                for name, part in first.parts.items()
                if all(one.parts.get(name) == part for one in others)
            },
        )

    def claims(self) -> Iterator[Claim]:
        """See Environment."""
        for member in self._members.values():
            yield from member.claims()

    @property
    def restorable(self) -> bool:
        return all(member.restorable for member in self._members.values())

    def tasks(self, split: Split) -> Sequence[Task]:
        """Tasks of all environments by their shares, as many as these allow, shuffled."""
        return self._chosen[split]

    def budget(self, task: Task) -> Budget:
        """The budgets of the task's environment: in the recipe, and of its own; the lower ones."""
        name = _name(task)
        both = zip(self._configs[name].budget, self._members[name].budget(_own(task)), strict=True)
        given = ([one for one in pair if one is not None] for pair in both)
        return Budget(*(min(pair, default=None) for pair in given))

    def tools(self) -> list[Tool]:
        return list(self._tools)

    async def reset(self, task: Task, seed: int) -> Observation:
        self._begin(_name(task))
        first = await self._playing.reset(_own(task), seed)
        self.folder = self._playing.folder
        return first

    async def step(self, action: Action) -> Step:
        """Have the task's environment react; tools that the recipe gives to all are run here."""
        return await stepped_within(self, self._tools, self._playing, action)

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """The verdict of the task's environment."""
        return await self._playing.verify(replace(trajectory, task=_own(trajectory.task)))

    def oracle(self, task: Task) -> Sequence[Action]:
        return self._members[_name(task)].oracle(_own(task))

    def random_actions(self, task: Task, stream: random.Random) -> Sequence[Action]:
        return self._members[_name(task)].random_actions(_own(task), stream)

    def ablations(self) -> Mapping[str, Environment]:
        """The ablations of each environment, the others as they are."""
        return {
            f"{name}_{ablation}": self._with(name, variant)
            for name, member in self._members.items()
            for ablation, variant in member.ablations().items()
        }

    def snapshot(self) -> bytes:
        """The name of the environment that is played, and its state."""
        return self._name.encode() + b"\0" + self._playing.snapshot()

    def restore(self, state: bytes) -> None:
        name, _, own = state.partition(b"\0")
        if self._current is None or name.decode() != self._name:
            self._begin(name.decode())
        self._playing.restore(own)

    def reseed(self, seed: int) -> None:
        self._playing.reseed(seed)

    async def close(self) -> None:
        if self._current is not None:
            await self._current.close()

    def _begin(self, name: str) -> None:
        self._name, self._current = name, self._members[name].fresh()
        self._current.truncate = self.truncate

    @property
    def _playing(self) -> Environment:
        assert self._current is not None  # there is one after a reset
        return self._current

    def _with(self, name: str, variant: Environment) -> "Joint":
        """Copy this with a variant of one environment, without rules and tools of the recipe."""
        made = self.variant(Joint)
        made._members = {**self._members, name: variant}
        return made

    def _choose(self, split: Split) -> list[Task]:
        """Choose as many tasks of each environment as its share of them all allows."""
        found = {name: member.tasks(split) for name, member in self._members.items()}
        shares = {name: config.share for name, config in self._configs.items()}
        unit = min(len(tasks) / shares[name] for name, tasks in found.items())
        counts = {name: round(unit * share) for name, share in shares.items()}
        for name, count in counts.items():
            if not count:
                few = min(found, key=lambda one: len(found[one]) / shares[one])
                raise ConfigError(
                    f"joint: {name} gets no {split} task, as {few} has {len(found[few])} and a "
                    f"share of {shares[few]:g}: change the shares, or give {few} more tasks"
                )
        chosen = [
            replace(task, id=f"{name}/{task.id}", info={**task.info, LABEL: name})
            for name, tasks in found.items()
            for task in _drawn(name, tasks)[: counts[name]]
        ]
        return sorted(chosen, key=lambda task: derive("joint", "order", task.id))

    def _left_out(self) -> list[str]:
        """A sentence for each environment of which training has not all tasks."""
        used = Counter(_name(task) for task in self._chosen["train"])
        there = {name: len(member.tasks("train")) for name, member in self._members.items()}
        return [
            f"{name}: {used[name]} of {count} training tasks are used, so that shares hold"
            for name, count in there.items()
            if used[name] < count
        ]


async def stepped_within(
    outer: Environment, own: Sequence[Tool], inner: Environment, action: Action
) -> Step:
    """Have `inner` react, which `outer` plays. Tools beside its `own`, which the recipe gives to
    `outer`, are run there, and then each call by itself."""
    added = {one.name for one in outer.tools()} - {one.name for one in own}
    if not any(call.name in added for call in action.calls):
        return await inner.step(action)
    steps: list[Step] = []
    for call in action.calls:
        if call.name in added:
            result = await outer._run(call)
            steps.append(Step(Observation(result.content), (result,)))
        else:
            steps.append(await inner.step(replace(action, calls=(call,))))
        if steps[-1].done or steps[-1].abort:
            break
    return joined(steps)


def _member(name: str, table: Mapping[str, Any]) -> Member:
    place = f"environment.options.environments.{name}"
    if "/" in name or not name:
        raise ConfigError(f"{place}: give a name without a slash, which ends it in tasks' ids")
    if not isinstance(table, Mapping):
        raise ConfigError(f"{place} is {table!r}: give a table, such as {{ share = 1 }}")
    config = Member(**checked_options(Member, table, place))
    if not 0 < config.share < math.inf:
        raise ConfigError(f"{place}.share is {config.share:g}: give a finite one above 0")
    return config


def _made(name: str, config: Member) -> Environment:
    chosen = config.name or name
    try:
        return make_environment(chosen, config.options, config.consequential, tools=config.tools)
    except ConfigError as error:
        raise ConfigError(f"environment.options.environments.{name}: {error}") from None


def _common_tools(members: Mapping[str, Environment]) -> list[Tool]:
    """The tools of all environments, each once. Raises ConfigError for two of one name that take
    different arguments or are described differently."""
    found: dict[str, tuple[str, Tool]] = {}
    for name, member in members.items():
        for tool in member.tools():
            owner, there = found.setdefault(tool.name, (name, tool))
            if there.schema != tool.schema:
                raise ConfigError(
                    f"joint: {owner} and {name} have a tool {tool.name!r} each, which take "
                    "different arguments or do different things: train them apart"
                )
    return [tool for _, (_, tool) in sorted(found.items())]


def _slowest_sandbox(members: Sequence[Environment]) -> tuple[CodeSandbox | None, int]:
    """The sandbox whose verdicts may take longest, and how many programs one of them runs."""
    found = [(one.sandbox, one.verdict_programs) for one in members if one.sandbox is not None]
    if not found:
        return None, 1
    return max(found, key=lambda pair: pair[0].settings.limits.seconds * pair[1])


def _drawn(name: str, tasks: Sequence[Task]) -> list[Task]:
    """The tasks in the order in which they are chosen, so that a share of them is of all kinds."""
    return sorted(tasks, key=lambda task: derive("joint", name, task.id))


def _name(task: Task) -> str:
    return task.id.partition("/")[0]


def _own(task: Task) -> Task:
    return replace(task, id=task.id.partition("/")[2])
