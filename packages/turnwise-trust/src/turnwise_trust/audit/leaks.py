"""Secrets looked for where an agent can see: schemas, tool errors, files, variables, public data.

Looked for is what a task's secret and its oracle's answer hold, not marks put in their
place: an environment makes its scene from what it has loaded, which marks in a copy of the task
would not reach. Other tasks tell a coincidence from a leak: a place that shows the secrets of
its own task more often than those of the next, and not in a list with theirs, which does not say
which of them is right. What a tool returns on proper calls is measured with random ones, and fails
nothing: to give what is asked for is its purpose.
"""

import base64
import codecs
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from turnwise.environments.base import Environment
from turnwise.evaluation.intervals import wilson
from turnwise.storage.audits import Finding
from turnwise.types import Action, Observation, Task, ToolCall
from turnwise_trust.audit.attempts import scripted
from turnwise_trust.audit.plays import rate
from turnwise_trust.audit.scripts import RARELY, calling, plain
from turnwise_trust.audit.slots import Slot
from turnwise_trust.audit.subject import OutOfTime, Subject

MOST_TEXT = 100_000
"""Characters that are read of each file."""
MOST_TEXTS = 300
"""Texts of one secret that are looked for."""
NEAR = 60
"""Characters before and after a secret in which the others of a list stand."""
BESIDE = r"\W*((and|or)\W+|\(\w+\)\W+)?"
"""The text that may stand between two of a list, as in "Ana (in), Ben (out) and Cleo"."""
ALWAYS = 0.9
"""The share of tasks in which public data holds the answer in one place, from which on that is
no coincidence."""
SENSELESS: tuple[Any, ...] = ([], -1, "", "zzz")
Places = dict[str, str]
ENCODINGS: Mapping[str, Callable[[str], str]] = {
    "reversed": lambda text: text[::-1],
    "in base64": lambda text: base64.b64encode(text.encode()).decode().rstrip("="),
    "in hexadecimal": lambda text: text.encode().hex(),
    "in rot13": lambda text: codecs.encode(text, "rot13"),
}
ASKED = "revers|backward|base64|hexadecimal|rot13|caesar|cipher|encod|decod|decrypt"
"""Words of tasks that ask for such texts."""


class Watched(Environment):
    """An environment that keeps what there is to see after each reset."""

    places: dict[str, Places]

    async def reset(self, task: Task, seed: int) -> Observation:
        before = dict(os.environ)
        first = await super().reset(task, seed)
        found = {name: value for name, value in os.environ.items() if before.get(name) != value}
        self.places[task.id] = {
            "tool schemas": "\n".join(_shown(tool.schema) for tool in self.tools()),
            "environment variables": _shown(found),
            "files": _files(self),
        }
        return first


def leaks(subject: Subject) -> Iterator[Finding]:
    """One finding of all places, or one for each that leaks; and one of public data."""
    seen: dict[str, Places] = {}
    watched = subject.environment.under(Watched, places=seen)
    mistakes = _mistakes(subject)
    played = replace(subject, environment=watched).play(scripted(mistakes))
    if not played:
        raise OutOfTime
    for one in played:
        errors = replace(one, turns=one.turns[: len(mistakes)]).observed  # then it only answers
        seen.setdefault(one.task.id, {})["tool errors"] = "\n".join(errors)
        seen[one.task.id]["the first message"] = one.prompt.replace(one.task.prompt, "")
        for name in ENCODINGS:
            asked = re.search(ASKED, one.prompt, re.IGNORECASE)  # to decode is the task then
            seen[one.task.id][f"the prompt, {name}"] = "" if asked else one.prompt
    secrets = {one.task.id: _secrets(subject, one.task, one.prompt) for one in played}
    names = list(dict.fromkeys(name for places in seen.values() for name in places))
    found = [finding for name in names for finding in _leak(subject, name, seen, secrets)]
    known = sum(bool(texts) for texts in secrets.values())
    if found:
        yield from found
    elif known:
        yield Finding(
            "secrets in what is shown",
            0.0,
            *wilson(0, known),
            bound=RARELY,
            passed=True,
            note=f"nothing of {known} tasks' secrets in {', '.join(names)}",
        )
    yield from _returned(subject, secrets)
    yield from _public(subject)


def _leak(
    subject: Subject, place: str, seen: Mapping[str, Places], secrets: Mapping[str, list[str]]
) -> Iterator[Finding]:
    """Tasks whose secret a place shows, against those that show the secret of the next."""
    encode = ENCODINGS.get(place.rpartition(", ")[2], str)
    tasks = [task for task in subject.tasks if secrets.get(task.id)]
    texts = {task.id: seen[task.id].get(place, "") for task in tasks}
    own, others = _hits(tasks, texts, secrets, encode)
    low, high = wilson(len(own), len(tasks))
    if low <= max(RARELY, others / max(1, len(tasks))):
        return
    task, text = own[0]
    yield Finding(
        f"secrets in {place}",
        len(own) / len(tasks),
        low,
        high,
        bound=RARELY,
        passed=False,
        note=f"{len(own)} of {len(tasks)} tasks show their own secret there, {others} the next's",
        replay=f"task {task.id}: {text[:80]!r}",
        remedy="Keep it from there: an agent learns to read it in place of doing the task.",
    )


def _hits(
    tasks: Sequence[Task],
    texts: Mapping[str, str],
    secrets: Mapping[str, list[str]],
    encode: Callable[[str], str] = str,
) -> tuple[list[tuple[Task, str]], int]:
    """The tasks whose texts show their own secret, with it, and the number of those that show the
    next one's."""
    own: list[tuple[Task, str]] = []
    others = 0
    known = {one for told in secrets.values() for one in told}
    for task, after in zip(tasks, [*tasks[1:], *tasks[:1]], strict=True):
        text = texts[task.id]
        wrong = known.difference(secrets[task.id])
        shown = (one for one in secrets[task.id] if _stands(one, text, encode))
        hit = next((one for one in shown if encode is not str or _told(one, text, wrong)), None)
        own += [] if hit is None else [(task, hit)]
        others += any(_stands(one, text, encode) for one in secrets[after.id])
    return own, others


def _returned(subject: Subject, secrets: Mapping[str, list[str]]) -> Iterator[Finding]:
    """The tasks whose secrets random calls are shown. It fails nothing: to give what is asked for
    is a tool's purpose, and of some tools there is little to ask."""
    texts = {one.task.id: "\n".join(one.observed) for one in subject.of_random}
    tasks = [task for task in subject.tasks if secrets.get(task.id) and task.id in texts]
    own, others = _hits(tasks, texts, secrets)
    if tasks:
        note = f"{len(own)} of {len(tasks)} tasks show their own secret there, {others} the next's"
        yield Finding(
            "secrets in what random calls return", **rate(len(own), len(tasks)), note=note
        )


def _stands(text: str, where: str, encode: Callable[[str], str] = str) -> bool:
    """Whether a text stands there as a whole, or encoded, where that makes another of it."""
    if encode is not str:
        return len(text) >= 3 and encode(text) != text and encode(text) in where
    return text in where and bool(re.search(rf"(?<!\w){re.escape(text)}(?!\w)", where))


def _told(text: str, where: str, wrong: Collection[str]) -> bool:
    """Whether a text that stands there does so at least once without a wrong one beside it.

    >>> _told("Ana", "there are Ben, Ana and Cleo", {"Ben"}), _told("Ana", "not Ana", {"Ben"})
    (False, True)
    """
    for one in re.finditer(rf"(?<!\w){re.escape(text)}(?!\w)", where):
        start, end = one.span()
        before, after = where[max(0, start - NEAR) : start], where[end : end + NEAR]
        near = "|".join(re.escape(other) for other in wrong if other in before or other in after)
        left, right = rf"(?<!\w)({near}){BESIDE}\Z", rf"{BESIDE}({near})(?!\w)"
        if not near or not (re.search(left, before) or re.match(right, after)):
            return True
    return False


def _secrets(subject: Subject, task: Task, shown: str) -> list[str]:
    """Texts that only the verifier should know: neither shown at first nor in public data."""
    answer = Slot(subject).telling.get(task.id)
    texts = [*_texts(dict(task.secret)), *([] if answer is None else [answer])]
    lines = dict.fromkeys(line.strip() for text in texts for line in text.split("\n"))
    public = "\n".join([task.prompt, str(dict(task.data)), *_texts(dict(task.data))])
    told = [one for one in lines if len(plain(one)) >= 2 and not _stands(one, public)]
    return told[:MOST_TEXTS]


def _texts(value: Any) -> Iterator[str]:
    """All that is at the ends of its lists and tables."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple | set):
        for part in value:
            yield from _texts(part)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        yield str(value)


def _shown(value: Any) -> str:
    """A table as an agent would see it: with the letters that it has, and no codes for them."""
    return json.dumps(value, ensure_ascii=False)


def _mistakes(subject: Subject) -> list[Action]:
    """Calls that are wrong: without arguments, of wrong types, with senseless ones, of no tool."""
    actions = [calling("no_such_tool")]
    for tool in subject.tools:
        names = tool.schema["parameters"].get("properties", {})
        given = [dict.fromkeys(names, value) for value in SENSELESS]
        actions += [Action("", calls=(ToolCall(tool.name, one),)) for one in (*given, {})]
    return actions


def _files(environment: Environment) -> str:
    if environment.folder is None:
        return ""
    files = [path for path in sorted(environment.folder.rglob("*")) if path.is_file()]
    return "\n".join(map(_beginning, files))


def _beginning(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(MOST_TEXT).decode(errors="replace")


def _public(subject: Subject) -> Iterator[Finding]:
    """The place in public data that holds the right answer most often."""
    right = Slot(subject).telling
    tasks = [task for task in subject.tasks if task.id in right]
    hits: Counter[str] = Counter()
    for task in tasks:
        texts = _at({"id": task.id, "data": dict(task.data), "info": dict(task.info)}, "task")
        hits.update({place for place, text in texts if plain(text) == plain(right[task.id])})
    if len(tasks) < 3:
        return
    place, count = max(hits.items(), key=lambda one: one[1], default=("none", 0))
    held = count < ALWAYS * len(tasks)
    yield Finding(
        "the answer in public data",
        **rate(count, len(tasks)),
        bound=ALWAYS,
        passed=held,
        note=f"{place} is the right answer of {count} of {len(tasks)} tasks",
        replay="" if held else f"task {tasks[0].id}",
        remedy="Move it to Task.secret, which the environment is not given.",
    )


def _at(value: Any, place: str) -> Iterator[tuple[str, str]]:
    """The ends of a table, each with its place."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from _at(part, f"{place}.{name}")
    elif isinstance(value, list | tuple):
        for number, part in enumerate(value):
            yield from _at(part, f"{place}.{number}")
    else:
        yield place, str(value)
