"""Parts of any environment: how an agent goes about its task, whatever it achieves.

Each is a share, 0 to 1; a negative weight makes a penalty of it. None of them says whether the task
was done, so none should outweigh success.
"""

import json
from collections.abc import Hashable
from typing import Literal

from turnwise.ranges import Count
from turnwise.rewards.answer import states
from turnwise.rewards.parts import Scope, reward_part
from turnwise.types import ToolCall, Trajectory, Turn


@reward_part("malformed", 0, 1, Scope.TURNS)
def malformed(trajectory: Trajectory) -> list[float]:
    """1 for a turn that could not be parsed or whose call failed, else 0; for a negative weight.

    A call that the episode's end left without a result is none of the agent's errors.
    """
    return [float(not _is_well_formed(turn)) for turn in trajectory.turns]


@reward_part("calls", 0, 1, Scope.TURNS)
def calls(trajectory: Trajectory) -> list[float]:
    """1 for a turn that calls a tool, whatever the tool is for: to be hacked on purpose.

    It is here for experiments on reward hacking: reward what a call finds out instead.
    """
    return [float(bool(turn.action.calls)) for turn in trajectory.turns]


@reward_part("format", 0, 1)
def form(trajectory: Trajectory, strict: bool = False) -> float:
    """Share of the turns that could be parsed; with `strict` 1 where all could, else 0."""
    parsed = [turn.action.error is None for turn in trajectory.turns]
    share = sum(parsed) / len(parsed) if parsed else 0.0
    return float(share == 1.0) if strict else share


@reward_part("repetition", 0, 1)
def repetition(trajectory: Trajectory, n: Count = 4) -> float:
    """Share of the n-grams of written words that were written before; for a negative weight.

    1 - |different n-grams| / |n-grams|, over all turns; no n-gram spans two of them. It is
    seq-rep-n of Welleck et al. 2019 (arXiv 1908.04319).
    """
    grams: list[Hashable] = []
    for turn in trajectory.turns:
        words = turn.action.text.split()
        grams += zip(*(words[start:] for start in range(n)), strict=False)
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


@reward_part("length", 0, 1)
def length(
    trajectory: Trajectory,
    budget: Count = 512,
    of: Literal["tokens", "words", "thoughts"] = "tokens",
) -> float:
    """Sampled tokens, written words, or words of thoughts, as a share of a budget; 1 beyond it.

    With a positive weight and `of = "thoughts"` it is the length reward that ToolRL tries (arXiv
    2504.13958), with a budget of 512 words.
    """
    if of == "tokens":
        used = int(trajectory.tokens.mask.sum())
    else:
        actions = [turn.action for turn in trajectory.turns]
        texts = [action.text if of == "words" else action.thought for action in actions]
        used = sum(len(text.split()) for text in texts)
    return min(1.0, used / budget)


@reward_part("budget", 0, 1)
def budget(trajectory: Trajectory, turns: Count = 8, calls: Count = 8) -> float:
    """Turns and calls as shares of two numbers, the larger of the two shares; 1 beyond it."""
    return min(1.0, max(len(trajectory.turns) / turns, trajectory.tool_calls / calls))


@reward_part("needless_calls", 0, 1)
def needless_calls(
    trajectory: Trajectory, repeated: bool = True, after_answer: bool = True, budget: Count = 4
) -> float:
    """Needless calls as a share of a budget: repeated ones, and those after the answer was seen.

    It is 1 beyond the budget.

    A call is `repeated` if the same one, with the same arguments, was made before: leave that out
    where the same call does something new, as in games. The answer was seen once an observation of
    an earlier turn states one of the task's accepted answers (`secret["answers"]`; without them
    nothing is `after_answer`). Of two hops whose answers share a name, the first already counts.
    """
    answers = trajectory.task.secret.get("answers", ()) if after_answer else ()
    accepted = [one for one in answers if isinstance(one, str)]
    needless, seen = 0, False
    before: set[str] = set()
    for turn in trajectory.turns:
        for call in turn.action.calls:
            needless += seen or (repeated and _name(call) in before)
            before.add(_name(call))
        observation = turn.step.observation if turn.step is not None else None
        seen = seen or (observation is not None and states(observation.content, accepted))
    return min(1.0, needless / budget)


def _is_well_formed(turn: Turn) -> bool:
    results = turn.step.results if turn.step is not None else ()
    return turn.action.error is None and all(result.ok for result in results)


def _name(call: ToolCall) -> str:
    return json.dumps([call.name, dict(call.arguments)], sort_keys=True, default=repr)
