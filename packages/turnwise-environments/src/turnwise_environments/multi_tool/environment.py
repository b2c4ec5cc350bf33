"""Several tools at once: a search over documents, and a calculator or Python.

A question needs both, one or none of them, and does not say which. Tool-Star's reward (arXiv
2505.16410) is among the verdict's parts.
"""

import random
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from turnwise.environments.base import Environment, EnvironmentSpec
from turnwise.environments.turn_parts import (
    REPEATS,
    first_shown,
    gain_part,
    lines_of,
    repeats,
    results_of,
    share,
)
from turnwise.errors import ConfigError, ToolError
from turnwise.ranges import Count, Range
from turnwise.rewards.answer import exact_match
from turnwise.rewards.parts import RewardPart
from turnwise.tools.bm25 import BM25Index
from turnwise.tools.tool import tool
from turnwise.types import Action, Task, ToolCall, Trajectory, Turn, Verdict
from turnwise_environments.common import each_once
from turnwise_environments.multi_tool.tasks import COUNT, KINDS, MOST, Kind, made_tasks, towns
from turnwise_environments.rewards.numeric import matches
from turnwise_environments.tools.interpreter import BrokenInterpreter, InterpreterTools

BONUS, MALFORMED = 0.1, -1.0
"""Tool-Star's rewards for a right answer with both tools, and for a broken form."""
PARTS = {
    "correct": share("whether the answer is right"),
    "both_used": share("whether both tools gave a result"),
    "both_tools": RewardPart(
        MALFORMED,
        1 + BONUS,
        "Tool-Star's reward: -1 malformed or without an answer, 0 wrong, 1 right, 0.1 more with "
        "both tools",
    ),
    "gain": gain_part("share of the needed documents that are shown for the first time"),
    "repeats": REPEATS,
}


class MultiTool(InterpreterTools):
    """Tools: `search`, and `calculator` or `python`."""

    facts = EnvironmentSpec("multi_tool", "1", parts=PARTS)
    stateless = True

    def __init__(
        self,
        count: Annotated[int, Range(1, MOST)] = COUNT,
        interpreter: Literal["calculator", "python"] = "calculator",
        top_k: Count = 3,
        kinds: Sequence[Kind] = KINDS,
        sandbox: Mapping[str, Any] = {},
    ) -> None:
        """`count` tasks in each split, as many of each of the `kinds`, which say what a question
        needs. A search gives `top_k` documents. `sandbox` is a recipe's table for `python` (see
        `make_sandbox`)."""
        chosen = each_once("multi_tool: kinds", kinds, KINDS)
        if count > (most := MOST // len(KINDS) * len(chosen)):
            raise ConfigError(f"multi_tool: of these kinds there are {most} tasks: lower count")
        self.set_interpreter(interpreter, sandbox)
        self._top_k = top_k
        found = towns()
        self._documents = [town.document for split in found.values() for town in split]
        names = [town.name for split in found.values() for town in split]
        self._index = BM25Index(self._documents, names)
        self.task_set = made_tasks(count, found, chosen)

    @tool
    async def search(self, query: str) -> str:
        """Search documents about towns; gives the best matches, one on each line."""
        if not query.strip():
            raise ToolError("the query is empty: write the words to search for")
        found = self._found(query)
        lines = [f"[{number}] {text}" for number, text in enumerate(found, start=1)]
        return "\n".join(lines) or "No results."

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """Success when the model's own last answer is the right one."""
        answer, accepted = trajectory.answer, trajectory.task.secret["answer"]
        if accepted.isdecimal():
            success = matches(answer, accepted)
        else:
            success = exact_match(answer, [accepted])
        results = (result for turn in trajectory.turns for result in results_of(turn))
        both = {result.call.name for result in results} >= {"search", self.interpreter}
        parts = {
            "correct": float(success),
            "both_used": float(both),
            "both_tools": tool_star(trajectory, success, both),
        }
        shown = [_documents(turn) for turn in trajectory.turns]
        gold = [
            [text for text in self._documents if text.startswith(f"{name}. ")]
            for name in trajectory.task.secret["searches"]
        ]
        turn_parts = {"gain": first_shown(gold, shown), "repeats": repeats(shown)}
        return Verdict(float(success), success, parts, f"answered {answer!r}", turn_parts)

    def oracle(self, task: Task) -> Sequence[Action]:
        secret = task.secret
        calls = [ToolCall("search", {"query": name}) for name in secret["searches"]]
        calls += map(self.calculation, secret["sums"])
        work = [Action("", f"step {number}", (call,)) for number, call in enumerate(calls, 1)]
        return [*work, Action("", "that is it", answer=secret["answer"])]

    def random_actions(self, task: Task, stream: random.Random) -> Sequence[Action]:
        return [Action("", answer=stream.choice(re.findall(r"\w+", task.prompt)))]

    def ablations(self) -> Mapping[str, Environment]:
        broken = self.under(BrokenInterpreter)
        return {"no_search": self.variant(NoSearch), "no_interpreter": broken}

    def _found(self, query: str) -> list[str]:
        return [self._documents[place] for place in self._index.search(query, self._top_k)]


class NoSearch(MultiTool):
    def _found(self, query: str) -> list[str]:
        del query
        return []


def tool_star(trajectory: Trajectory, success: bool, both_used: bool) -> float:
    """Tool-Star's reward, with 1 in place of F1: answers here are right or not."""
    malformed = any(turn.action.error is not None for turn in trajectory.turns)
    if malformed or trajectory.answer is None:
        return MALFORMED
    return success * (1.0 + BONUS * both_used)


def _documents(turn: Turn) -> list[str]:
    lines = lines_of(turn, "search")
    return [line.partition("] ")[2] for line in lines if line.startswith("[")]
