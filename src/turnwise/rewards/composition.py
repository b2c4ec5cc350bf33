"""A reward that a recipe puts together: success, and parts with a weight, a gate and a schedule.

    reward = outcome or failure + sum over parts with an open gate of weight(step) * number

The numbers of turns are the turns' rewards, all others are the outcome's. Success dominates if its
lowest reward is above the highest of failure, whatever the parts are within their ranges; the
check is made before a run begins.

Next: `training/learners.py`.
"""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from turnwise.config import GATES, CostConfig, RewardConfig, RewardPartConfig
from turnwise.errors import ConfigError, DeadlineError, unknown_name
from turnwise.options import checked_options
from turnwise.rewards.deadlines import Deadlines
from turnwise.rewards.measuring import PartError, measured, reported_number
from turnwise.rewards.parts import REWARD_PARTS, RewardPart, Scope
from turnwise.seeds import derive
from turnwise.types import Group, Outcome, Trajectory, Verdict
from turnwise.wings import missing


@dataclass(frozen=True)
class Term:
    """A part with its place in a reward. Example: `make_reward(...).terms[0]`."""

    name: str
    """Its name in the recipe, and in all records."""
    config: RewardPartConfig
    part: RewardPart
    function: Callable[[Any], Any]
    """The part's function, with its options."""
    cost: CostConfig | None = None
    """The limit of a cost, whose weight is its multiplier's; None for a part of the reward."""

    @property
    def key(self) -> str:
        """Its table in a recipe."""
        return f"reward.{'costs' if self.cost else 'parts'}.{self.name}"

    def weight(self, step: int) -> float:
        """The weight at a step of RL."""
        schedule, start = self.config.schedule, self.config.weight
        if schedule is None or step < schedule.from_step:
            return start
        if step >= schedule.to_step:
            return schedule.weight
        share = (step - schedule.from_step) / (schedule.to_step - schedule.from_step)
        return start + share * (schedule.weight - start)

    @property
    def counts_nothing(self) -> bool:
        """Whether it is only measured: its weight is 0 at all steps."""
        schedule = self.config.schedule
        return not (self.cost or self.config.weight or (schedule and schedule.weight))

    def bounds(self, success: bool, step: int, turns: int) -> tuple[float, float]:
        """The range of its contribution to the reward of an episode that ends in this way."""
        if self.cost is not None:
            return -self.cost.highest * self.part.high, 0.0
        gate = self.config.gate
        if gate in ("success", "failure") and success != (gate == "success"):
            return 0.0, 0.0
        weight = self.weight(step)
        # An unknown range is infinite, and 0 times that is NaN.
        ends = sorted(weight * end if weight else 0.0 for end in self.part.bounds(turns))
        return (ends[0], ends[1]) if gate in GATES else (min(0.0, ends[0]), max(0.0, ends[1]))

    def is_open(self, verdict: Verdict) -> bool:
        """Whether the part counts after this verdict."""
        gate = self.config.gate
        if gate in GATES:
            return gate == "always" or verdict.success == (gate == "success")
        return verdict.parts[gate] > 0


@dataclass(frozen=True)
class Reward:
    """A reward of several parts. Example: make_reward(recipe.reward, spec.parts, max_turns=8)."""

    outcome: float
    """The reward of success, and of failure."""
    failure: float
    terms: tuple[Term, ...]
    turns: int
    """Turns of an episode at most."""
    noise: float = 0.0
    """The chance that an episode is graded as if success were failure, or the other way round."""

    @property
    def costs(self) -> list[Term]:
        """The terms that are costs."""
        return [term for term in self.terms if term.cost is not None]

    @property
    def of_turns(self) -> bool:
        """Whether turns have rewards."""
        return bool(self._of(Scope.TURNS))

    @property
    def of_groups(self) -> bool:
        """Whether a part is measured of whole groups."""
        return bool(self._of(Scope.GROUP))

    def bounds(self, success: bool, step: int) -> tuple[float, float]:
        """The lowest and the highest reward of an episode that ends in this way."""
        ranges = [term.bounds(success, step, self.turns) for term in self.terms]
        own = self.outcome if success else self.failure
        return own + sum(low for low, _ in ranges), own + sum(high for _, high in ranges)

    @property
    def steps_of_change(self) -> list[int]:
        """The steps between which all weights change in straight lines: extremes are among them."""
        schedules = [term.config.schedule for term in self.terms]
        # to_step - 1: the last step before a change at once (from_step = to_step).
        changes = {at for s in schedules if s for at in (s.from_step, s.to_step - 1, s.to_step)}
        return sorted({0, *(step for step in changes if step > 0)})

    def check_dominance(self) -> None:
        """Raise ConfigError where a failure can have as high a reward as a success, by how much."""
        for term in self.terms:
            known = all(math.isfinite(end) for end in (term.part.low, term.part.high))
            if not known and not term.counts_nothing:
                raise ConfigError(
                    f"nobody knows the range of {term.key}, so it may outvote success: set "
                    f"{term.key}.range=[lowest, highest], or reward.dominance=false"
                )
        margins = {
            step: self.bounds(success=True, step=step)[0] - self.bounds(success=False, step=step)[1]
            for step in self.steps_of_change
        }
        step, margin = min(margins.items(), key=lambda pair: pair[1])
        if margin > 0:
            return
        high, low = self.bounds(False, step)[1], self.bounds(True, step)[0]
        heavy = sorted(self.terms, key=lambda term: -self._spread(term, step))
        parts = ", ".join(f"{term.name} ({self._spread(term, step):g})" for term in heavy[:3])
        # 0 - margin below: -margin would be written -0 where it is 0.
        raise ConfigError(
            f"a failure can have a reward of {high:g} and a success one of {low:g}"
            f"{f' at step {step}' if step else ''}: parts can outvote success by {0 - margin:g}. "
            f"Raise reward.outcome above {self.outcome - margin:g}, lower the weights of {parts}, "
            'gate them (gate = "success"), or set reward.dominance=false'
        )

    def _spread(self, term: Term, step: int) -> float:
        """Measure how far a term can bring failure nearer to success."""
        low, high = (term.bounds(one, step, self.turns) for one in (True, False))
        return high[1] - low[0]

    def weights(self, step: int, multipliers: Mapping[str, float] = {}) -> dict[str, float]:
        """The weight of each part at a step of RL; costs without a multiplier count nothing."""
        return {
            term.name: -multipliers.get(term.name, 0.0) if term.cost else term.weight(step)
            for term in self.terms
        }

    async def judge(self, trajectory: Trajectory, weights: Mapping[str, float]) -> Verdict:
        """The verdict of an episode that its environment has judged, with this reward, but for what
        is measured of groups. Raises PartError where a part has no number for it."""
        verdict = trajectory.verdict
        assert verdict is not None  # it is judged
        parts: dict[str, float] = dict(verdict.parts)
        turn_parts: dict[str, Sequence[float]] = dict(verdict.turn_parts)
        for term in self.terms:
            if term.part.function is not None and term.name in {**parts, **turn_parts}:
                raise PartError(f"reward part {term.name}: the verdict has one of this name too")
        for term in self._of(Scope.TRAJECTORY):
            parts[term.name] = await measured(term.name, term.part, term.function, trajectory)
        for term in self._of(Scope.TURNS):
            turn_parts[term.name] = await measured(
                term.name, term.part, term.function, trajectory, len(trajectory.turns)
            )
        # (): turns have the rewards of the recipe's parts, and not the environment's.
        verdict = replace(verdict, parts=parts, turn_parts=turn_parts, turn_rewards=())
        # All parts are measured by now: a gate may ask for any of them.
        graded = self._with_noise(verdict, trajectory)
        reward = self.outcome if graded.success else self.failure
        for term in self._of(Scope.TRAJECTORY):
            reward += weights[term.name] * parts[term.name] if term.is_open(graded) else 0.0
        if not self.of_turns:
            return replace(verdict, reward=reward)
        turns = np.zeros(len(trajectory.turns))
        for term in self._of(Scope.TURNS):
            if term.is_open(graded):
                turns += weights[term.name] * np.array(turn_parts[term.name])
        return replace(verdict, reward=reward, turn_rewards=tuple(turns.tolist()))

    def _of(self, scope: Scope) -> list[Term]:
        return [term for term in self.terms if term.part.scope == scope]

    def _with_noise(self, verdict: Verdict, trajectory: Trajectory) -> Verdict:
        """The verdict that the reward is made of; the one that is kept stays true."""
        wrong = derive(trajectory.seed, "noise") / 2**63 < self.noise  # seeds have 63 bits
        return replace(verdict, success=bool(verdict.success) != wrong)

    async def judge_groups(
        self, groups: Sequence[Group], weights: Mapping[str, float], seconds: float
    ) -> list[Group]:
        """Add what is measured of groups to groups whose members are judged, to all at once; the
        groups stay in order.

        Where a group's numbers are wrong its members are ungraded, and so where they are not there
        in so many seconds, counted from when any group was last measured, or failed to be: those
        that wait for the same judge are not late.
        """
        deadlines = Deadlines(seconds)
        async with asyncio.TaskGroup() as judging:
            running = [
                judging.create_task(self._judge_group(group, weights, deadlines))
                for group in groups
            ]
        return [task.result() for task in running]

    async def _judge_group(
        self, group: Group, weights: Mapping[str, float], deadlines: Deadlines
    ) -> Group:
        for term in self._of(Scope.GROUP) if group.graded else ():
            work = measured(term.name, term.part, term.function, group, len(group.graded))
            try:
                found = iter(await deadlines.within(work))
            except (DeadlineError, TimeoutError) as error:
                why = str(error) or f"no numbers in {deadlines.seconds:g} s"
                problem = f"reward part {term.name}: {why}"
                return _ungraded(group, Outcome.GRADER_TIMEOUT, problem)
            except PartError as error:
                return _ungraded(group, Outcome.GRADER_ERROR, str(error))
            members = [
                member
                if member.verdict is None or member.reward is None
                else self._with_part(member, member.verdict, term, next(found), weights)
                for member in group.trajectories
            ]
            group = replace(group, trajectories=tuple(members))
        return group

    def _with_part(
        self,
        member: Trajectory,
        verdict: Verdict,
        term: Term,
        number: float | None,
        weights: Mapping[str, float],
    ) -> Trajectory:
        """The member with a part of its group, without a grade where it has no number."""
        if number is None:
            problem = f"reward part {term.name}: no number for this episode"
            return replace(member, outcome=Outcome.GRADER_ERROR, problem=problem, verdict=None)
        counts = term.is_open(self._with_noise(verdict, member))
        reward = verdict.reward + (weights[term.name] * number if counts else 0.0)
        parts = {**verdict.parts, term.name: number}
        return replace(member, verdict=replace(verdict, reward=reward, parts=parts))


def make_reward(
    config: RewardConfig,
    reported: Mapping[str, RewardPart],
    turns: int,
    more: Mapping[str, RewardPart] | None = None,
) -> Reward:
    """The reward that a recipe asks for, in episodes of at most so many turns.

    `reported` are the parts that the environment's verifier reports, `more` are others that the run
    has, such as judges. Raises ConfigError, in one line, for an unknown part, options that it does
    not take, a number to be read that is not reported, a gate that is none, and parts that can
    outvote success.
    """
    known = {**(more or {}), **reported}
    terms = tuple(_term(name, part, known) for name, part in config.parts.items())
    terms += tuple(_cost(name, cost, known) for name, cost in config.costs.items())
    # Parts of groups are no gates: they are measured when gates have been asked.
    gates = [term.name for term in terms if term.part.scope == Scope.TRAJECTORY]
    for term in terms:
        _check_gate(term, gates)
        _check_read(term, reported)
        if term.name in reported and term.config.use not in ("", term.name):
            raise ConfigError(
                f"{term.key}: the environment reports another part of this name: "
                "give yours another one"
            )
    reward = Reward(config.outcome, config.failure, terms, turns, config.noise)
    if config.dominance:
        reward.check_dominance()
    return reward


def _term(
    name: str, config: RewardPartConfig, known: Mapping[str, RewardPart], table: str = "parts"
) -> Term:
    used = config.use or name
    part = known.get(used)
    if part is None and (":" in used or used in REWARD_PARTS.descriptions()):
        part = REWARD_PARTS.get(used)
    if part is None and config.range is None:
        if (absent := missing("reward", used)) is not None:
            raise absent
        problem = unknown_name("reward part", used, [*known, *REWARD_PARTS.descriptions()])
        raise ConfigError(
            f"{problem}; for one that the environment's verifier reports and does not declare, set "
            f"reward.{table}.{name}.range=[lowest, highest]"
        )
    part = part or RewardPart()
    if config.range is not None:
        # What the part declares of its sum over the turns is of its own range.
        part = replace(part, low=config.range[0], high=config.range[1], total=None, total_of=None)
    if part.function is None:
        if config.options:
            raise ConfigError(
                f"reward.{table}.{name}.options: {used} is what the environment reports, and has "
                "none; remove them"
            )
        return Term(name, config, part, partial(reported_number, used, part.scope))
    options = checked_options(
        partial(part.function, None), config.options, f"reward.{table}.{name}.options"
    )
    total = part.total if part.total_of is None else part.total_of(**options)
    whole = replace(part, total=total)
    return Term(name, config, whole, partial(part.function, **options))


def _cost(name: str, cost: CostConfig, known: Mapping[str, RewardPart]) -> Term:
    config = RewardPartConfig(use=cost.use, range=cost.range, options=cost.options)
    term = replace(_term(name, config, known, "costs"), cost=cost)
    if term.part.scope != Scope.TRAJECTORY:
        raise ConfigError(f"{term.key}: a cost is a number of an episode, not of {term.part.scope}")
    if not term.part.low >= 0:
        raise ConfigError(
            f"{term.key}: a cost is 0 or more, and this one may be {term.part.low:g}: set "
            f"{term.key}.range=[0, highest]"
        )
    return term


def _check_gate(term: Term, gates: Sequence[str]) -> None:
    gate = term.config.gate
    if gate not in GATES and (gate not in gates or gate == term.name):
        others = [name for name in gates if name != term.name]
        raise ConfigError(
            f"reward.parts.{term.name}.gate is {gate!r}: give {', '.join(GATES)}, or another part "
            f"of whole episodes ({', '.join(others) or 'there is none'})"
        )


def _check_read(term: Term, reported: Mapping[str, RewardPart]) -> None:
    """Raise ConfigError where a part reads a number that the environment does not report."""
    option, part = term.part.reads, term.part
    if not option:
        return
    name = term.config.options.get(option, part.options[option].default)
    there = [known for known, other in reported.items() if other.scope == part.scope]
    if not there:
        raise ConfigError(
            f"{term.key} reads {name!r}, and the environment reports no number of {part.scope}: "
            f"leave {term.name} out, or report one (EnvironmentSpec.parts)"
        )
    if name not in there:
        raise unknown_name(f"{term.key}.options.{option}", name, there)


def _ungraded(group: Group, outcome: Outcome, problem: str) -> Group:
    members = [
        replace(member, outcome=outcome, problem=problem, verdict=None)
        if member.reward is not None
        else member
        for member in group.trajectories
    ]
    return replace(group, trajectories=tuple(members))
