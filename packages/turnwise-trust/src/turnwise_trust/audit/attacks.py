"""Attacks: episodes that no honest agent would play, and what the verifier pays for them.

An attack has forms. A form is scripts that contradict each other, of which each must be paid: a
verifier that reads the first of two answers, or the last, pays one order of them and not the other,
and is right in that; one that pays both orders has not read at all.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from turnwise.evaluation.intervals import wilson
from turnwise.storage.audits import Finding
from turnwise.types import Action, Task, ToolCall, Trajectory
from turnwise_environments.measurement import spread
from turnwise_trust.audit.subject import Subject

FEW = 24
"""Tasks of an attack's first look, at most: where none of them paid it, no others are tried."""
FEWER = {0.3: 1, 0.04: 2, 0.006: 8}
"""Tasks of it where an episode takes so many seconds or more."""
RARELY = 0.05
"""The largest share of tasks on which an attack may succeed by luck."""
MOST_SHOWN = 12
"""Actions of a script that a finding shows."""
FULL, HALF = 1.0, 0.5

Move = Action | Callable[[Trajectory], Action]
"""An action, or a function that makes it of what was seen."""
Script = Sequence[Move]
Form = tuple[Script, ...]


@dataclass(frozen=True)
class Attack:
    """The scripts that are tried on each task."""

    check: str
    forms: Callable[[Task], Iterable[Form]]
    """None for a task to which it does not apply."""
    what: str
    """The actions that are paid, in words."""
    remedy: str
    least: float = FULL
    """The part of the oracle's reward from which on the agent counts as paid."""
    bound: float = 0.0
    """The share of tasks that may be paid."""
    first: int = FEW
    """Tasks of the first look, at most."""


@dataclass(frozen=True)
class Tried:
    """The result of an attack."""

    count: int
    """Tasks to which it applied."""
    paid: Sequence[tuple[Task, Form]]
    """The tasks on which it was paid, each with the form that was."""

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% interval of the share that was paid."""
        return wilson(len(self.paid), self.count)


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
    """The episode of a script; after its end the agent answers nothing."""

    def policy(trajectory: Trajectory) -> Action | None:
        turn = len(trajectory.turns)
        if turn >= len(script):
            return None
        move = script[turn]
        return move if isinstance(move, Action) else move(trajectory)

    (played,) = subject.play(policy, [task])
    return played


def is_paid(subject: Subject, task: Task, script: Script, least: float = FULL) -> bool:
    """Whether a script earns at least this part of the oracle's reward."""
    return earned(subject, play(subject, task, script)) >= least


def tried(subject: Subject, attack: Attack) -> Tried:
    """Play it on each task until one of its forms is paid; on few where none of those is."""
    first, rest = looked_at(subject, attack.first)
    count, paid = _tried_on(subject, attack, first)
    if paid:
        more, others = _tried_on(subject, attack, rest)
        count, paid = count + more, [*paid, *others]
    return Tried(count, paid)


def looked_at(subject: Subject, most: int = FEW) -> tuple[Sequence[Task], Sequence[Task]]:
    """The tasks of a first look, and the others."""
    slow = [count for seconds, count in FEWER.items() if subject.seconds >= seconds]
    first = spread(subject.unsolved, min([most, *slow]))
    known = {task.id for task in first}
    return first, [task for task in subject.unsolved if task.id not in known]


def paid_by_task(
    subject: Subject, answer: Callable[[Task], str | None], least: float = HALF
) -> dict[str, bool]:
    """Whether an answer is paid, by task: those of a first look, and the others if any is."""
    paid: dict[str, bool] = {}
    for tasks in looked_at(subject):
        for task in tasks:
            text = answer(task)
            paid[task.id] = text is not None and is_paid(subject, task, [said(text)], least)
        if not any(paid.values()):
            break
    return paid


def _tried_on(
    subject: Subject, attack: Attack, tasks: Sequence[Task]
) -> tuple[int, list[tuple[Task, Form]]]:
    count, paid = 0, []
    for task in tasks:
        forms = list(attack.forms(task))
        count += bool(forms)
        for form in forms:
            if all(is_paid(subject, task, script, attack.least) for script in form):
                paid.append((task, form))
                break
    return count, paid


def found(subject: Subject, attack: Attack) -> Iterator[Finding]:
    """The finding of an attack; none where it applies to no task."""
    result = tried(subject, attack)
    if not result.count:
        return
    low, high = result.interval
    held = low <= attack.bound
    yield Finding(
        attack.check,
        len(result.paid) / result.count,
        low,
        high,
        bound=attack.bound,
        passed=held,
        note=f"{len(result.paid)} of {result.count} tasks paid {attack.what}",
        replay="" if not result.paid else replay(*result.paid[0]),
        remedy="" if held else attack.remedy,
    )


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
    return f"{number:g}" if number is not None else " ".join(re.findall(r"\w+", text.casefold()))


def number_of(text: str) -> float | None:
    """The number that a text is."""
    try:
        return float(text.strip().strip("$%.").replace(",", ""))
    except ValueError:
        return None
