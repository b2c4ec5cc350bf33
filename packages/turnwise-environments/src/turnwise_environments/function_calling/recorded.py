"""Recorded dialogues whose next calls are known: ToolRL's data, and yours in its format.

An episode is one turn: the tools and the dialogue so far are shown, the model calls or answers, and
the calls are compared with the recorded ones (`rewards/toolrl.py`). Nothing is run, because the
tools are not here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from turnwise.environments.base import Environment, EnvironmentSpec
from turnwise.environments.tasksets import TaskFile, TaskSet, every
from turnwise.errors import DataError, ToolError
from turnwise.tools.tool import tool
from turnwise.types import Action, Step, Task, ToolCall, Trajectory, Verdict
from turnwise_environments.common import identity, ids_with
from turnwise_environments.function_calling import environment as calling
from turnwise_environments.function_calling.bfcl import LeaderboardFile, is_accepted
from turnwise_environments.rewards.toolrl import (
    BEST,
    calls_of,
    read_calls,
    toolrl_correctness,
    toolrl_form,
    write_calls,
)

TOOLS_MARK, END_MARK = "**Available Tools**", "**Steps for Each Turn**"
PARTS = {name: part for name, part in calling.PARTS.items() if name.startswith("toolrl_")}
LEFT_OUT = "an answer is expected, and no call"
DIALOGUE_MARK = "**Dialogue Records History**"


@dataclass(frozen=True)
class RecordFile(TaskFile):
    """The records of a file in ToolRL's format. Those that expect an answer and no call are left
    out unless `without_calls` is set: any answer in the right form would succeed."""

    without_calls: bool = False

    def load(self) -> TaskSet:
        """The reference score `answer` is the share of records that expect no call."""

        def read(record: Mapping[str, Any], where: str) -> Task | str:
            task = _task(record, where)
            return task if task.secret["calls"] or self.without_calls else LEFT_OUT

        task_set = TaskSet.read(self, read, content=ids_with("calls"))
        free = fmean(not task.secret["calls"] for _, task in every(task_set.tasks))
        return replace(task_set, reference_scores={"noop": 0.0, "answer": free, "oracle": 1.0})


class RecordedCalls(Environment):
    """One tool, `tool_call`, whose calls are the end of the episode. Example:
    `RecordedCalls(tasks=RecordFile("rlla_sft.json", heldout_share=0.1))`."""

    facts = EnvironmentSpec("recorded_calls", "1", rewards="signed", parts=PARTS)
    stateless = True

    def __init__(self, tasks: RecordFile | LeaderboardFile) -> None:
        self.task_set = tasks.load()

    async def step(self, action: Action) -> Step:
        return replace(await super().step(action), done=True)

    @tool
    async def tool_call(self, calls: str) -> str:
        """Call tools: {"name": "…", "parameters": {…}}, one such object a line."""
        try:
            return f"{len(read_calls(calls))} calls"
        except ValueError as error:
            raise ToolError(str(error)) from None

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """ToolRL's reward, of -3 to 4; success is the very calls that were recorded, in any order,
        or an answer where none was."""
        text = trajectory.task.secret["calls"]
        expected = read_calls(text) if text else []
        given = calls_of(trajectory)
        correct = toolrl_correctness(expected, given or None)
        if given and is_accepted(given, trajectory.task.secret.get("accepted", ())):
            correct = BEST
        form = toolrl_form(trajectory) if bool(given) == bool(expected) else 0.0
        answered = bool(trajectory.answer and trajectory.answer.strip())
        success = correct == BEST if expected else answered and not given
        parts = {"toolrl_correct": correct, "toolrl_format": form}
        return Verdict(correct + form, success, parts, f"{len(given)} of {len(expected)} calls")

    def oracle(self, task: Task) -> Sequence[Action]:
        if not task.secret["calls"]:
            return [Action("", "no tool is needed", answer=task.secret["response"])]
        call = ToolCall("tool_call", {"calls": task.secret["calls"]})
        return [Action("", "these calls", (call,))]


def _task(record: Mapping[str, Any], where: str) -> Task:
    for name in ("instruction", "input", "output"):
        if not isinstance(record.get(name), str):
            raise DataError(f"{where}: {name!r} must be there, a string")
    tools = _between(record["instruction"], TOOLS_MARK, END_MARK)
    dialogue = _between(record["input"], DIALOGUE_MARK, None)
    if tools is None or dialogue is None:
        missing = TOOLS_MARK if tools is None else DIALOGUE_MARK
        raise DataError(f"{where}: there is no {missing!r}: not a record of ToolRL's")
    said = record["output"].rpartition("</think>")[2]
    calls, response = (_between(said, f"<{tag}>", f"</{tag}>") for tag in ("tool_call", "response"))
    if calls is None and not response:
        raise DataError(f"{where}: 'output' has neither <tool_call> nor <response>")
    try:
        expected = write_calls(read_calls(calls)) if calls is not None else ""
    except ValueError as error:
        raise DataError(f"{where}: 'output': {error}") from None
    prompt = f"Tools:\n{tools}\n\n{dialogue}"
    secret = {"calls": expected, "response": response or ""}
    number = len(expected.splitlines())
    return Task(identity(prompt), prompt, secret, info={"calls": number})


def _between(text: str, start: str, end: str | None) -> str | None:
    """The text between two marks, to the end of the text for None; None without them."""
    _, found, rest = text.partition(start)
    inside, closed, _ = rest.partition(end) if end is not None else (rest, start, "")
    return inside.strip() if found and closed else None
