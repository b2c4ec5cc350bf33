"""Several attempts at one task in one episode, with a memory of those that failed.

    [environment]
    name = "attempts"
    options = { name = "doors", attempts = 5, memory = "reflection" }

An attempt is an episode of the environment that is named. After a failure its scene is set again,
and the policy's context begins anew, with the task and what `memory` keeps: nothing, the last
attempt as it went, what the policy wrote when it was asked why it failed, tokens that are trained
as any others, or a hint. Sources: Reflexion (arXiv 2303.11366, section 3), Agent-RLVR (2506.11425),
whose next run learns guided attempts without their hints (`turnwise export --guided`). Not here:
attempts over several episodes, and rewards of single attempts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

from turnwise.conflicts import Claim, Need
from turnwise.environments.base import Budget, Environment, EnvironmentSpec
from turnwise.environments.registry import make_environment
from turnwise.environments.tasksets import SPLITS, Split
from turnwise.environments.turn_parts import share
from turnwise.errors import ToolError
from turnwise.ranges import Range
from turnwise.tokens import Source
from turnwise.tools.tool import Tool, tool
from turnwise.types import Action, Observation, Step, Task, Trajectory, Turn, Verdict
from turnwise_environments.joint import stepped_within

ASKED = "The attempt has failed. Reflect."
Memory = Literal["none", "trajectory", "reflection", "guidance"]


@runtime_checkable
class Guiding(Protocol):
    """An environment that has hints of its own; of another one the hint is the oracle's calls."""

    def guidance(self, attempt: Trajectory) -> str:
        """Say what helps after an attempt that has failed; its task has the secret."""


class Attempts(Environment):
    """See the module; success is that of any attempt, and so is the reward."""

    def __init__(
        self,
        name: str,
        options: dict[str, Any] = {},  # noqa: B006 - it is only read
        attempts: Annotated[int, Range(1)] = 3,
        memory: Memory = "reflection",
    ) -> None:
        """`name` and `options` are those of the environment that is attempted. Raises
        NotSupportedError for hints of one that has neither its own nor an oracle."""
        self._prototype = make_environment(name, options)
        self.attempts, self.memory = attempts, memory
        # An attempt is judged before the next one begins, and the verifier reads the secret.
        self._whole = {task.id: task for s in SPLITS for task in self._prototype.tasks(s)}
        if memory == "guidance" and not isinstance(self._prototype, Guiding):
            # Said now, and not by the first attempt that fails.
            self._prototype.oracle(next(iter(self._whole.values())))
        self.shows_images = self._prototype.shows_images
        self.same_splits = self._prototype.same_splits
        self.weaknesses = self._prototype.weaknesses
        self.warnings = (*self._prototype.task_set.warnings, *self._prototype.warnings)
        self.sandbox = self._prototype.sandbox
        self.verdict_programs = self._prototype.verdict_programs * attempts

    @property
    def spec(self) -> EnvironmentSpec:
        """The attempted environment's, with success by attempt; of its scores those that more
        attempts do not change."""
        spec = self._prototype.spec
        known = {name: spec.reference_scores.get(name) for name in ("noop", "oracle")}
        return EnvironmentSpec(
            name=f"{spec.name} in {self.attempts} attempts",
            version=spec.version,
            data_hash=spec.data_hash,
            reference_scores={name: one for name, one in known.items() if one in (0.0, 1.0)},
            parts={
                f"by_{number}": share(f"whether one of the first {number} attempts succeeded")
                for number in self._numbers
            },
        )

    def claims(self) -> Iterator[Claim]:
        yield from super().claims()
        several = {Need.ONE_CONTEXT: "lets several follow one another"}
        yield Claim("environment attempts", (Need.OWN_LOOP,), several, "choose another one")

    def tasks(self, split: Split) -> Sequence[Task]:
        return self._prototype.tasks(split)

    def budget(self, task: Task) -> Budget:
        return self._prototype.budget(task)

    def tools(self) -> list[Tool]:
        """The attempted environment's, and `reflect` where reflections are kept."""
        own = super().tools() if self.memory == "reflection" else []
        return sorted([*self._prototype.tools(), *own], key=lambda one: one.name)

    async def reset(self, task: Task, seed: int) -> Observation:
        self._task, self._seed = task, seed
        self._number, self._solved, self._failed, self._text = 1, 0, False, ""
        return await self._begin()

    async def step(self, action: Action) -> Step:
        """Have the attempt react; where it fails, go on with the next one, or ask why first."""
        if self._failed:
            return await self._reflect(action)
        step = await stepped_within(self, Attempts.tools(self), self._playing, action)
        step = replace(step, reward=None)
        self._turns.append(Turn(action, step))
        if not step.done and not step.abort:
            return step
        if (await self._playing.verify(self._attempt())).success:
            self._solved = self._number
        if self._solved or self._number == self.attempts:
            return replace(step, done=True, abort=False)
        shown = step.observation.content if step.observation is not None else ""
        if self.memory == "reflection":
            self._failed = True
            return Step(Observation(f"{shown}\n{ASKED}".lstrip()), step.results)
        if self.memory == "trajectory":
            self._text = self._went()
        elif self.memory == "guidance":
            self._text = self._hint()
        return await self._next(step)

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """Success by attempt; an attempt that a budget cut short has failed."""
        del trajectory
        parts = {f"by_{n}": float(0 < self._solved <= n) for n in self._numbers}
        said = f"solved in attempt {self._solved}" if self._solved else "not solved"
        return Verdict(float(self._solved > 0), self._solved > 0, parts, said)

    def oracle(self, task: Task) -> Sequence[Action]:
        return self._prototype.oracle(task)

    def random_actions(self, task: Task, stream: Random) -> Sequence[Action]:
        return self._prototype.random_actions(task, stream)

    async def close(self) -> None:
        if hasattr(self, "_playing"):
            await self._playing.close()

    @tool
    async def reflect(self, text: str) -> str:
        """Say why the last attempt failed, for the next one, which is shown it and nothing else."""
        if not self._failed:
            raise ToolError("reflect when an attempt has failed")
        self._failed, self._text = False, text
        return text

    @property
    def _numbers(self) -> range:
        return range(1, self.attempts + 1)

    async def _begin(self) -> Observation:
        self._playing, self._turns = self._prototype.fresh(), list[Turn]()
        self._playing.truncate = self.truncate
        return await self._playing.reset(self._task, self._seed)

    async def _next(self, step: Step) -> Step:
        """The step that ends an attempt, with the beginning of the next one."""
        await self._playing.close()
        self._number += 1
        await self._begin()
        shown = f"Attempt {self._number}. {self._text}".strip()
        return Step(Observation(shown, Source.ENVIRONMENT), step.results, forgets=True)

    async def _reflect(self, action: Action) -> Step:
        calls = tuple(call for call in action.calls if call.name == "reflect")
        step = await super().step(replace(action, answer=None, calls=calls))
        if self._failed:  # it wrote none
            return replace(step, observation=Observation(ASKED, Source.ENVIRONMENT))
        return await self._next(step)

    def _attempt(self) -> Trajectory:
        task, turns = self._whole[self._task.id], tuple(self._turns)
        return Trajectory(task, "attempt", self._number, self._seed, turns=turns)

    def _hint(self) -> str:
        """The environment's own, or the plan: the oracle's calls."""
        attempt = self._attempt()
        if isinstance(self._playing, Guiding):
            return self._playing.guidance(attempt)
        planned = map(_calls, self._prototype.oracle(attempt.task))
        return f"Plan: {', '.join(filter(None, planned))}."

    def _went(self) -> str:
        """The attempt in words: what was done, and what came back."""
        told = []
        for turn in self._turns:
            said = _calls(turn.action) or turn.action.answer or ""
            shown = turn.step and turn.step.observation
            told.append(f"{said}: {shown.content if shown else ''}")
        return " ".join(told)


def _calls(action: Action) -> str:
    told = (f"{one.name} {' '.join(map(str, one.arguments.values()))}" for one in action.calls)
    return ", ".join(told)
