"""Single programs to repair, in QuixBugs' format, each as a repository of one file.

The records are those of the code environment (`code/programs.py`), which asks for the whole program
as the answer; here the file is changed with tools.
"""

from pathlib import Path

from turnwise.environments.base import Split
from turnwise.environments.code.programs import read_programs
from turnwise.environments.code.tasks import task_id
from turnwise.types import Task

KIND = "program"


def read_repositories(path: Path, heldout_share: float) -> dict[Split, list[Task]]:
    """The tasks of a file, each program once. Raises DataError as `read_programs` does."""
    read = read_programs(path, heldout_share)
    return {split: [_task(task) for task in tasks] for split, tasks in read.items()}


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
    return Task(task_id(prompt + buggy), prompt, secret, data, task.info)
