"""The tasks of the mathematics environment: made by program, or read from files in GSM8K's
or MATH's format.

A task's secret is the accepted number, its unit's names where they are known, and the way there.
Both splits are decided by content. Not here: how problems are made (`problems.py`).
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from turnwise.environments.base import Split
from turnwise.environments.mathematics.problems import problems
from turnwise.environments.records import read_records
from turnwise.environments.tasksets import shuffled_split
from turnwise.errors import ConfigError, DataError
from turnwise.rewards.numeric import matches, read_quantity
from turnwise.seeds import derive
from turnwise.types import Task

DRAFTS_PER_TASK = 20
"""Problems that may be drafted for each one that is sound and new, at most."""

_ANNOTATION = re.compile(r"<<([^<>=]*)=([^<>]*)>>")
_MARK = "####"


def made_tasks(count: int, min_steps: int, max_steps: int) -> dict[Split, list[Task]]:
    """`count` tasks for each split; no problem of one is in the other under other names.

    Raises ConfigError where there are not so many different problems of so many steps.
    """
    tasks: dict[Split, list[Task]] = {"train": [], "heldout": []}
    for problem in problems(min_steps, max_steps, 2 * count * DRAFTS_PER_TASK):
        split: Split = "heldout" if derive("split", problem.key) % 2 else "train"
        if len(tasks[split]) < count:
            secret = {
                "answer": problem.answer,
                "units": [problem.unit],
                "solution": list(problem.steps),
            }
            info = {"steps": len(problem.steps), "kind": problem.kind}
            tasks[split].append(Task(_id(problem.text), problem.text, secret, info=info))
        if all(len(found) == count for found in tasks.values()):
            return tasks
    found = min(map(len, tasks.values()))
    raise ConfigError(f"mathematics: there are only about {found} such problems: lower count")


def read_questions(
    path: Path, heldout_share: float
) -> tuple[dict[Split, list[Task]], Sequence[str]]:
    """The tasks of a file in GSM8K's or MATH's format, shuffled by a hash, and a sentence on what
    is left out; a question's content decides its split, and one that occurs again is one task.

    A record of GSM8K's has `question` and `answer`; an answer is a number, or a solution that ends
    with `#### number`, in which `<<48/2=24>>` marks what a calculator was used for. One of MATH's
    has `problem`, and `answer` or a `solution` with it in its last `\\boxed{}`, in LaTeX; those
    that are no numbers, but expressions, intervals or words, are left out. Raises DataError, naming
    file and line, for what is missing, for an answer of GSM8K's that is not a number, and where
    nothing is left.
    """
    tasks: dict[str, Task] = {}
    others = 0
    for where, record in read_records(path):
        task = _of_math(record, where) if "problem" in record else _of_gsm8k(record, where)
        if task is None:
            others += 1
            continue
        known = tasks.setdefault(task.id, task)
        if not matches(task.secret["answer"], known.secret["answer"]):
            raise DataError(f"{where}: the question was there before, with another answer")
    told = f"{others} questions whose answer is no number are left out"
    if not tasks:
        raise DataError(f"{path}: there are no questions in it{f'; {told}' if others else ''}")
    return shuffled_split(tasks.values(), heldout_share), [told] if others else []


def _of_gsm8k(record: Mapping[str, Any], where: str) -> Task:
    for name in ("question", "answer"):
        if not isinstance(record.get(name), str) or not record[name].strip():
            raise DataError(
                f"{where}: {name!r} must be there, a string that is not empty (fields are "
                "'question' and 'answer', or MATH's 'problem' and 'solution' or 'answer')"
            )
    solution, mark, final = record["answer"].rpartition(_MARK)
    answer = final.strip()
    if read_quantity(answer) is None:
        form = f"after {_MARK}" if mark else f"or a solution that ends with {_MARK} and a number"
        raise DataError(f"{where}: 'answer' must be a number {form}, not {answer!r:.40}")
    steps = [expression.strip() for expression, _ in _ANNOTATION.findall(solution)]
    return _task(record["question"], answer, steps)


def _of_math(record: Mapping[str, Any], where: str) -> Task | None:
    question, answer = record["problem"], record.get("answer", record.get("solution"))
    if not all(isinstance(one, str) and one.strip() for one in (question, answer)):
        raise DataError(
            f"{where}: 'problem', and 'answer' or 'solution', must be there, as strings"
        )
    if "answer" not in record:
        answer = _boxed(answer)
    return None if read_quantity(answer) is None else _task(question, answer.strip(), [])


def _boxed(solution: str) -> str:
    """The content of a solution's last \\boxed{}, braces in it included; "" without one."""
    _, mark, rest = solution.rpartition("\\boxed{")
    depth = 1
    for place, character in enumerate(rest if mark else ""):
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return rest[:place]
    return ""


def _task(text: str, answer: str, steps: list[str]) -> Task:
    question = text.strip()
    secret = {"answer": answer, "units": None, "solution": steps}
    return Task(_id(question), question, secret, info={"steps": len(steps)})


def _id(question: str) -> str:
    """Hash of the words alone: the same for questions that differ in case and spaces."""
    return hashlib.sha256(" ".join(question.lower().split()).encode()).hexdigest()[:16]


def tasks_hash(tasks: Mapping[Split, Sequence[Task]]) -> str:
    """A hash of all questions and answers of both splits."""
    digest = hashlib.sha256()
    for split, entries in tasks.items():
        for task in entries:
            digest.update(f"{split}\x1f{task.prompt}\x1f{task.secret['answer']}\x1e".encode())
    return digest.hexdigest()
