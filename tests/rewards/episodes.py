"""Judged episodes in few words, for tests of parts."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from turnwise.tokens import Source, Tokens
from turnwise.types import (
    Action,
    Group,
    Observation,
    Outcome,
    Step,
    Task,
    ToolCall,
    ToolResult,
    Trajectory,
    Turn,
    Verdict,
)


def call(
    name: str, result: str = "", ok: bool = True, thought: str = "so", **arguments: Any
) -> Turn:
    """A turn with one call, and what it gave."""
    made = ToolCall(name, arguments)
    step = Step(Observation(result), (ToolResult(made, result, ok),))
    return Turn(Action(f"<{name}>{arguments}</{name}>", thought, (made,)), step)


def answer(text: str, thought: str = "so") -> Turn:
    return Turn(Action(f"<answer>{text}</answer>", thought, answer=text), Step(done=True))


def malformed(text: str = "<search") -> Turn:
    return Turn(Action(text, error="a tag is not closed"), Step(Observation("Error.")))


def episode(*turns: Turn, secret: Mapping[str, Any] | None = None, prompt: str = "?") -> Trajectory:
    task = Task("a", prompt, secret or {})
    verdict = Verdict(0.0, False)
    return Trajectory(task, "g", 0, 0, turns=turns, outcome=Outcome.FAILURE, verdict=verdict)


def reporting(played: Trajectory, **turn_parts: Sequence[float]) -> Trajectory:
    """The episode with these numbers of its turns in the environment's verdict."""
    return replace(played, verdict=Verdict(0.0, False, turn_parts=turn_parts))


def sampled(*logprobs: float) -> Tokens:
    """A token of the prompt, and sampled ones."""
    count = len(logprobs) + 1
    return Tokens(
        np.arange(count),
        np.array([Source.USER, *[Source.MODEL] * len(logprobs)], np.uint8),
        np.zeros(count, np.int32),
        np.zeros(count, np.int32),
        np.array([np.nan, *logprobs], np.float32),
    )


def group(answers: Sequence[str | None]) -> Group:
    """A group whose members give these answers; None is none."""
    members = [episode(*([] if one is None else [answer(one)])) for one in answers]
    return Group("g", tuple(replace(one, episode=n) for n, one in enumerate(members)))
