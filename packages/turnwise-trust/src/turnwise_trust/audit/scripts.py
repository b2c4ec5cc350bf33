"""Scripts of attacks: episodes that no honest agent would play, and what is paid for them.

An attack has forms. A form is scripts that contradict each other, of which each must be paid: a
verifier that reads the first of two answers, or the last, pays one order of them and not the other,
and is right in that; one that pays both orders has not read at all.
"""

import json
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from turnwise.types import Action, Task, ToolCall, Trajectory
from turnwise_environments.choosing import spread
from turnwise_trust.audit.attempts import Move, scripted
from turnwise_trust.audit.subject import OutOfTime, Subject, Ungraded

FEW = 24
"""Tasks of an attack's first look, at most: where none of them paid it, no others are tried."""
FEWER = {0.3: 1, 0.04: 2, 0.006: 8}
"""Tasks of it where an episode takes so many seconds or more."""
RARELY = 0.05
"""The largest share of tasks on which an attack may succeed by luck."""
MOST_SHOWN = 12
"""Actions of a script that a finding shows."""
FULL, HALF = 1.0, 0.5

T = TypeVar("T")
Script = Sequence[Move]
Form = tuple[Script, ...]


def said(text: str) -> Action:
    """An action that answers, and wrote nothing else."""
    return Action(text, answer=text)


def calling(name: str, /, **arguments: object) -> Action:
    """An action that calls one tool."""
    call = ToolCall(name, arguments)
    return Action(json.dumps(arguments, default=str), calls=(call,))


def earned(subject: Subject, played: Trajectory) -> float:
    """An episode's pay as a part of what the oracle earns on the task, 0 to 1; 1 for a success."""
    if played.verdict is None:
        return 0.0
    if played.verdict.success:
        return 1.0
    return min(1.0, max(0.0, (played.reward or 0.0) / subject.pay[played.task.id]))


def play(subject: Subject, task: Task, script: Script) -> Trajectory:
    """The episode of a script; after its end the agent answers nothing. Raises OutOfTime."""
    played = subject.play(scripted(script), [task])
    if not played:
        raise OutOfTime
    return played[0]


def is_paid(subject: Subject, task: Task, script: Script, least: float = FULL) -> bool:
    """Whether a script earns at least this part of the oracle's reward."""
    return earned(subject, play(subject, task, script)) >= least


def looked(
    subject: Subject, check: str, ask: Callable[[Task], T | None], most: int = FEW
) -> dict[str, T]:
    """Ask of each task of a first look, and of the others if any answer is true: the answers by
    task, without None, for one to which it does not apply, and without those whose question raises
    Ungraded, as this does where nothing else is left. Asks of fewer where the time is over; raises
    OutOfTime where it is over before the first."""
    found: dict[str, T] = {}
    ungraded = 0
    for tasks in looked_at(subject, most):
        for task in tasks:
            try:
                told = ask(task)
            except Ungraded:
                ungraded, told = ungraded + 1, None
            except OutOfTime:
                if not found:
                    raise
                subject.unmeasured.append(f"{check}, after {len(found)} tasks")
                return found
            found |= {} if told is None else {task.id: told}
        if not any(found.values()):
            break
    if ungraded and not found:
        raise Ungraded
    return found


def looked_at(subject: Subject, most: int = FEW) -> tuple[Sequence[Task], Sequence[Task]]:
    """The tasks of a first look, and the others."""
    slow = [count for seconds, count in FEWER.items() if subject.seconds >= seconds]
    first = spread(subject.unsolved, min([most, *slow]))
    known = {task.id for task in first}
    return first, [task for task in subject.unsolved if task.id not in known]


def replay(task: Task, form: Form) -> str:
    """A task, and the scripts that were paid on it."""
    return f"task {task.id}: " + " and also ".join(shown(script) for script in form)


def shown(script: Script) -> str:
    """A script in one line."""
    more = [f"and {len(script) - MOST_SHOWN} more"] if len(script) > MOST_SHOWN else []
    return "; ".join([*map(_shown_move, script[:MOST_SHOWN]), *more]) or "nothing"


def _shown_move(move: Move) -> str:
    if not isinstance(move, Action):
        return move.__doc__ or "an action made of what was seen"
    if move.error is not None:
        return "a malformed action"
    calls = [f"{call.name}({_cut(json.dumps(call.arguments, default=str))})" for call in move.calls]
    if calls:
        return ", ".join(calls)
    written = (
        f", having written {_cut(repr(move.text))}" if move.text not in ("", move.answer) else ""
    )
    return f"answer {_cut(repr(move.answer))}{written}"


def _cut(text: str, most: int = 160) -> str:
    text = text.encode(errors="backslashreplace").decode()
    return text if len(text) <= most else f"{text[: most // 2]} … {text[-most // 4 :]}"


def plain(text: str) -> str:
    """A text for comparisons: numbers by value, words without case and punctuation."""
    number = number_of(text)
    return f"{number:.15g}" if number is not None else " ".join(re.findall(r"\w+", text.casefold()))


def number_of(text: str) -> float | None:
    """The number that a text is."""
    try:
        return float(text.strip().strip("$%.").replace(",", ""))
    except ValueError:
        return None
