"""The code environment: write or repair a function, judged by hidden calls in a second sandbox.

The answer is the program itself. It may be tried before, with the tool `python`, in a sandbox that
knows nothing of the hidden calls; it is judged in another one, to which only their arguments go,
and from which only plain data comes back (`sandbox/grading.py`). Not here: repositories with test
suites.
"""

import asyncio
import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from turnwise.environments.base import Environment, EnvironmentSpec, Split
from turnwise.environments.code.pipelines import draw
from turnwise.environments.code.programs import as_json, read_programs
from turnwise.environments.code.tasks import NAME, made_tasks, tasks_hash
from turnwise.errors import ConfigError
from turnwise.sandbox.choice import make_sandbox
from turnwise.sandbox.grading import Case, grade_function
from turnwise.sandbox.settings import MEBIBYTE, Limits
from turnwise.tools.python import observation
from turnwise.tools.tool import tool
from turnwise.types import Action, Task, Trajectory, Verdict

COUNT, MAX_STEPS = 1000, 3
HELDOUT_SHARE = 0.5
TOLERANCE = 1e-6
"""Tolerance for floats, relative or absolute."""
RANDOM_SCORE = 0.0
"""Measured, none of the 2,000 standard tasks: success of a random function of the same making."""
MODULE = "answer"

_FENCED = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)\n?```", re.DOTALL)


class Code(Environment):
    """One tool, `python`.

    Example:
        Code(programs="quixbugs/programs.jsonl")
    """

    def __init__(
        self,
        count: int = COUNT,
        max_steps: int = MAX_STEPS,
        programs: str | None = None,
        heldout_share: float = HELDOUT_SHARE,
        seconds: float = 5.0,
        sandbox: Mapping[str, Any] = {},
    ) -> None:
        """`count` made functions in each split, of one to `max_steps` steps; or the programs of a
        file in QuixBugs' format, of which `heldout_share` is held out. A run, and all hidden calls
        together, may take `seconds`. `sandbox` is a recipe's table (see `make_sandbox`).

        Raises ConfigError for options that make no sense, DataError for a file that is broken.
        """
        if count < 1 or not 1 <= max_steps <= MAX_STEPS or not 0 <= heldout_share <= 1:
            raise ConfigError(
                f"code: count is 1 or more, max_steps 1 to {MAX_STEPS}, heldout_share 0 to 1"
            )
        if programs is None and heldout_share != HELDOUT_SHARE:
            raise ConfigError("code: heldout_share is for your own programs: give a path")
        if programs is not None and (count, max_steps) != (COUNT, MAX_STEPS):
            raise ConfigError("code: count and max_steps are for made functions, not for a file")
        limits = Limits(seconds=seconds, cpu_seconds=seconds, memory=256 * MEBIBYTE)
        self.sandbox = make_sandbox(sandbox, limits)
        self._max_steps = max_steps
        self._reference_scores = {"noop": 0.0, "oracle": 1.0}
        if programs is not None:
            self._tasks = read_programs(Path(programs).expanduser(), heldout_share)
        else:
            self._tasks = made_tasks(count, max_steps)
            if (count, max_steps) == (COUNT, MAX_STEPS):
                self._reference_scores["random"] = RANDOM_SCORE
        self._data_hash = tasks_hash(self._tasks)

    @property
    def spec(self) -> EnvironmentSpec:
        """The hash is of all tasks and of what is expected."""
        return EnvironmentSpec("code", "1", self._data_hash, self._reference_scores)

    def tasks(self, split: Split) -> Sequence[Task]:
        return self._tasks[split]

    @tool
    def python(self, code: str) -> str:
        """Run a Python program and see what it prints. Nothing stays for the next one."""
        return observation(self.sandbox.run_python(program_of(code)).checked(), False)

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """1 when all hidden calls return what they should; their share is among the parts."""
        secret, answer = trajectory.task.secret, trajectory.answer
        if not (answer or "").strip():
            return Verdict(0.0, False, {"passed": 0.0}, "no answer")
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
        return Verdict(float(success), success, {"passed": grade.share}, "; ".join(reasons)[:300])

    def oracle(self, task: Task) -> Sequence[Action]:
        """The known program."""
        return [Action("", "this is it", answer=task.secret["solution"])]

    def random_actions(self, task: Task, stream: random.Random) -> Sequence[Action]:
        """Some other function of the same making."""
        del task
        return [Action("", answer=draw(stream, self._max_steps).code(NAME))]

    def snapshot(self) -> bytes:
        """Nothing: a run leaves nothing behind, so an episode has no state here."""
        return b""

    def restore(self, state: bytes) -> None:
        """Accepts what `snapshot` gave. Raises ValueError for anything else."""
        if state:
            raise ValueError(f"not a snapshot of code: {len(state)} bytes")


def program_of(text: str) -> str:
    """The program of an answer: what stands in its one fenced block, or all of it.

    >>> program_of("```python\\nx = 1\\n```")
    'x = 1'
    """
    blocks = _FENCED.findall(text)
    return blocks[0] if len(blocks) == 1 else text
