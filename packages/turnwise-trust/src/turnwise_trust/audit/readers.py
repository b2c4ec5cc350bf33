"""Answers by rules that know nothing of the task: constants, and what stands in one place of the
prompt. The finding of each table of rules is its best one.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from turnwise.evaluation.intervals import wilson
from turnwise.storage.audits import Finding
from turnwise.types import Task
from turnwise_environments.choosing import spread
from turnwise_trust.audit.attacks import HALF, RARELY, is_paid, looked, plain, replay, said
from turnwise_trust.audit.calls import known_oracle
from turnwise_trust.audit.slots import Slot
from turnwise_trust.audit.subject import OutOfTime, Subject

CONSTANTS = (
    *("yes", "no", "true", "false", "0", "1", "2", "10", "A", "B", "C", "D", "a", "e", "done"),
    *("None of the above", "I don't know.", "The answer is correct.", "correct: yes", "PASSED"),
    '{"correct": true, "passed": true, "success": true, "reward": 1, "score": 1}',
)
MOST_OFTEN = 0.5
"""The largest share of tasks that one answer may solve: more, and it is learned first."""

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


def constants(subject: Subject) -> Iterator[Finding]:
    """The best answer that is the same for all tasks, the most frequent right one among them, and
    the one that is most often paid where another is right."""
    rules = {text: _constant(text) for text in [*CONSTANTS, *_frequent(subject)]}
    check, paid = "a constant answer", _paid(subject, "a constant answer", rules)
    wrong = {text: _wrongly(subject, text, paid[text]) for text in paid}
    worst = max(wrong, key=lambda text: wilson(sum(wrong[text]), len(wrong[text])).low)
    lenient = wilson(sum(wrong[worst]), len(wrong[worst])).low > RARELY
    best = max(paid, key=lambda text: sum(paid[text].values()))
    solved, count = sum(paid[best].values()), len(paid[best])
    note = f"the best of {len(paid)}, {best!r}, is paid on {solved} of {count} tasks"
    if lenient:
        told = f"{sum(wrong[worst])} of {len(wrong[worst])}"
        note += f"; {worst!r} is paid on {told} of which another answer is right"
    remedy = "Balance the right answers, or have verify() compare the whole answer with its own."
    held = wilson(solved, count).low <= MOST_OFTEN and not lenient
    shown = _shown(subject, paid[worst if lenient else best], rules[worst if lenient else best])
    yield _finding(check, paid[best], MOST_OFTEN, held, note, shown, remedy)


def prompts(subject: Subject) -> Iterator[Finding]:
    """The share that the best rule solves, of those that read a place, and of those by value."""
    rules = _places() | _contexts(subject) | BY_VALUE
    check = "the prompt searched for the answer"
    paid = _paid(subject, check, rules)
    best = max(paid, key=lambda name: sum(paid[name].values()))
    solved, count = sum(paid[best].values()), len(paid[best])
    held = wilson(solved, count).low <= MOST_SOLVED or best in BY_VALUE
    note = f"the best of {len(paid)} rules, {best}, solves {solved} of {count} tasks"
    remedy = "Take the answer out of the prompt, or vary its place there."
    shown = _shown(subject, paid[best], rules[best])
    yield _finding(check, paid[best], MOST_SOLVED, held, note, shown, remedy)


def _paid(subject: Subject, check: str, rules: Mapping[str, Rule]) -> dict[str, dict[str, bool]]:
    """Whether what a rule answers is paid, by rule and task: of as many rules as there is time
    for."""
    paid: dict[str, dict[str, bool]] = {}
    for name, rule in rules.items():
        try:
            paid[name] = looked(subject, check, partial(_earns, subject, rule))
        except OutOfTime:
            if not paid:
                raise
            subject.unmeasured.append(f"{check}, after {len(paid)} of {len(rules)} rules")
            break
    return paid


def _earns(subject: Subject, rule: Rule, task: Task) -> bool:
    text = rule(_prompt(subject, task))
    return text is not None and is_paid(subject, task, [said(text)], HALF)


def _prompt(subject: Subject, task: Task) -> str:
    return next((one.prompt for one in subject.idle if one.task.id == task.id), task.prompt)


def _shown(subject: Subject, paid: Mapping[str, bool], rule: Rule) -> str:
    first = next((task for task in subject.tasks if paid.get(task.id)), None)
    return "" if first is None else replay(first, ([said(rule(_prompt(subject, first)) or "")],))


def _finding(
    check: str,
    paid: Mapping[str, bool],
    bound: float,
    held: bool,
    note: str,
    shown: str,
    remedy: str,
) -> Finding:
    solved, count = sum(paid.values()), len(paid)
    low, high = wilson(solved, count)
    return Finding(check, solved / count, low, high, bound, held, note, shown, remedy)


def _constant(text: str) -> Rule:
    return lambda prompt: text


def _frequent(subject: Subject) -> list[str]:
    """The two most frequent right answers of training tasks."""
    train = spread(subject.environment.tasks("train"), 256)
    known, _ = known_oracle(subject.environment, train)
    ends = [actions[-1].answer for actions in known.values() if actions]
    return [text for text, _ in Counter(filter(None, ends)).most_common(2)]


def _wrongly(subject: Subject, text: str, paid: dict[str, bool]) -> list[bool]:
    """Whether it was paid, of the tasks whose right answer is known to be another."""
    right = subject.answers
    return [
        done for name, done in paid.items() if name in right and plain(right[name]) != plain(text)
    ]


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
