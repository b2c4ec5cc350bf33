"""The function-calling environment: do what a user asks with the tools of the task.

Each task has its own handful of typed tools, listed in its prompt, over a calendar, a file cabinet
and a heating (`applications.py`). The model calls them through one tool, `tool_call`, whose
argument is the calls as JSON, as in ToolRL; its answer ends a request, and the user's next one
follows. What counts is the state that is left and the answers to the user.
"""

import copy
import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from turnwise.environments.base import Environment, EnvironmentSpec
from turnwise.environments.random_actions import random_call
from turnwise.environments.turn_parts import gain_part, share
from turnwise.errors import ToolError
from turnwise.ranges import Count, Range
from turnwise.rewards.answer import exact_match
from turnwise.rewards.parts import RewardPart
from turnwise.tokens import Source
from turnwise.tools.tool import tool
from turnwise.types import Action, Observation, Step, Task, ToolCall, Trajectory, Verdict
from turnwise_environments.common import each_once
from turnwise_environments.function_calling.applications import Desk, application_tools
from turnwise_environments.function_calling.tasks import (
    COUNT,
    KINDS,
    MAX_REQUESTS,
    TOOLS,
    Kind,
    made_tasks,
)
from turnwise_environments.progress import STATE_PARTS, cells_of, replayed, state_parts
from turnwise_environments.rewards.numeric import matches, read_quantity
from turnwise_environments.rewards.toolrl import (
    BEST,
    WORST,
    calls_of,
    read_calls,
    toolrl_correctness,
    toolrl_form,
    write_calls,
)

PARTS = {
    "state": share("whether the state is as wanted"),
    "answers": share("whether all requests were answered, and rightly"),
    "toolrl_correct": RewardPart(WORST, BEST, "ToolRL's reward for the calls"),
    "toolrl_format": share("ToolRL's reward for the form"),
    "answered": gain_part("share of the questions that are answered, and rightly"),
    **STATE_PARTS,
}
MAX_CALLS = 16
"""Calls in one turn, at most."""


@dataclass
class Play:
    """The state of one episode, all of it: plain data."""

    state: dict[str, Any] = field(default_factory=dict)
    tools: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    """Requests that the user has not spoken yet."""


class FunctionCalling(Environment):
    """One tool, `tool_call`, through which a task's own tools are called."""

    facts = EnvironmentSpec("function_calling", "1", parts=PARTS)
    _play: Play

    def __init__(
        self,
        count: Count = COUNT,
        max_requests: Annotated[int, Range(1, MAX_REQUESTS)] = MAX_REQUESTS,
        tools: Count = TOOLS,
        kinds: Sequence[Kind] = KINDS,
    ) -> None:
        """`count` tasks in each split, of 1 to `max_requests` requests of these `kinds`, with
        `tools` tools or as many as are needed."""
        chosen = each_once("function_calling: kinds", kinds, KINDS)
        self.task_set = made_tasks(count, max_requests, tools, chosen)

    async def reset(self, task: Task, seed: int) -> Observation:
        data = copy.deepcopy(dict(task.data))
        self._play = Play(data["state"], data["tools"], data["requests"][1:])
        return await super().reset(task, seed)

    async def step(self, action: Action) -> Step:
        """Run the calls; after an answer, the next request, or the end."""
        if action.answer is None:
            return await super().step(action)
        if not self._play.waiting:
            return Step(done=True)
        return Step(Observation(self._play.waiting.pop(0), Source.USER))

    @tool
    async def tool_call(self, calls: str) -> str:
        """Call tools: {"name": "…", "parameters": {…}}, one such object a line."""
        try:
            found = read_calls(calls)
        except ValueError as error:
            raise ToolError(str(error)) from None
        if len(found) > MAX_CALLS:
            raise ToolError(f"there are {len(found)} calls: make {MAX_CALLS} at most in a turn")
        desk = Desk(self._play.state, self._play.tools)
        return "\n".join(_result(desk, call) for call in found)

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """Success when each request was answered, with what it asked for, and the state is what the
        requests make of it."""
        secret = trajectory.task.secret
        said = [turn.action.answer for turn in trajectory.turns if turn.action.answer is not None]
        told = len(said) == len(secret["answers"]) and all(
            expected is None or _is_told(answer, expected)
            for answer, expected in zip(said, secret["answers"], strict=True)
        )
        kept = self._play.state == secret["state"]
        expected = read_calls("\n".join(text for turns in secret["calls"] for text in turns))
        parts = {
            "state": float(kept),
            "answers": float(told),
            "toolrl_correct": toolrl_correctness(expected, calls_of(trajectory)),
            "toolrl_format": toolrl_form(trajectory),
        }
        success = kept and told
        twin, before = self.fresh(), trajectory.task.data["state"]
        twin._play = Play(copy.deepcopy(before), trajectory.task.data["tools"])
        states = await replayed(twin, trajectory, lambda: cells_of(twin._play.state))
        turn_parts = state_parts(cells_of(before), cells_of(secret["state"]), states)
        turn_parts["answered"] = _answered(trajectory, secret["answers"])
        return Verdict(float(success), success, parts, f"answered {said}", turn_parts)

    def oracle(self, task: Task) -> Sequence[Action]:
        actions = []
        for turns, answer in zip(task.secret["calls"], task.secret["answers"], strict=True):
            actions += [
                Action("", "do it", (ToolCall("tool_call", {"calls": calls}),)) for calls in turns
            ]
            actions.append(Action("", "done", answer=answer or "done"))
        return actions

    def random_actions(self, task: Task, stream: random.Random) -> Sequence[Action]:
        """Random calls of the task's tools, as many as are needed, with words of its requests; and
        an answer to each request."""
        words = re.findall(r"\w+", " ".join(task.data["requests"]))
        tools = [application_tools()[name] for name in task.data["tools"]]
        calls = [
            random_call(stream.choice(tools), words, stream) for _ in range(task.info["calls"])
        ]
        return [
            Action("", calls=(ToolCall("tool_call", {"calls": write_calls(calls)}),)),
            *(Action("", answer=stream.choice(words)) for _ in task.data["requests"]),
        ]

    def snapshot(self) -> bytes:
        return json.dumps(vars(self._play), sort_keys=True).encode()

    def restore(self, state: bytes) -> None:
        self._play = Play(**json.loads(state))


def _result(desk: Desk, call: ToolCall) -> str:
    try:
        return desk.call(call)
    except ToolError as error:
        return f"Error: {error}"


def _answered(trajectory: Trajectory, expected: Sequence[str | None]) -> list[float]:
    """For each turn the share of the questions that it answers rightly; a request that asks for
    nothing is no question."""
    questions = sum(text is not None for text in expected)
    waiting, shares = list(expected), []
    for turn in trajectory.turns:
        answer, text = turn.action.answer, None
        if answer is not None and waiting:
            text = waiting.pop(0)
        told = answer is not None and text is not None and _is_told(answer, text)
        shares.append(told / max(questions, 1))
    return shares


def _is_told(answer: str, expected: str) -> bool:
    if read_quantity(expected) is not None:
        return matches(answer, expected)
    return exact_match(answer, [expected])
