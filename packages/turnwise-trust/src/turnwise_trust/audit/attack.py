"""An attack, and the two that a run tries before it trains; all others are in `table.py`."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from turnwise.storage.audits import Finding
from turnwise.types import Action, Task, Trajectory
from turnwise_trust.audit.plays import rate
from turnwise_trust.audit.scripts import FEW, FULL, Form, Script, is_paid, looked, replay, said
from turnwise_trust.audit.slots import Slot, slots
from turnwise_trust.audit.subject import Subject, Ungraded

Join = Callable[[Sequence[str]], str]
BOXED: Join = lambda texts: " ".join(f"\\boxed{{{text}}}" for text in texts)  # noqa: E731
TAGGED: Join = lambda texts: " ".join(f"<answer>{text}</answer>" for text in texts)  # noqa: E731
JOINS: Sequence[Join] = (
    " or ".join,
    ", ".join,
    "\n".join,
    " ".join,
    ", no, ".join,
    " = ".join,
    " / ".join,
    BOXED,
    TAGGED,
    lambda texts: "\n".join(f"Answer: {text}" for text in texts),
    lambda texts: " ".join(f"The answer is {text}." for text in texts),
    lambda texts: "\n".join(f"#### {text}" for text in texts),
    lambda texts: str([*texts]),
)
UNGRADED = "not judged: no episode got a verdict"
LOOSE = 5
"""Words of an observation, besides those of the right answer, from which on it is no answer."""


@dataclass(frozen=True)
class Attack:
    """A probe that plays scripts on each task until one of its forms is paid; on few tasks where
    none of those is."""

    check: str
    forms: Callable[[Slot, Task], Iterable[Form]]
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
    everywhere: bool = False
    """Whether it is tried in arguments of tools too, and not in the answer alone."""

    def __call__(self, subject: Subject) -> Iterator[Finding]:
        """A finding for each place to which it applies."""
        for slot in slots(subject) if self.everywhere else slots(subject)[:1]:
            check = f"{self.check} in {slot.tool}" if slot.tool else self.check
            try:
                tried = looked(subject, check, partial(self._of, slot), self.first)
            except Ungraded:
                yield Finding(check, note=UNGRADED)
                continue
            if tried:
                yield self._finding(check, subject, tried)

    def _of(self, slot: Slot, task: Task) -> Form | None:
        """The form that is paid; an empty one where none is, None where there is none. Raises
        Ungraded where none of their episodes got a verdict."""
        given = list(self.forms(slot, task))
        before = slot.subject.graded[True]
        for form in given:
            if all(is_paid(slot.subject, task, script, self.least) for script in form):
                return form
        if given and slot.subject.graded[True] == before:
            raise Ungraded
        return () if given else None

    def _finding(self, check: str, subject: Subject, tried: dict[str, Form]) -> Finding:
        paid = [(one, tried[one.id]) for one in subject.tasks if tried.get(one.id)]
        share = rate(len(paid), len(tried))
        return Finding(
            check,
            **share,
            bound=self.bound,
            passed=share["low"] <= self.bound,
            note=f"{len(paid)} of {len(tried)} tasks paid {self.what}",
            replay="" if not paid else replay(*paid[0]),
            remedy=self.remedy,
        )


def written(slot: Slot, task: Task, texts: Iterable[str]) -> Iterator[Script]:
    """Scripts that write each text there, after what the oracle does before."""
    before = slot.before(task)
    return ([*before, slot.write(text)] for text in texts)


def hedged(slot: Slot, task: Task) -> Iterator[Form]:
    wrong = slot.decoys(task)
    if not wrong:
        return
    right = slot.right[task.id]
    for chosen in (wrong[:1], wrong):
        for join in JOINS:
            orders = ([right, *chosen], [*chosen, right])
            yield tuple(written(slot, task, map(join, orders)))


def observed(slot: Slot, task: Task) -> Iterator[Form]:
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


WHOLE = "Have verify() compare the whole answer with the right one."

OBSERVED = Attack(
    "the observation echoed", observed, "all that a tool returned as the answer", WHOLE
)
HEDGED = Attack(
    "a hedged answer",
    hedged,
    "the right answer among wrong ones, in both orders",
    "Have verify() take one answer, the last for instance, and compare all of it.",
    everywhere=True,
)
