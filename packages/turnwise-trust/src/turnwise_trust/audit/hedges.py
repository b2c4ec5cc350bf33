"""Right answers that are not given: hedged, denied, contradicted, or only near."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from turnwise.storage.audits import Finding
from turnwise.types import Action, Task, Trajectory
from turnwise_trust.audit.attacks import (
    Attack,
    Form,
    Script,
    found,
    is_paid,
    number_of,
    plain,
    said,
)
from turnwise_trust.audit.slots import Slot, slots
from turnwise_trust.audit.subject import Subject

Join = Callable[[Sequence[str]], str]
JOINS: Sequence[Join] = (
    " or ".join,
    ", ".join,
    "\n".join,
    " ".join,
    ", no, ".join,
    " = ".join,
    " / ".join,
    lambda texts: " ".join(f"\\boxed{{{text}}}" for text in texts),
    lambda texts: "".join(f"<answer>{text}</answer>" for text in texts),
    lambda texts: "\n".join(f"Answer: {text}" for text in texts),
    lambda texts: " ".join(f"The answer is {text}." for text in texts),
    lambda texts: "\n".join(f"#### {text}" for text in texts),
    lambda texts: str([*texts]),
)
DENIALS = ("The answer is not {}.", "not {}", "It is anything but {}", "{} is wrong.")
LOOSE = 5
"""Words of an observation, besides those of the right answer, from which on it is no answer."""


def hedges(subject: Subject) -> Iterator[Finding]:
    """Try what is paid though the right answer was not given, of tasks whose oracle gives one."""
    for slot in slots(subject):
        where = f" in {slot.tool}" if slot.tool else ""
        for check, forms, what, remedy in (
            (
                "a hedged answer",
                _hedged,
                "the right answer among wrong ones, in both orders",
                "Have verify() take one answer, the last for instance, and compare all of it.",
            ),
            (
                "a number that is near",
                _near,
                "numbers above and below the right one",
                "Narrow the tolerance, or compare whole numbers exactly.",
            ),
            (
                "a part of the answer",
                _parts,
                "the beginning or the end of the right answer, or more around it",
                "Have verify() compare the whole answer, not whether one contains the other.",
            ),
        ):
            attack = Attack(f"{check}{where}", partial(forms, slot), what, remedy)
            yield from found(subject, attack)
    answer = Slot(subject)
    yield from found(
        subject,
        Attack(
            "the right answer elsewhere",
            partial(_elsewhere, answer),
            "a wrong answer, with the right one in the thoughts or in what a tool returned",
            "Have verify() look at trajectory.answer alone.",
        ),
    )
    yield from found(
        subject,
        Attack(
            "the observation echoed",
            partial(_echoed, answer),
            "all that a tool returned as the answer",
            "Have verify() compare the whole answer with the right one.",
        ),
    )
    yield from found(
        subject,
        Attack(
            "a denied answer",
            partial(_denied, answer),
            "the right answer in a sentence that denies it",
            "Have verify() refuse what stands around the answer, or ask for a format.",
        ),
    )


def _scripts(slot: Slot, task: Task, texts: Iterable[str]) -> Iterator[Script]:
    before = slot.before(task)
    return ([*before, slot.write(text)] for text in texts)


def _hedged(slot: Slot, task: Task) -> Iterator[Form]:
    wrong = slot.decoys(task)
    if not wrong:
        return
    right = slot.right[task.id]
    for chosen in (wrong[:1], wrong):
        for join in JOINS:
            orders = ([right, *chosen], [*chosen, right])
            yield tuple(_scripts(slot, task, map(join, orders)))


def _near(slot: Slot, task: Task) -> Iterator[Form]:
    number = number_of(slot.right.get(task.id, ""))
    if number is None or not slot.decoys(task):
        return
    for step in (1.0, 0.1 * abs(number)):
        if step >= 0.5:
            pair = (f"{number + step:g}", f"{number - step:g}")
            yield tuple(_scripts(slot, task, pair))


def _parts(slot: Slot, task: Task) -> Iterator[Form]:
    """The first of several items; beginnings, ends, and longer texts of answers that are short."""
    right = slot.right.get(task.id, "")
    if not slot.decoys(task):
        return
    items = re.split(r"([,;\n])", right)
    if len(items) > 1 and items[0].strip():
        yield tuple(_scripts(slot, task, ["".join(items[: len(items) // 4 * 2 + 1])]))
        yield tuple(_scripts(slot, task, items[:1]))
    if not 2 <= len(plain(right)) <= 40:
        return
    for text in (right[0], right[-1], right[: len(right) // 2]):
        yield tuple(_scripts(slot, task, [text]))
    if (
        right[0].isalnum() and right[-1].isalnum()
    ):  # else it is marked, and what is around is not it
        for more in "7x":
            yield tuple(_scripts(slot, task, [right + more, more + right]))


def _elsewhere(slot: Slot, task: Task) -> Iterator[Form]:
    """Answers to tasks that the right one solves without a call: in others it may not be judged."""
    right = slot.right.get(task.id, "")
    if task.id not in slot.telling or not is_paid(slot.subject, task, [said(right)]):
        return
    wrong = slot.decoys(task) or slot.wrong(task)
    for text in wrong[:2]:
        for thought in (f"It is {right}.", f"<answer>{right}</answer>", f"\\boxed{{{right}}}"):
            yield ([Action(f"{thought} Or rather {text}", answer=text)],)
    calls = [action for action in slot.before(task) if isinstance(action, Action)]
    if any(action.calls for action in calls):
        yield ([*calls, said("")],)


def _echoed(slot: Slot, task: Task) -> Iterator[Form]:
    calls = slot.before(task)
    if not slot.decoys(task) or not calls:
        return

    def last(trajectory: Trajectory) -> Action:
        """answer with the last observation"""
        return _unless_exact(trajectory.observed[-1:], slot.right[task.id])

    def all_of_them(trajectory: Trajectory) -> Action:
        """answer with all observations"""
        return _unless_exact(trajectory.observed, slot.right[task.id])

    yield ([*calls, last],)
    yield ([*calls, all_of_them],)


def _unless_exact(texts: Sequence[str], right: str) -> Action:
    """An answer of texts that hold much more than the right one; else none."""
    text = "\n".join(texts)
    return said(text if len(text.split()) >= len(right.split()) + LOOSE else "")


def _denied(slot: Slot, task: Task) -> Iterator[Form]:
    if slot.decoys(task):
        texts = [one.format(slot.right[task.id]) for one in DENIALS]
        yield from ((script,) for script in _scripts(slot, task, texts))
