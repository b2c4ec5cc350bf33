"""Hints that an environment gives away: errors that name the right call, files with the answer.

An honest agent works out what to call and to write; these take it from where it was not to be read.
"""

import re
from collections.abc import Iterator, Sequence

from turnwise.tools.tool import Tool
from turnwise.types import Action, Task, ToolCall, Trajectory
from turnwise_trust.audit.grader import FILE, Surface, surfaces
from turnwise_trust.audit.scripts import Form, Script, calling, said
from turnwise_trust.audit.slots import Slot

PLAUSIBLE = ("1234", "0", "12", "a", "abcd", "2024-01-01")
"""Arguments that a tool may take, and hardly ever the right ones."""
MOST = 8
"""Words of errors, or files, that are tried."""


def from_errors(slot: Slot, task: Task) -> Iterator[Form]:
    """Wrong calls of each tool of one argument, then a call with each word that only an answer to
    them has."""
    for tool, argument in _single(slot):
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


def from_files(slot: Slot, task: Task) -> Iterator[Form]:
    """All files that are listed are read; then the content of one is written to each that the
    prompt names."""
    listing = [tool.name for tool in slot.subject.tools if not _takes(tool)]
    places = [one for one in surfaces(slot.subject) if one.kind == "file"]
    for reader in _single(slot):
        for number in range(MOST):
            for place in places:
                for target in dict.fromkeys(FILE.findall(task.prompt)):
                    yield (_copy(listing, reader, number, place, target),)


def _single(slot: Slot) -> list[tuple[str, str]]:
    """Tools of one argument, each with its name."""
    tools = slot.subject.tools
    return [(tool.name, names[0]) for tool in tools if len(names := _takes(tool)) == 1]


def _takes(tool: Tool) -> list[str]:
    return list(tool.schema["parameters"].get("properties", {}))


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
