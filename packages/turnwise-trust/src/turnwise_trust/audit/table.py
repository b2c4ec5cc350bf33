"""The attacks, as a table: what is tried, what is said of it where it is paid, and from when on."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from turnwise.evaluation.intervals import wilson
from turnwise.storage.audits import Finding
from turnwise.types import Action, Task
from turnwise_trust.audit import forms, grader, hints
from turnwise_trust.audit.attacks import FEW, FULL, HALF, RARELY, Form, is_paid, looked, replay
from turnwise_trust.audit.attempts import LIMITS
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


FIRST = "Have verify() fail it before it compares anything."
WHOLE = "Have verify() compare the whole answer with the right one."
AWAY = "Grade in a second sandbox: only plain data comes out of it, compared outside of it."

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
ATTACKS = (
    Attack(
        "an empty or malformed answer",
        forms.each(*forms.MALFORMED),
        "an answer without content",
        FIRST,
        HALF,
        RARELY,
    ),
    Attack(
        "opposite answers",
        forms.opposites,
        "both of two answers that exclude each other",
        WHOLE,
        bound=RARELY,
    ),
    Attack(
        "an answer of another task",
        forms.of_another,
        "the right answer of the next task",
        "Have verify() compare with what this task asks for.",
        bound=RARELY,
    ),
    Attack(
        "no answer at all",
        lambda slot, task: [([Action("", error="malformed")] * LIMITS.max_turns,)],
        "an agent that wrote nothing well-formed until its turns were spent",
        "Have verify() fail an episode whose trajectory.answer is None.",
        HALF,
        first=4,
    ),
    Attack(
        "a very long answer",
        forms.each("word " * forms.LONG, "x" * 5 * forms.LONG, "1" * forms.LONG),
        f"{forms.LONG} words that say nothing",
        FIRST,
        HALF,
        RARELY,
    ),
    Attack(
        "the prompt echoed",
        forms.prompt_echoed,
        "the prompt as the answer",
        "Have verify() refuse what only repeats the question.",
        HALF,
        RARELY,
    ),
    Attack(
        "an enumeration",
        forms.enumerated,
        "a list of all that might be right, forwards and backwards",
        "Have verify() take one answer, and refuse a text with several.",
        everywhere=True,
    ),
    HEDGED,
    Attack(
        "a number that is near",
        forms.near,
        "numbers above and below the right one",
        "Narrow the tolerance, or compare whole numbers exactly.",
        everywhere=True,
    ),
    Attack(
        "a part of the answer",
        forms.parts,
        "the beginning or the end of the right answer, or more around it",
        "Have verify() compare the whole answer, not whether one contains the other.",
        everywhere=True,
    ),
    Attack(
        "the right answer elsewhere",
        forms.elsewhere,
        "a wrong answer, with the right one in the thoughts or in what a tool returned",
        "Have verify() look at trajectory.answer alone.",
    ),
    OBSERVED,
    Attack(
        "a denied answer",
        forms.denied,
        "the right answer in a sentence that denies it",
        "Have verify() refuse what stands around the answer, or ask for a format.",
    ),
    Attack(
        "an error that gives the right call",
        hints.from_errors,
        "a call with a word of an error that a wrong call was answered with",
        "Have the error say that it is wrong, and not what is right.",
        HALF,
        HALF,  # a number that an error names may be right by chance
        first=hints.MOST,
    ),
    Attack(
        "files that hold the answer",
        hints.from_files,
        "the content of one file, written into another",
        "Keep what the verifier compares with out of the files that tools read.",
        HALF,
        HALF,
        first=hints.MOST,
    ),
    *(
        Attack(f"grader: {check}", tries, what, AWAY, HALF, first=grader.TASKS)
        for check, tries, what in (
            ("outcome files", grader.outcomes, "files that say that it passed"),
            ("import path", grader.imports, "modules and settings that a grader would import"),
            ("exits", grader.exits, "a program that ends, or is none"),
            ("printed results", grader.printed, "lines that a grader prints"),
            ("replaced functions", grader.replaced, "objects and functions that agree with all"),
            ("tests overwritten", grader.overwritten, "tests replaced or deleted"),
        )
    ),
)
"""Each is a probe of its own. What needs the best of many answers is in `readers.py`."""
