"""Scripted demonstrations for the cold start, most of them mediocre on purpose.

Each behaviour rewrites the oracle's actions for a task. The script is then played as an episode in
the real environment, so that a demonstration has observations, provenance and a verdict like any
other trajectory.
"""

import random
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace

from turnwise.config import RolloutConfig
from turnwise.engines.scripted import ScriptedEngine
from turnwise.environments.base import Environment
from turnwise.errors import ConfigError, RunStoppedError, located
from turnwise.registry import Registry
from turnwise.rollout.loop import LATE
from turnwise.rollout.priority_semaphore import PrioritySemaphore
from turnwise.rollout.runner import Progress, RolloutRunner
from turnwise.scaffolds.base import Scaffold
from turnwise.seeds import derive
from turnwise.types import Action, Outcome, Task, Trajectory

MAX_ORACLE_FAILURES = 0.1
"""Share of the oracle's own demonstrations that may fail before they are refused."""

Script = Sequence[Action]
Behaviour = Callable[[Script, Script], Script]
"""(the oracle's actions for the task, those for another task) -> the actions to demonstrate."""
BEHAVIOURS: Registry[Behaviour] = Registry(
    "behaviour", callable, "give a function of two scripts that returns one"
)


@BEHAVIOURS.built_in("faithful")
def faithful(script: Script, other: Script) -> Script:
    """Act as the oracle does."""
    del other
    return script


@BEHAVIOURS.built_in("thoughtless")
def thoughtless(script: Script, other: Script) -> Script:
    """Acts as the oracle does, and writes no thoughts."""
    del other
    return [replace(action, thought="") for action in script]


@BEHAVIOURS.built_in("astray")
def astray(script: Script, other: Script) -> Script:
    """Does what another task needs, the last of it again and again: for games."""
    del script
    return other


@BEHAVIOURS.built_in("guessing")
def guessing(script: Script, other: Script) -> Script:
    """Never uses a tool: answers with some other task's answer; in a game it gives up."""
    del script
    return [Action("", "I know it", answer=other[-1].answer or "nothing")]


@BEHAVIOURS.built_in("hasty")
def hasty(script: Script, other: Script) -> Script:
    """Uses one tool call and answers with what it found, also where more calls are needed."""
    del other
    if len(script) < 2:  # no tool is needed
        return script
    # What the first call found is what the next action uses, or answers.
    named = (action for action in script[1:] if action.answer is not None or _names(action))
    second = next(named, None)
    if second is None:  # as in a game of moves: nothing is found
        return script
    found = second.answer if second.answer is not None else _argument(second)
    return [script[0], replace(script[-1], answer=found)]


@BEHAVIOURS.built_in("direct")
def direct(script: Script, other: Script) -> Script:
    """Answers at once, without a tool and without a thought."""
    del other
    return [Action("", answer=script[-1].answer or "nothing")]


@BEHAVIOURS.built_in("mistaken")
def mistaken(script: Script, other: Script) -> Script:
    """Does all the work, then answers with the name looked up last, or another task's answer."""
    looked_up = len(script) > 1 and _names(script[-2])
    answer = _argument(script[-2]) if looked_up else other[-1].answer
    return [*script[:-1], replace(script[-1], answer=answer)]


@BEHAVIOURS.built_in("malformed")
def malformed(script: Script, other: Script) -> Script:
    """Does all the work and then gives the answer without tags, whatever the corrections say."""
    del other
    return [*script[:-1], Action(text=f" {script[-1].answer}", error="the tags are missing")]


def check_behaviours(shares: Mapping[str, float], section: str = "sft") -> None:
    """Raise ConfigError for an unknown behaviour or shares that are not a distribution."""
    for name in shares:
        BEHAVIOURS.get(name)
    if not shares or min(shares.values()) < 0 or sum(shares.values()) <= 0:
        raise ConfigError(
            f"{section}.demonstrations.behaviours: give at least one behaviour a positive share"
        )


async def demonstrate(
    environment: Environment,
    scaffold: Scaffold,
    limits: RolloutConfig,
    tasks: Sequence[Task],
    shares: Mapping[str, float],
    count: int,
    seed: int,
    progress: Progress | None = None,
    turns: int | None = None,
) -> list[Trajectory]:
    """`count` demonstrations on random tasks, each by a behaviour drawn by its share, and cut after
    `turns` turns if given; a function of the arguments alone.

    `tasks` have their secrets, which the oracle reads. A script knows of no summaries: turns are
    dropped then. Raises RunStoppedError where the oracle's own demonstrations fail: limits that do
    not let a perfect agent succeed would teach failure; and where many of them were late.
    """
    if limits.context == "summarise":
        limits = limits.model_copy(update={"context": "drop"})
    allowed = {Outcome.SUCCESS}
    if turns is not None:
        limits = limits.model_copy(update={"max_turns": turns})
        allowed.add(Outcome.TRUNCATED_TURNS)
    check_behaviours(shares)
    stream = random.Random(derive(seed, "demonstrations"))
    behaviours, weights = [BEHAVIOURS.get(name) for name in shares], list(shares.values())
    chosen = [tasks[stream.randrange(len(tasks))] for _ in range(count)]
    drawn, scripts = [], []
    for task in chosen:
        other = tasks[stream.randrange(len(tasks))]
        behaviour = stream.choices(behaviours, weights)[0]
        drawn.append(behaviour)
        scripts.append(list(behaviour(environment.oracle(task), environment.oracle(other))))
    places = [0] * count

    def policy(session: str, prompt: list[int]) -> Sequence[int]:
        del prompt
        # Sessions begin with the episode's number: see `RolloutRunner.episode`.
        index = int(session.partition("-")[0])
        # A script that is over goes on with its last action, until the episode ends.
        action = scripts[index][min(places[index], len(scripts[index]) - 1)]
        places[index] += 1
        try:
            return scaffold.render(action)
        except (KeyError, ValueError, TypeError) as error:
            calls = ", ".join(call.name for call in action.calls)
            raise ConfigError(
                f"the scaffold cannot write the oracle's turn of task {chosen[index].id} with the "
                f"calls {calls or 'none'}: {located(error)}"
            ) from error

    engine, semaphore = ScriptedEngine(policy), PrioritySemaphore(64)
    runner = RolloutRunner(environment, scaffold, engine, limits, semaphore, progress=progress)
    groups = await runner.collect(chosen, 1, seed, "demonstrations")
    played = [group.trajectories[0] for group in groups]
    _check_oracle([one for one, by in zip(played, drawn, strict=True) if by is faithful], allowed)
    return played


def _check_oracle(played: Sequence[Trajectory], allowed: Set[Outcome]) -> None:
    judged = [one for one in played if one.outcome.graded and one.outcome not in LATE]
    failed = [one for one in judged if one.outcome not in allowed]
    if len(failed) > MAX_ORACLE_FAILURES * len(judged):
        raise RunStoppedError(
            f"{len(failed)} of {len(judged)} demonstrations by the environment's oracle fail, so "
            f"imitating them would teach failure; first: {_ended(failed[0])}. Check the limits in "
            "[rollout], scaffold.options, and the oracle"
        )
    others = [one for one in played if one.outcome in LATE or not one.outcome.graded]
    if len(others) > MAX_ORACLE_FAILURES * len(played):
        raise RunStoppedError(
            f"{len(others)} of {len(played)} demonstrations have no grade or ran out of time: that "
            f"says nothing of the oracle; first: {_ended(others[0])}. Raise rollout.max_seconds"
        )


def _ended(one: Trajectory) -> str:
    said = one.problem or (one.verdict.detail if one.verdict else "")
    errors = [turn.action.error for turn in one.turns if turn.action.error is not None]
    return f"task {one.task.id}, {': '.join(filter(None, (str(one.outcome), said, *errors[:1])))}"


def _names(action: Action) -> bool:
    return any(call.arguments for call in action.calls)


def _argument(action: Action) -> str:
    return str(next(value for call in action.calls for value in call.arguments.values()))
