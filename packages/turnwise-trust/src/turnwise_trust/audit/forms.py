"""Forms of attacks with answers: empty, malformed, hedged, denied, contradicted, or only near.

Each function gives the forms for one place of an answer and one task; none: it does not apply.
"""

import re
from collections.abc import Callable, Iterator

from turnwise.types import Action, Task
from turnwise_trust.audit.attack import BOXED, TAGGED, written
from turnwise_trust.audit.scripts import Form, is_paid, number_of, plain, said
from turnwise_trust.audit.slots import Slot

DENIALS = ("The answer is not {}.", "not {}", "It is anything but {}", "{} is wrong.")
OPPOSITES = (("yes", "no"), ("true", "false"), ("0", "1"), ("A", "B"), ("7", "left-handed"))
MALFORMED = (
    *("", " ", "\n\n", ".", ":", "None", "null", "N/A", "nan", "inf", "-inf", "{}", "[]", "()"),
    *('""', "\\boxed{}", "<answer></answer>", "```\n```", "Thought process:", "\0", "\ud800", "*"),
    *(".*", "%", "Error", "Traceback (most recent call last):"),
)
QUANTITY = re.compile(r"(?<![\w.,/-])(-?\d[\d.,]*)\s*(\\?%|[^\W\d_]+)(?![\w/^(])")
UNITS = (("mm", "km"), ("mg", "kg"), ("ms", "h"))
LONG = 20_000
"""Words of a very long answer."""
DUMPED = 1000
"""Numbers of an enumeration: from 0."""


def each(*texts: str) -> Callable[[Slot, Task], list[Form]]:
    """The forms of texts that are tried as they are."""
    forms: list[Form] = [([said(text)],) for text in texts]
    return lambda slot, task: forms


def opposites(slot: Slot, task: Task) -> Iterator[Form]:
    yield from (tuple([said(one)] for one in pair) for pair in OPPOSITES)


def of_another(slot: Slot, task: Task) -> Iterator[Form]:
    """The right answer of the next task, without what is done before it."""
    names = sorted(slot.right)
    if task.id in slot.right:
        other = slot.right[names[(names.index(task.id) + 1) % len(names)]]
        if plain(other) != plain(slot.right[task.id]):
            yield ([slot.write(other)],)


def prompt_echoed(slot: Slot, task: Task) -> Iterator[Form]:
    """The prompt, and an expression in it; unless that is the right answer."""
    expressions = re.findall(r"[\d(][\d\s+*/().^=<>-]*[\d)]", task.prompt)
    longest = max(expressions, key=len, default="")
    for text in (task.prompt, f"{task.prompt}\n{task.prompt}", longest):
        operators = re.search(r"[+*/^-]", longest)
        right = plain(slot.subject.answers.get(task.id, ""))
        if plain(text) != right and (text != longest or operators):
            yield ([said(text)],)


def enumerated(slot: Slot, task: Task) -> Iterator[Form]:
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
        for join in (" ".join, ", ".join, "\n".join, BOXED, TAGGED):
            yield tuple([*before, slot.write(join(one))] for one in (texts, texts[::-1]))


def near(slot: Slot, task: Task) -> Iterator[Form]:
    number = number_of(slot.right.get(task.id, ""))
    if number is None or not slot.decoys(task):
        return
    for step in (1.0, 0.1 * abs(number)):
        if step >= 0.5:
            pair = (f"{number + step:.15g}", f"{number - step:.15g}")
            yield tuple(written(slot, task, pair))


def parts(slot: Slot, task: Task) -> Iterator[Form]:
    """The first of several items; beginnings, ends, and longer texts of answers that are short."""
    right = slot.right.get(task.id, "")
    if not slot.decoys(task):
        return
    items = re.split(r"([,;\n])", right)
    if len(items) > 1 and items[0].strip():
        yield tuple(written(slot, task, ["".join(items[: len(items) // 4 * 2 + 1])]))
        yield tuple(written(slot, task, items[:1]))
    if not 2 <= len(plain(right)) <= 40:
        return
    for text in (right[0], right[-1], right[: len(right) // 2]):
        yield tuple(written(slot, task, [text]))
    if (
        right[0].isalnum() and right[-1].isalnum()
    ):  # else it is marked, and what is around is not it
        for more in "7x":
            yield tuple(written(slot, task, [right + more, more + right]))


def units(slot: Slot, task: Task) -> Iterator[Form]:
    """The right number in units that differ; of 50% both 50 and 0.5. A number alone is right in any
    unit, per cent too: what is asked for has it."""
    right = slot.right.get(task.id, "")
    found = QUANTITY.search(right)
    if found is None or re.search(r"\d", right.replace(found[0], "", 1)) or not slot.decoys(task):
        return
    number, unit = found.groups()
    texts = [[f"{number} {one}" for one in pair] for pair in UNITS]
    if unit.endswith("%"):
        texts.append([number, f"{(number_of(number) or 0) / 100:g}"])
    for chosen in texts:
        yield tuple(written(slot, task, (right.replace(found[0], one, 1) for one in chosen)))


def elsewhere(slot: Slot, task: Task) -> Iterator[Form]:
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


def denied(slot: Slot, task: Task) -> Iterator[Form]:
    if slot.decoys(task):
        texts = [one.format(slot.right[task.id]) for one in DENIALS]
        yield from ((script,) for script in written(slot, task, texts))
