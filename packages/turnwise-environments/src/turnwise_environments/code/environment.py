"""The code environment: write or repair a function, judged by hidden calls in a second sandbox.

The answer is the program itself. It may be tried before, with the tool `python`, in a sandbox that
knows nothing of the hidden calls; it is judged in another one, to which only their arguments go,
and from which only plain data comes back (`turnwise_sandbox/grading.py`).
"""

import asyncio
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

from turnwise.environments.base import Environment, EnvironmentSpec
from turnwise.environments.turn_parts import results_of, share, share_of_turn
from turnwise.ranges import Seconds
from turnwise.sandbox.base import CodeSandbox
from turnwise.sandbox.choice import make_sandbox
from turnwise.sandbox.settings import MEBIBYTE
from turnwise.tools.tool import tool
from turnwise.types import Action, Task, Trajectory, Verdict
from turnwise_environments.code.tasks import (
    NAME,
    STANDARD,
    MadeFunctions,
    ProgramFile,
    as_json,
    draw,
)
from turnwise_environments.common import working_limits
from turnwise_sandbox.grading import Case, grade_function
from turnwise_sandbox.tools.python import observation, tells_of_failure

TOLERANCE = 1e-6
"""Tolerance for floats, relative or absolute."""
PARTS = {
    "passed": share("hidden calls that return what they should"),
    "runs": share("hidden calls that return plain data, right or not"),
}
TURN_PARTS = {"errors": share_of_turn("1 where a tried program showed a traceback or was stopped")}
MODULE = "answer"

_FENCED = re.compile(r"```(?i:python3?|py)?[ \t]*\n(.*?)\n?```", re.DOTALL)


class Code(Environment):
    """One tool, `python`. Example: `Code(tasks=ProgramFile("quixbugs/programs.jsonl"))`."""

    facts = EnvironmentSpec("code", "1", parts=PARTS | TURN_PARTS)
    stateless = True
    sandbox: CodeSandbox

    def __init__(
        self,
        tasks: MadeFunctions | ProgramFile = STANDARD,
        seconds: Seconds = 5.0,
        sandbox: Mapping[str, Any] = {},
    ) -> None:
        """A run, and all hidden calls together, may take `seconds` of the processor, and up to four
        times as many of the clock. `sandbox` is a recipe's table (see `make_sandbox`)."""
        self.sandbox = make_sandbox(sandbox, working_limits(seconds, 256 * MEBIBYTE))
        self.task_set = tasks.load()
        self._made = tasks if isinstance(tasks, MadeFunctions) else STANDARD

    @tool
    def python(self, code: str) -> str:
        """Run a Python program and see what it prints. Nothing stays for the next one."""
        return observation(self.sandbox.run_python(program_of(code)).checked(), False)

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """1 when all hidden calls return what they should."""
        secret, answer = trajectory.task.secret, trajectory.answer
        turn_parts = {"errors": errors(trajectory)}
        if not (answer or "").strip():
            return Verdict(0.0, False, dict.fromkeys(PARTS, 0.0), "no answer", turn_parts)
        files = {f"{MODULE}.py": program_of(answer or "").encode(errors="replace")}
        target = f"{MODULE}:{secret['name']}"
        if secret.get("as_json"):
            files |= {"judged.py": as_json(MODULE, secret["name"]).encode()}
            target = "judged:call"
        cases = [
            Case(tuple(arguments), expected, tolerance=tolerance)
            for arguments, expected, tolerance in secret["cases"]
        ]
        grade = await asyncio.to_thread(
            grade_function, self.sandbox, files, target, cases, tolerance=TOLERANCE
        )
        success = all(grade.passed)
        reasons = sorted({reason for reason in grade.reasons if reason})
        parts = {"passed": grade.share, "runs": grade.returned}
        return Verdict(float(success), success, parts, "; ".join(reasons)[:300], turn_parts)

    def oracle(self, task: Task) -> Sequence[Action]:
        return [Action("", "this is it", answer=task.secret["solution"])]

    def random_actions(self, task: Task, stream: random.Random) -> Sequence[Action]:
        del task
        return [Action("", answer=draw(stream, self._made.max_steps).code(NAME))]


def errors(trajectory: Trajectory) -> list[float]:
    """1 for each turn of which a program showed a traceback or was stopped. Which tests it passes
    is not measured: what it prints is its own word."""
    contents = [[one.content for one in results_of(t, "python")] for t in trajectory.turns]
    return [float(any(map(tells_of_failure, found))) for found in contents]


def program_of(text: str) -> str:
    """The program of an answer: what stands in its one fenced block, or all of it.

    >>> program_of("```python\\nx = 1\\n```")
    'x = 1'
    """
    blocks = _FENCED.findall(text)
    return blocks[0] if len(blocks) == 1 else text
