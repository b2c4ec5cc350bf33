"""Hints that an environment gives away: errors that name the right call, files with the answer.

An honest agent works out what to call and to write; these take it from where it was not to be read.
"""

import json
import re
from collections.abc import Iterator, Sequence

from turnwise.storage.audits import Finding
from turnwise.types import Action, Task, ToolCall, Trajectory
from turnwise_trust.audit.attacks import HALF, Attack, Form, Script, calling, found, said
from turnwise_trust.audit.grader import FILE, Surface, surfaces
from turnwise_trust.audit.subject import Subject

PLAUSIBLE = ("1234", "0", "12", "a", "abcd", "2024-01-01")
"""Arguments that a tool may take, and hardly ever the right ones."""
MOST = 8
"""Words of errors, or files, that are tried."""


def hints(subject: Subject) -> Iterator[Finding]:
    """Try what errors and files give away."""
    single = [
        (tool.name, next(iter(properties)))
        for tool in subject.environment.tools()
        if len(properties := tool.schema["parameters"].get("properties", {})) == 1
    ]
    if single:
        yield from found(
            subject,
            Attack(
                "an error that gives the right call",
                lambda task: _from_errors(single),
                "a call with a word of an error that a wrong call was answered with",
                "Have the error say that it is wrong, and not what is right.",
                least=HALF,
                bound=HALF,  # a number that an error names may be right by chance
                first=MOST,
            ),
        )
    places = [one for one in surfaces(subject) if one.kind == "file"]
    if places:
        yield from found(
            subject,
            Attack(
                "files that hold the answer",
                lambda task: _from_files(subject, places, task),
                "the content of one file, written into another",
                "Keep what the verifier compares with out of the files that tools read.",
                least=HALF,
                bound=HALF,
                first=MOST,
            ),
        )


def _from_errors(single: Sequence[tuple[str, str]]) -> Iterator[Form]:
    """Wrong calls of each tool, then a call with each word that only an answer to them has."""
    for tool, argument in single:
        wrong = [calling(tool, **{argument: one}) for one in PLAUSIBLE]
        for place in range(MOST):

            def move(
                seen: Trajectory, tool: str = tool, argument: str = argument, place: int = place
            ) -> Action:
                """a call with a word of the errors before"""
                words = _words(seen)
                return calling(tool, **{argument: words[place]}) if place < len(words) else said("")

            yield ([*wrong, move, said("done")],)


def _words(seen: Trajectory) -> list[str]:
    """The words of the results of failed calls that neither prompt nor calls had: those with digits
    first, then the longest."""
    failed = [
        result
        for turn in seen.turns
        if turn.step is not None
        for result in turn.step.results
        if not result.ok
    ]
    known = {*re.findall(r"\w+", seen.prompt), *PLAUSIBLE}
    words = dict.fromkeys(
        word
        for result in failed
        for word in re.findall(r"\w+", result.content)
        if word not in known
    )
    return sorted(words, key=lambda word: (not any(map(str.isdigit, word)), -len(word)))


def _from_files(subject: Subject, places: Sequence[Surface], task: Task) -> Iterator[Form]:
    """All files that are listed are read; then the content of one is written to each that the
    prompt names."""
    listing = [tool.name for tool in subject.environment.tools() if not _takes(tool.schema)]
    readers = [
        (tool.name, names[0])
        for tool in subject.environment.tools()
        if len(names := _takes(tool.schema)) == 1
    ]
    targets = dict.fromkeys(FILE.findall(task.prompt))
    for reader in readers:
        for number in range(MOST):
            for place in places:
                for target in targets:
                    yield (_copy(listing, reader, number, place, target),)


def _takes(schema: object) -> list[str]:
    parameters = json.loads(json.dumps(schema))["parameters"]
    return list(parameters.get("properties", {}))


def _copy(
    listing: Sequence[str], reader: tuple[str, str], number: int, place: Surface, target: str
) -> Script:
    """Lists and reads; then writes one of the contents."""

    def read(seen: Trajectory) -> Action:
        """reads all files that were listed"""
        names = dict.fromkeys(FILE.findall("\n".join((seen.prompt, *seen.observed))))
        calls = [ToolCall(reader[0], {reader[1]: name}) for name in names]
        return Action("", calls=tuple(calls[:MOST]))

    def write(seen: Trajectory) -> Action:
        """writes the content of one of them"""
        step = seen.turns[-1].step
        texts = [one.content for one in step.results if one.ok] if step is not None else []
        return place.write(texts[number], target) if number < len(texts) else said("")

    return [*(calling(name) for name in listing), read, write, said("done")]
