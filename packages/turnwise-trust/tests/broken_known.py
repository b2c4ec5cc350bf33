"""Broken environments, one loophole each, written with knowledge of the probes.

`BROKEN` has the probe and the check that have to find each.
"""

import base64
import os
import random
import re
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from turnwise.environments.base import Environment
from turnwise.errors import ToolError
from turnwise.tools.tool import Tool, tool
from turnwise.types import Action, Observation, Task, ToolCall, Trajectory, Verdict
from turnwise_trust.audit.constants import constants
from turnwise_trust.audit.escapes import escapes
from turnwise_trust.audit.leaks import leaks
from turnwise_trust.audit.readers import prompts
from turnwise_trust.audit.subject import Probe
from turnwise_trust.audit.table import ATTACKS

COUNT = 24


def judged(success: bool) -> Verdict:
    return Verdict(float(success), success)


class Sums(Environment):
    """A sound one: sums of two numbers, the whole answer compared; a tool that tells the time."""

    def tasks(self, split: str) -> Sequence[Task]:
        stream = random.Random(split)
        pairs = [(stream.randint(100, 999), stream.randint(100, 999)) for _ in range(COUNT // 2)]
        return [self.task(f"{split}-{n}", *pair) for n, pair in enumerate(pairs)]

    def task(self, name: str, one: int, other: int) -> Task:
        return Task(name, f"Add {one} + {other} for me, please.", {"sum": one + other})

    @tool
    def add(self, one: int, other: int) -> str:
        """Add two numbers."""
        return f"The sum of the numbers {one} and {other} that you gave is {one + other}, I think."

    def oracle(self, task: Task) -> Sequence[Action]:
        one, other = map(int, re.findall(r"\d+", task.prompt)[:2])
        call = ToolCall("add", {"one": one, "other": other})
        return [Action("", calls=(call,)), Action("", answer=str(task.secret["sum"]))]

    def verify(self, trajectory: Trajectory) -> Verdict:
        return judged(self.right(trajectory.answer or "", str(trajectory.task.secret["sum"])))

    def right(self, answer: str, wanted: str) -> bool:
        return answer.strip() == wanted


class Contains(Sums):
    def right(self, answer: str, wanted: str) -> bool:
        return wanted in answer


class FailsOpen(Sums):
    def right(self, answer: str, wanted: str) -> bool:
        return not answer.strip().isdecimal() or super().right(answer, wanted)


class Unanswered(Sums):
    def verify(self, trajectory: Trajectory) -> Verdict:
        return judged(True) if trajectory.answer is None else super().verify(trajectory)  # type: ignore[return-value]


class PaidByTheWord(Sums):
    def verify(self, trajectory: Trajectory) -> Verdict:
        return Verdict(min(1.0, len(trajectory.written) / 1000), False)


class Evaluates(Sums):
    def right(self, answer: str, wanted: str) -> bool:
        terms = re.findall(r"\d+", answer)
        return (
            bool(terms)
            and set(answer) <= set("0123456789+ ")
            and sum(map(int, terms)) == int(wanted)
        )


class OneAnswer(Sums):
    def task(self, name: str, one: int, other: int) -> Task:
        return Task(name, f"Add {one} + {777 - one}.", {"sum": 777})


class LastWord(Sums):
    def task(self, name: str, one: int, other: int) -> Task:
        return Task(name, f"Add {one} + {other}. Hint: {one + other}", {"sum": one + other})


class Encoded(Sums):
    def task(self, name: str, one: int, other: int) -> Task:
        hidden = base64.b64encode(str(one + other).encode()).decode()
        return Task(name, f"Add {one} + {other} {hidden}", {"sum": one + other})


class Tolerant(Sums):
    def right(self, answer: str, wanted: str) -> bool:
        return answer.isdecimal() and abs(int(answer) - int(wanted)) < 200


class Lengths(Sums):
    """Sound: a sum in its unit, which may be left out."""

    def oracle(self, task: Task) -> Sequence[Action]:
        return [Action("", answer=f"{task.secret['sum']} m")]

    def right(self, answer: str, wanted: str) -> bool:
        return answer.strip() in (f"{wanted} m", f"{wanted}m", wanted)


class AnyUnit(Lengths):
    def right(self, answer: str, wanted: str) -> bool:
        return re.fullmatch(rf"{wanted} ?[a-z]*", answer) is not None


class Shares(Sums):
    """Sound: a sum in per cent, whose sign may be left out as in many data sets."""

    def oracle(self, task: Task) -> Sequence[Action]:
        return [Action("", answer=f"{task.secret['sum']}%")]

    def right(self, answer: str, wanted: str) -> bool:
        return answer.strip().removesuffix("%") == wanted


class AnyShare(Shares):
    def right(self, answer: str, wanted: str) -> bool:
        return answer.removesuffix("%") in (wanted, f"{int(wanted) / 100:g}")


class LooksEverywhere(Sums):
    def verify(self, trajectory: Trajectory) -> Verdict:
        wanted = str(trajectory.task.secret["sum"])
        return judged(trajectory.answer == wanted or wanted in "".join(trajectory.observed))


class LastNumber(Sums):
    def right(self, answer: str, wanted: str) -> bool:
        return re.findall(r"\d+", answer)[-1:] == [wanted]


class Told(Sums):
    """An environment that knows the answer when it makes its scene."""

    wanted = 0

    async def reset(self, task: Task, seed: int) -> Observation:
        self.wanted = sum(map(int, re.findall(r"\d+", task.prompt)))
        return await super().reset(task, seed)


class InSchemas(Told):
    def tools(self) -> list[Tool]:
        made = super().tools()[0]
        text = f"Add numbers, as to {self.wanted}."
        return [Tool(made.name, text, {**made.schema, "description": text}, made.function)]


class InErrors(Told):
    @tool
    def submit(self, text: str) -> str:
        """Submit a text."""
        raise ToolError(f"{text!r} is not {self.wanted}")


class InVariables(Told):
    async def reset(self, task: Task, seed: int) -> Observation:
        first = await super().reset(task, seed)
        os.environ["TURNWISE_TEST_WANTED"] = str(self.wanted)
        return first

    async def close(self) -> None:
        os.environ.pop("TURNWISE_TEST_WANTED", None)


class InData(Sums):
    def task(self, name: str, one: int, other: int) -> Task:
        return Task(name, f"Add {one} + {other}.", {"sum": one + other}, {"label": one + other})


class Commanded(Sums):
    """Sound: commands of a game, which may be said in fewer words."""

    opened = False

    async def reset(self, task: Task, seed: int) -> Observation:
        self.opened, self.taken = False, ""
        return await super().reset(task, seed)

    def task(self, name: str, one: int, other: int) -> Task:
        return Task(name, f"Bring me book {one}. There is a shelf.", {"sum": one, "other": other})

    @tool
    def act(self, command: str) -> str:
        """Give a command."""
        verb, _, rest = command.partition(" ")
        self.opened = self.opened or command == "open shelf"
        self.taken = rest.partition(" ")[0] if self.opened and verb == "take" else self.taken
        return "Very well."

    def oracle(self, task: Task) -> Sequence[Action]:
        commands = ("open shelf", f"take {task.secret['sum']} from shelf {task.secret['other']}")
        return [Action("", calls=(ToolCall("act", {"command": one}),)) for one in commands]

    def right(self, answer: str, wanted: str) -> bool:
        return self.taken == wanted


class Marked(Sums):
    """Sound: one answer between marks, whatever else is written."""

    def oracle(self, task: Task) -> Sequence[Action]:
        return [Action("", answer=f"<sum>{task.secret['sum']}</sum>")]

    def right(self, answer: str, wanted: str) -> bool:
        denied = re.search(r"\bnot\b|wrong|anything but", answer)
        return not denied and re.findall(r"<sum>(.*?)</sum>", answer) == [wanted]


class Raises(Sums):
    def right(self, answer: str, wanted: str) -> bool:
        return int(answer) == int(wanted)


class Crashes(Sums):
    @tool
    def half(self, text: str) -> str:
        """Halve a number."""
        return str(int(text) / 2)


class Written(Sums):
    """Files that the agent writes; sound in that the sum is asked of one of them."""

    believed = ""

    async def reset(self, task: Task, seed: int) -> Observation:
        self.files: dict[str, str] = {}
        return Observation(task.prompt)

    @tool
    def write_file(self, path: str, content: str) -> str:
        """Write a file."""
        self.files[path] = content
        return "written"

    def oracle(self, task: Task) -> Sequence[Action]:
        call = ToolCall("write_file", {"path": "sum.txt", "content": str(task.secret["sum"])})
        return [Action("", calls=(call,)), Action("", answer="done")]

    def verify(self, trajectory: Trajectory) -> Verdict:
        wanted = str(trajectory.task.secret["sum"])
        passed = self.files.get(self.believed, "").strip() == "1"
        return judged(passed or self.files.get("sum.txt") == wanted)


class OutcomeFile(Written):
    believed = "reward.txt"


class Programs(Sums):
    """Functions that double a number, called in this process."""

    def task(self, name: str, one: int, other: int) -> Task:
        return Task(name, f"Write f(x), which adds {one} to x.", {"sum": one})

    def oracle(self, task: Task) -> Sequence[Action]:
        return [Action("", answer=f"def f(x):\n    return x + {task.secret['sum']}")]

    def right(self, answer: str, wanted: str) -> bool:
        found: dict[str, Any] = {}
        try:
            exec(answer, found)
            return bool(found["f"](1) == 1 + int(wanted))
        except (Exception, SystemExit):  # noqa: BLE001 - a program may raise anything
            return False


class ExitStatus(Programs):
    def right(self, answer: str, wanted: str) -> bool:
        program = f"{answer}\nassert type(f(1)) is int and f(1) == 1 + {wanted}"
        command = [sys.executable, "-I", "-S", "-c", program]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


NAMED: dict[str, Probe] = {one.check: one for one in ATTACKS}
BROKEN: dict[type[Environment], tuple[Probe, str]] = {
    Contains: (NAMED["a hedged answer"], "a hedged answer"),
    FailsOpen: (NAMED["an empty or malformed answer"], "an empty or malformed answer"),
    Unanswered: (NAMED["no answer at all"], "no answer at all"),
    PaidByTheWord: (NAMED["a very long answer"], "a very long answer"),
    Evaluates: (NAMED["the prompt echoed"], "the prompt echoed"),
    OneAnswer: (constants, "a constant answer"),
    LastWord: (prompts, "the prompt searched for the answer"),
    Encoded: (leaks, "secrets in the prompt, in base64"),
    Tolerant: (NAMED["a number that is near"], "a number that is near"),
    AnyUnit: (NAMED["another unit"], "another unit"),
    AnyShare: (NAMED["another unit"], "another unit"),
    LooksEverywhere: (NAMED["the right answer elsewhere"], "the right answer elsewhere"),
    LastNumber: (NAMED["a denied answer"], "a denied answer"),
    InSchemas: (leaks, "secrets in tool schemas"),
    InErrors: (leaks, "secrets in tool errors"),
    InVariables: (leaks, "secrets in environment variables"),
    InData: (leaks, "the answer in public data"),
    Raises: (escapes, "strange answers that escape a grade"),
    Crashes: (escapes, "strange calls that escape a grade"),
    OutcomeFile: (NAMED["grader: outcome files"], "grader: outcome files"),
    Programs: (NAMED["grader: replaced functions"], "grader: replaced functions"),
    ExitStatus: (NAMED["grader: exits"], "grader: exits"),
}
SOUND = (Sums, Lengths, Shares, Told, Written, Commanded, Marked)
