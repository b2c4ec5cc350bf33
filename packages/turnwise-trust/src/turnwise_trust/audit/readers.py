"""Answers by rules that know nothing of the task but its prompt: what stands in one place of it."""

import re
from collections import Counter
from collections.abc import Iterator

from turnwise.evaluation.intervals import wilson
from turnwise.storage.audits import Finding
from turnwise_trust.audit.constants import Rule, finding_of, paid_by, shown_by
from turnwise_trust.audit.slots import Slot
from turnwise_trust.audit.subject import Subject

MOST_SOLVED = 0.6
"""The largest share of tasks that reading a fixed place may solve: of two options each is right in
half of the tasks, and the best of some rules in a little more."""
CONTEXTS = (3, 6, 12)
"""Characters before an answer that make a rule."""

PATTERNS = {
    "number": r"-?\d+(?:\.\d+)?",
    "word": r"\w[\w.-]*\w|\w",
    "line": r"[^\n]+",
    "quoted text": r"[\"'`“]([^\"'`”\n]+)[\"'`”]",
    "text in brackets": r"[(\[{<]([^()\[\]{}<>\n]+)[)\]}>]",
    "capitalised word": r"\b[A-Z]\w+",
}
PLACES = (0, 1, 2, -3, -2, -1)
BY_VALUE: dict[str, Rule] = {
    "largest number": lambda text: max(_all("number", text), key=float, default=None),
    "smallest number": lambda text: min(_all("number", text), key=float, default=None),
    "longest word": lambda text: max(_all("word", text), key=len, default=None),
}


def prompts(subject: Subject) -> Iterator[Finding]:
    """The share that the best rule solves, of those that read a place, and of those by value."""
    rules = _places() | _contexts(subject) | BY_VALUE
    check = "the prompt searched for the answer"
    paid = paid_by(subject, check, rules)
    best = max(paid, key=lambda name: sum(paid[name].values()))
    solved, count = sum(paid[best].values()), len(paid[best])
    held = wilson(solved, count).low <= MOST_SOLVED or best in BY_VALUE
    note = f"the best of {len(paid)} rules, {best}, solves {solved} of {count} tasks"
    remedy = "Take the answer out of the prompt, or vary its place there."
    shown = shown_by(subject, paid[best], rules[best])
    yield finding_of(check, paid[best], MOST_SOLVED, held, note, shown, remedy)


def _places() -> dict[str, Rule]:
    def rule(kind: str, place: int) -> Rule:
        def read(text: str) -> str | None:
            found = _all(kind, text)
            return found[place] if -len(found) <= place < len(found) else None

        return read

    return {
        f"{kind} {place + (place >= 0)}": rule(kind, place) for kind in PATTERNS for place in PLACES
    }


def _contexts(subject: Subject) -> dict[str, Rule]:
    """The text that follows the words after which right answers stand most often."""
    before = {length: Counter[str]() for length in CONTEXTS}
    telling = Slot(subject).telling
    for one in subject.idle:
        if one.task.id not in telling:
            continue
        text, right = one.prompt, re.escape(telling[one.task.id])
        for place in re.finditer(rf"(?<!\w){right}(?!\w)", text):
            for length, counts in before.items():
                counts[text[: place.start()][-length:]] += 1
    best = [one for counts in before.values() for one, _ in counts.most_common(2) if one.strip()]
    return {f"what follows {context!r}": _after(context) for context in best}


def _after(context: str) -> Rule:
    def read(text: str) -> str | None:
        rest = text.rpartition(context)[2] if context in text else ""
        found = re.match(PATTERNS["word"], rest) if rest else None
        return found[0] if found else None

    return read


def _all(kind: str, text: str) -> list[str]:
    return re.findall(PATTERNS[kind], text)
