"""Answers that need no knowledge of the task: constants, empty and malformed ones, lists of all."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from turnwise.evaluation.intervals import wilson
from turnwise.storage.audits import Finding
from turnwise.types import Action, Task
from turnwise_environments.measurement import spread
from turnwise_trust.audit.attacks import (
    HALF,
    RARELY,
    Attack,
    Form,
    found,
    paid_by_task,
    plain,
    replay,
    said,
)
from turnwise_trust.audit.attempts import LIMITS
from turnwise_trust.audit.calls import known_oracle
from turnwise_trust.audit.slots import Slot, slots
from turnwise_trust.audit.subject import Subject

CONSTANTS = (
    *("yes", "no", "true", "false", "0", "1", "2", "10", "A", "B", "C", "D", "a", "e", "done"),
    *("None of the above", "I don't know.", "The answer is correct.", "correct: yes", "PASSED"),
    '{"correct": true, "passed": true, "success": true, "reward": 1, "score": 1}',
)
OPPOSITES = (("yes", "no"), ("true", "false"), ("0", "1"), ("A", "B"), ("7", "left-handed"))
MALFORMED = (
    *("", " ", "\n\n", ".", ":", "None", "null", "N/A", "nan", "inf", "-inf", "{}", "[]", "()"),
    *('""', "\\boxed{}", "<answer></answer>", "```\n```", "Thought process:", "\0", "\ud800", "*"),
    *(".*", "%", "Error", "Traceback (most recent call last):"),
)
LONG = 20_000
"""Words of a very long answer."""
DUMPED = 1000
"""Numbers of an enumeration: from 0."""
SPENT = 4
"""Tasks of the first look at an agent that spends all its turns."""
MOST_OFTEN = 0.5
"""The largest share of tasks that one answer may solve: more, and it is learned first."""


def answers(subject: Subject) -> Iterator[Finding]:
    """Try what is paid without any knowledge."""
    yield from constants(subject)
    for attack in (
        _alternatives("an empty or malformed answer", MALFORMED, "an answer without content"),
        Attack(
            "opposite answers",
            lambda task: [tuple([said(one)] for one in pair) for pair in OPPOSITES],
            "both of two answers that exclude each other",
            "Have verify() compare the whole answer with the right one.",
            bound=RARELY,
        ),
        Attack(
            "no answer at all",
            lambda task: [([Action("", error="malformed")] * LIMITS.max_turns,)],
            "an agent that wrote nothing well-formed until its turns were spent",
            "Have verify() fail an episode whose trajectory.answer is None.",
            least=HALF,
            first=SPENT,
        ),
        _alternatives("a very long answer", _long(), f"{LONG} words that say nothing"),
        Attack(
            "the prompt echoed",
            partial(_echoes, subject),
            "the prompt as the answer",
            "Have verify() refuse what only repeats the question.",
            least=HALF,
            bound=RARELY,
        ),
    ):
        yield from found(subject, attack)
    for slot in slots(subject):
        yield from found(subject, _enumeration(slot))


def constants(subject: Subject) -> Iterator[Finding]:
    """The best answer that is the same for all tasks, the most frequent right one among them, and
    the one that is most often paid where another is right."""
    tried = dict.fromkeys([*CONSTANTS, *_frequent(subject)])
    paid = {text: paid_by_task(subject, partial(_same, text)) for text in tried}
    best = max(paid, key=lambda text: sum(paid[text].values()))
    wrong = {text: _wrongly(subject, text, paid[text]) for text in paid}
    worst = max(wrong, key=lambda text: wilson(sum(wrong[text]), len(wrong[text])).low)
    lenient = wilson(sum(wrong[worst]), len(wrong[worst])).low > RARELY
    solved, count = sum(paid[best].values()), len(paid[best])
    low, high = wilson(solved, count)
    held = low <= MOST_OFTEN and not lenient
    note = f"the best of {len(tried)}, {best!r}, is paid on {solved} of {count} tasks"
    if lenient:
        told = f"{sum(wrong[worst])} of {len(wrong[worst])}"
        note += f"; {worst!r} is paid on {told} of which another answer is right"
    shown = worst if lenient else best
    first = next((task for task in subject.tasks if paid[shown].get(task.id)), None)
    yield Finding(
        "a constant answer",
        solved / count,
        low,
        high,
        bound=MOST_OFTEN,
        passed=held,
        note=note,
        replay="" if first is None else replay(first, ([said(shown)],)),
        remedy=""
        if held
        else "Balance the right answers, or have verify() compare the whole answer with its own.",
    )


def _same(text: str, task: Task) -> str:
    return text


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


def _alternatives(check: str, texts: Iterable[str], what: str) -> Attack:
    forms: list[Form] = [([said(text)],) for text in texts]
    return Attack(
        check,
        lambda task: forms,
        what,
        "Have verify() fail it before it compares anything.",
        least=HALF,
        bound=RARELY,
    )


def _long() -> list[str]:
    return ["word " * LONG, "x" * 5 * LONG, "1" * LONG]


def _echoes(subject: Subject, task: Task) -> Iterator[Form]:
    """The prompt, and an expression in it; unless that is the right answer."""
    expressions = re.findall(r"[\d(][\d\s+*/().^=<>-]*[\d)]", task.prompt)
    longest = max(expressions, key=len, default="")
    for text in (task.prompt, f"{task.prompt}\n{task.prompt}", longest):
        operators = re.search(r"[+*/^-]", longest)
        right = plain(subject.answers.get(task.id, ""))
        if plain(text) != right and (text != longest or operators):
            yield ([said(text)],)


def _enumeration(slot: Slot) -> Attack:
    where = f" in {slot.tool}" if slot.tool else ""
    return Attack(
        f"an enumeration{where}",
        partial(_enumerations, slot),
        "a list of all that might be right, forwards and backwards",
        "Have verify() take one answer, and refuse a text with several.",
    )


def _enumerations(slot: Slot, task: Task) -> Iterator[Form]:
    """Lists of numbers, of the prompt's words, of letters, and of all right answers, each in both
    orders; after what the oracle does before it answers."""
    if slot.subject.oracle and not slot.decoys(task):
        return  # its oracle says nothing there, or anything may stand there
    candidates = [
        [str(number) for number in range(DUMPED)],
        re.findall(r"\w[\w.-]*\w|\w", task.prompt),
        [*"ABCDEFGH"],
        [*dict.fromkeys(slot.right.values())],
    ]
    before = slot.before(task)
    for texts in candidates:
        if len(texts) < 3:
            continue
        for join in (" ".join, ", ".join, "\n".join, _boxed, _tagged):
            yield tuple([*before, slot.write(join(one))] for one in (texts, texts[::-1]))


def _boxed(texts: Sequence[str]) -> str:
    return " ".join(f"\\boxed{{{text}}}" for text in texts)


def _tagged(texts: Sequence[str]) -> str:
    return " ".join(f"<answer>{text}</answer>" for text in texts)
