"""The made tasks of the shell environment: a folder, one to three requests, and what is wanted.

A draft becomes a task only if each change changes something, and no answer stands in the request's
words.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from turnwise.environments.tasksets import SOLVED, Draft, TaskSet, drafted
from turnwise.options import Options
from turnwise.ranges import Count, Range
from turnwise.seeds import derive
from turnwise.types import Task
from turnwise_environments.common import identity
from turnwise_environments.folders import entries, plain
from turnwise_environments.shell.requests import (
    CHANGES,
    QUESTIONS,
    File,
    Folder,
    Request,
    draw_folder,
    entries_of,
    state_of,
)
from turnwise_sandbox.sandbox import Sandbox

KIND = "state"
ASKED = "In the current folder: "


RANDOM_SCORE = 0.001
"""Measured on the standard tasks: success of `random_actions`."""


@dataclass(frozen=True)
class MadeRequests(Options):
    """`count` tasks in each split, of one to `max_requests` requests; no wording of one split is in
    the other, whatever the files."""

    count: Count = 1000
    max_requests: Annotated[int, Range(1, 3)] = 3

    def load(self, sandbox: Sandbox) -> TaskSet:
        del sandbox
        scores = SOLVED | ({"random": RANDOM_SCORE} if self == STANDARD else {})
        return TaskSet.made("shell", drafted(self._draft), self.count, scores)

    def _draft(self, number: int) -> Draft | None:
        stream = random.Random(derive("shell", self.max_requests, number))
        folder = draw_folder(stream)
        requests = draw_requests(stream, folder, stream.randint(1, self.max_requests))
        text = " Then: ".join(request.text for request in requests)
        return Draft(text, lambda: _task(folder, requests, text)) if requests else None


STANDARD = MadeRequests()


def draw_requests(stream: random.Random, folder: Folder, count: int) -> list[Request]:
    """Changes, the last one a question in half of the cases; none if one of them would be void."""
    found: list[Request] = []
    for place in range(count):
        ask = place == count - 1 and stream.random() < 0.5
        request = stream.choice(QUESTIONS if ask else CHANGES)(stream, folder)
        if request is None or (request.answer is None and request.after == folder):
            return []
        if request.answer is not None and request.answer in request.text.split():
            return []
        found.append(request)
        folder = request.after
    return found


def folder_of(task: Task) -> dict[str, File]:
    return {
        path: File(entry.content.decode(), bool(entry.mode & 0o100))
        for path, entry in entries(task).items()
    }


def _task(folder: Folder, requests: Sequence[Request], text: str) -> Task:
    last = requests[-1]
    secret = {
        "kind": KIND,
        "state": state_of(entries_of(last.after)),
        "answer": last.answer,
        "commands": [request.command for request in requests],
    }
    end = "" if last.answer is not None else " Answer when that is done."
    info = {"requests": len(requests), "asks": last.answer is not None}
    prompt, data = f"{ASKED}{text}{end}", {"folder": plain(entries_of(folder))}
    return Task(identity([prompt, data]), prompt, secret, data, info)
