"""Single programs to repair, in QuixBugs' format, each as a repository of one file.

The records are those of the code environment (`code/tasks.py`), which asks for the whole program
as the answer; here the file is changed with tools.
"""

from dataclasses import dataclass, replace

from turnwise.environments.tasksets import SOLVED, SPLITS, TaskSet
from turnwise.types import Task
from turnwise_environments.code import tasks as code
from turnwise_environments.common import identity

KIND = "program"


@dataclass(frozen=True)
class ProgramFile(code.ProgramFile):
    """The programs of a file in QuixBugs' format, as repositories."""

    def load(self) -> TaskSet:
        read = super().load()
        tasks = {split: [_task(one) for one in read.tasks[split]] for split in SPLITS}
        return replace(TaskSet.of(tasks, SOLVED), warnings=read.warnings)


def _task(task: Task) -> Task:
    name = task.secret["name"]
    prompt = (
        f"The function {name} in {name}.py, in the current folder, does not do what its "
        "documentation says. Repair it, and answer when that is done. Calls that you do not see "
        "judge it."
    )
    buggy = task.data["buggy"].strip() + "\n"
    secret = {
        **task.secret,
        "kind": KIND,
        "solution": {f"{name}.py": task.secret["solution"].strip() + "\n"},
    }
    data = {"files": {f"{name}.py": buggy}, "sources": [f"{name}.py"]}
    return Task(identity(prompt + buggy), prompt, secret, data, task.info)
