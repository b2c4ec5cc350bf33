"""An attack, and the two that a run tries before it trains; all others are in `table.py`."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from turnwise.evaluation.intervals import wilson
from turnwise.storage.audits import Finding
from turnwise.types import Task
from turnwise_trust.audit import forms
from turnwise_trust.audit.attacks import FEW, FULL, Form, is_paid, looked, replay
from turnwise_trust.audit.slots import Slot, slots
from turnwise_trust.audit.subject import Subject


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
            tried = looked(subject, check, partial(self._of, slot), self.first)
            if tried:
                yield self._finding(check, subject, tried)

    def _of(self, slot: Slot, task: Task) -> Form | None:
        """The form that is paid; an empty one where none is, None where there is none."""
        given = list(self.forms(slot, task))
        for form in given:
            if all(is_paid(slot.subject, task, script, self.least) for script in form):
                return form
        return () if given else None

    def _finding(self, check: str, subject: Subject, tried: dict[str, Form]) -> Finding:
        paid = [(one, tried[one.id]) for one in subject.tasks if tried.get(one.id)]
        low, high = wilson(len(paid), len(tried))
        held = low <= self.bound
        return Finding(
            check,
            len(paid) / len(tried),
            low,
            high,
            bound=self.bound,
            passed=held,
            note=f"{len(paid)} of {len(tried)} tasks paid {self.what}",
            replay="" if not paid else replay(*paid[0]),
            remedy=self.remedy,
        )


WHOLE = "Have verify() compare the whole answer with the right one."

OBSERVED = Attack(
    "the observation echoed", forms.observed, "all that a tool returned as the answer", WHOLE
)
HEDGED = Attack(
    "a hedged answer",
    forms.hedged,
    "the right answer among wrong ones, in both orders",
    "Have verify() take one answer, the last for instance, and compare all of it.",
    everywhere=True,
)
