"""Documents and the tasks that ask for what is in them: the built-in ones, or a user's own."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from turnwise.environments.search.corpus import Document, standard_library
from turnwise.environments.search.documents import (
    index_documents,
    question_task,
    read_documents,
    read_questions,
    unsupported,
)
from turnwise.environments.search.tasks import standard_tasks
from turnwise.environments.tasksets import (
    SOLVED,
    SPLITS,
    TaskFile,
    Tasks,
    TaskSet,
    every,
    shuffled_split,
)
from turnwise.options import Options
from turnwise.tools.bm25 import BM25Index
from turnwise.types import Task

Hops = Literal["one", "two", "three", "intersection"]


@dataclass(frozen=True)
class Library:
    """Documents, the index of their words, and tasks about them."""

    documents: Sequence[Document]
    words: BM25Index
    task_set: TaskSet


@dataclass(frozen=True)
class StandardQuestions(Options):
    """Questions about Python's library. Without `inverse` those that look for a thing by what is
    stated of it (the class derived from another one, all intersections) are left out; with `hops`
    those of other kinds than these."""

    inverse: bool = True
    hops: tuple[Hops, ...] = ()

    def load(self) -> Library:
        documents = standard_library()
        words = index_documents(documents)
        every = standard_tasks(documents, words)
        tasks: Tasks = {
            split: [task for task in every[split] if self._asks(task)] for split in SPLITS
        }
        return Library(documents, words, task_set(documents, tasks, SOLVED))

    def _asks(self, task: Task) -> bool:
        wanted = not self.hops or task.info["hops"] in self.hops
        return wanted and (self.inverse or not task.secret["inverse"])


STANDARD = StandardQuestions()


@dataclass(frozen=True)
class QuestionFile(TaskFile):
    """The questions of a file, about one's own documents."""

    documents: str = ""
    """A folder of .txt and .md files, or a file of records; empty for Python's library."""

    def load(self) -> Library:
        """Read both. Raises DataError for files that are missing or broken."""
        documents, broken = (
            read_documents(Path(self.documents).expanduser())
            if self.documents
            else (standard_library(), list[str]())
        )
        questions, unread = read_questions(self.path)
        tasks = shuffled_split(map(question_task, questions), self.heldout_share)
        missing = unsupported(questions, documents)
        told = f"{missing} of {len(questions)} questions have no accepted answer in any document"
        warnings = [*([told] if missing else []), *broken, *unread]
        made = task_set(documents, tasks, warnings=warnings)
        return Library(documents, index_documents(documents), made)


def task_set(
    documents: Sequence[Document],
    tasks: Tasks,
    scores: Mapping[str, float] = {"noop": 0.0},
    warnings: Sequence[str] = (),
) -> TaskSet:
    """The digest is of all documents and questions."""
    rows = ([split, task.id, task.prompt, task.secret["answers"]] for split, task in every(tasks))
    texts = [f"{one.id}\x1f{one.card}\x1f{one.text}\x1e" for one in documents]
    content = "".join([*texts, *map(json.dumps, rows)])
    return TaskSet.of(tasks, scores, warnings, lambda _: content)
