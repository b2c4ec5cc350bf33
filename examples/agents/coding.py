"""Functions to be written into a file, by an agent that works with files: a command-line one.

Each episode has a folder of its own, in which the agent is started. The file that it leaves there
is judged by hidden calls, in a sandbox.
"""

import asyncio
import shutil
import tempfile
from pathlib import Path

from turnwise import Environment, Task, Verdict
from turnwise.sandbox.choice import make_sandbox
from turnwise.sandbox.settings import Limits
from turnwise_sandbox.grading import Case, grade_function

FUNCTIONS = {
    "reversed_words": ("returns the words of a text in reverse order", [("a b c", "c b a")]),
    "vowels": ("returns the number of vowels (a, e, i, o, u) of a text", [("banana", 3)]),
    "initials": ("returns the first letters of a text's words, in upper case", [("my dog", "MD")]),
    "longest": ("returns the longest word of a text, the first of several", [("to be all", "all")]),
}
"""What a function does, and calls with what they return."""
FILE = "solution.py"


class Coding(Environment):
    def __init__(self):
        self.sandbox = make_sandbox({}, Limits(seconds=10.0))

    def tasks(self, split):
        names = sorted(FUNCTIONS)
        return [self._task(name) for name in (names[:3] if split == "train" else names[3:])]

    def _task(self, name):
        does, cases = FUNCTIONS[name]
        prompt = f"Write a function {name}(text) into the file {FILE}. It {does}."
        return Task(name, prompt, {"cases": cases})

    async def reset(self, task, seed):
        self.folder = Path(tempfile.mkdtemp(prefix="coding-"))
        return await super().reset(task, seed)

    async def verify(self, trajectory):
        file, task = self.folder / FILE, trajectory.task
        if not file.is_file():
            return Verdict(0.0, False, detail=f"there is no {FILE}")
        cases = [Case((text,), wanted) for text, wanted in task.secret["cases"]]
        grade = await asyncio.to_thread(
            grade_function, self.sandbox, {FILE: file.read_bytes()}, f"solution:{task.id}", cases
        )
        return Verdict(grade.share, all(grade.passed), detail="; ".join(grade.reasons))

    async def close(self):
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
