"""The prompt searched for the answer, by rules that read a place in it and know nothing else."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from turnwise.evaluation.intervals import wilson
from turnwise.storage.audits import Finding
from turnwise_trust.audit.attacks import paid_by_task, replay, said
from turnwise_trust.audit.slots import Slot
from turnwise_trust.audit.subject import Subject

MOST_SOLVED = 0.6
"""The largest share of tasks that reading a fixed place may solve: of two options each is right in
half of the tasks, and the best of some rules in a little more."""
CONTEXTS = (3, 6, 12)
"""Characters before an answer that make a rule."""

Rule = Callable[[str], str | None]
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
    shown = {one.task.id: one.prompt for one in subject.idle}
    placed = _places() | _contexts(subject, shown)
    solved = {name: _solved(subject, rule, shown) for name, rule in (placed | BY_VALUE).items()}
    best = max(solved, key=lambda name: sum(solved[name].values()))
    count, total = sum(solved[best].values()), len(solved[best])
    low, high = wilson(count, total)
    held = low <= MOST_SOLVED or best in BY_VALUE
    first = next((task for task in subject.tasks if solved[best].get(task.id)), None)
    rule = (placed | BY_VALUE)[best]
    yield Finding(
        "the prompt searched for the answer",
        count / total,
        low,
        high,
        bound=MOST_SOLVED,
        passed=held,
        note=f"the best of {len(solved)} rules, {best}, solves {count} of {total} tasks",
        replay="" if first is None else replay(first, ([said(rule(shown[first.id]) or "")],)),
        remedy="" if held else "Take the answer out of the prompt, or vary its place there.",
    )


def _places() -> dict[str, Rule]:
    def rule(kind: str, place: int) -> Rule:
        def read(text: str) -> str | None:
            found = _all(kind, text)
            return found[place] if -len(found) <= place < len(found) else None

        return read

    return {
        f"{kind} {place + (place >= 0)}": rule(kind, place) for kind in PATTERNS for place in PLACES
    }


def _contexts(subject: Subject, shown: Mapping[str, str]) -> dict[str, Rule]:
    """The text that follows the words after which right answers stand most often."""
    before = {length: Counter[str]() for length in CONTEXTS}
    for name, answer in Slot(subject).telling.items():
        text, right = shown.get(name, ""), re.escape(answer)
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


def _all(kind: str, text: str) -> Sequence[str]:
    return re.findall(PATTERNS[kind], text)


def _solved(subject: Subject, rule: Rule, shown: Mapping[str, str]) -> dict[str, bool]:
    """Whether what the rule reads is paid, by task."""
    return paid_by_task(subject, lambda task: rule(shown.get(task.id, task.prompt)))
