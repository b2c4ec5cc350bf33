"""The made tasks of the shell environment: a folder, one to three requests, and what is wanted.

A draft becomes a task only if each change changes something, and no answer stands in the request's
words. Not here: what is asked (`requests.py`).
"""

import base64
import hashlib
import json
import random
from collections.abc import Mapping, Sequence

from turnwise.environments.base import Split
from turnwise.environments.shell.folders import File, Folder, draw_folder, entries_of, state_of
from turnwise.environments.shell.requests import CHANGES, QUESTIONS, Request
from turnwise.seeds import derive
from turnwise.tools.workspace import Entry
from turnwise.types import Task

KIND = "state"
ASKED = "In the current folder: "


def made_tasks(count: int, most_requests: int) -> dict[Split, list[Task]]:
    """`count` tasks for each split; no wording of one split is in the other, whatever the files."""
    tasks: dict[Split, list[Task]] = {"train": [], "heldout": []}
    seen: set[str] = set()
    number = 0
    while any(len(found) < count for found in tasks.values()):
        stream = random.Random(derive("shell", most_requests, number))
        number += 1
        folder = draw_folder(stream)
        requests = draw_requests(stream, folder, stream.randint(1, most_requests))
        if not requests:
            continue
        text = " Then: ".join(request.text for request in requests)
        split: Split = "heldout" if derive("split", text) % 2 else "train"
        if text in seen or len(tasks[split]) == count:
            continue
        seen.add(text)
        tasks[split].append(_task(folder, requests, text))
    return tasks


def draw_requests(stream: random.Random, folder: Folder, count: int) -> list[Request]:
    """Changes, each of what the one before left, the last one a question in half of the cases;
    none if one of them would be void."""
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
    """The folder of a made task."""
    return {
        path: File(entry.content.decode(), bool(entry.mode & 0o100))
        for path, entry in entries(task).items()
    }


def entries(task: Task) -> dict[str, Entry]:
    """The entries that an episode's folder begins with."""
    return {
        path: Entry(kind, base64.b64decode(content), mode)
        for path, kind, content, mode in task.data["folder"]
    }


def plain(found: Mapping[str, Entry]) -> list[list[object]]:
    """Entries as plain data, for a task."""
    return [
        [path, entry.kind, base64.b64encode(entry.content).decode(), entry.mode]
        for path, entry in sorted(found.items())
    ]


def make_task(
    prompt: str,
    secret: Mapping[str, object],
    data: Mapping[str, object],
    info: Mapping[str, object],
) -> Task:
    """A task whose id is a hash of what it asks, and of what."""
    content = json.dumps([prompt, dict(data)], sort_keys=True)
    return Task(hashlib.sha256(content.encode()).hexdigest()[:16], prompt, secret, data, info)


def tasks_hash(tasks: Mapping[Split, Sequence[Task]]) -> str:
    """A hash of all that tasks show, hold and expect."""
    digest = hashlib.sha256()
    for split, found in tasks.items():
        for task in found:
            row = [split, task.prompt, dict(task.data), dict(task.secret)]
            digest.update(json.dumps(row, sort_keys=True).encode())
    return digest.hexdigest()


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
    return make_task(f"{ASKED}{text}{end}", secret, {"folder": plain(entries_of(folder))}, info)
