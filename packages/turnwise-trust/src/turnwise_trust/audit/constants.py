"""Answers that are the same for all tasks, and what all rules that know nothing of a task share."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from turnwise.evaluation.intervals import wilson
from turnwise.storage.audits import Finding
from turnwise.types import Task
from turnwise_environments.choosing import spread
from turnwise_trust.audit.scripts import HALF, RARELY, is_paid, looked, plain, replay, said
from turnwise_trust.audit.attempts import scripted, succeeded
from turnwise_trust.audit.calls import known_oracle
from turnwise_trust.audit.floors import declared
from turnwise_trust.audit.subject import OutOfTime, Subject

CONSTANTS = (
    *("yes", "no", "true", "false", "0", "1", "2", "10", "A", "B", "C", "D", "a", "e", "done"),
    *("None of the above", "I don't know.", "The answer is correct.", "correct: yes", "PASSED"),
    '{"correct": true, "passed": true, "success": true, "reward": 1, "score": 1}',
)
MOST_OFTEN = 0.5
"""The largest share of tasks that one answer may solve, unless the environment declares more of a
policy that reads nothing: more, and it is learned first."""
OTHERS = 32
"""Training tasks on which the best answer has to hold, as one of many is often right by chance."""
BALANCE = "Balance the right answers, or have verify() compare the whole answer with its own."

Rule = Callable[[str], str | None]


def constants(subject: Subject) -> Iterator[Finding]:
    """The best answer that is the same for all tasks, the most frequent right one among them, and
    the one that is most often paid where another is right."""
    rules = {text: _constant(text) for text in [*CONSTANTS, *_frequent(subject)]}
    check, paid = "a constant answer", paid_by(subject, "a constant answer", rules)
    wrong = {text: _wrongly(subject, text, paid[text]) for text in paid}
    worst = max(wrong, key=lambda text: wilson(sum(wrong[text]), len(wrong[text])).low)
    lenient = wilson(sum(wrong[worst]), len(wrong[worst])).low > RARELY
    best = max(paid, key=lambda text: sum(paid[text].values()))
    shown = shown_by(subject, paid[worst if lenient else best], rules[worst if lenient else best])
    bound = max(MOST_OFTEN, declared(subject.environment))
    solved, count = sum(paid[best].values()), len(paid[best])
    note = f"the best of {len(paid)}, {best!r}, is paid on {solved} of {count} tasks"
    if lenient:
        told = f"{sum(wrong[worst])} of {len(wrong[worst])}"
        note += f"; {worst!r} is paid on {told} of which another answer is right"
    held = wilson(solved, count).low <= bound and not lenient
    yield finding_of(check, paid[best], bound, held, note, shown, BALANCE)


def one_answer(subject: Subject) -> Iterator[Finding]:
    """The constant that succeeds most often, where right answers are known and differ: elsewhere
    one for all may be what is asked for. It counts on tasks that it was not chosen on."""
    if len({*map(plain, subject.answers.values())}) < 2:
        return
    counts = {text: _solved(subject, text) for text in [*CONSTANTS, *_frequent(subject)]}
    best = max(counts, key=lambda text: counts[text])
    bound = max(MOST_OFTEN, declared(subject.environment))
    if not any(count for _, count in counts.values()):
        raise OutOfTime
    if wilson(*counts[best]).low > bound:
        known = {task.id for task in subject.tasks}
        others = [task for task in subject.environment.tasks("train") if task.id not in known]
        counts[best] = _solved(
            replace(subject, tasks=spread(others, OTHERS) or subject.tasks), best
        )
    solved, count = counts[best]
    low, high = wilson(solved, count)
    yield Finding(
        "one answer for all tasks",
        solved / count if count else None,
        low,
        high,
        bound,
        low <= bound,
        f"{best!r} succeeds on {solved} of {count} tasks, whatever they ask",
        remedy=BALANCE,
    )


def _solved(subject: Subject, text: str) -> tuple[int, int]:
    """Successes, and episodes for which there was time."""
    played = subject.play(scripted([said(text)]))
    return sum(map(succeeded, played)), len(played)


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


def paid_by(subject: Subject, check: str, rules: Mapping[str, Rule]) -> dict[str, dict[str, bool]]:
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
    text = rule(prompt_of(subject, task))
    return text is not None and is_paid(subject, task, [said(text)], HALF)


def prompt_of(subject: Subject, task: Task) -> str:
    return next((one.prompt for one in subject.idle if one.task.id == task.id), task.prompt)


def shown_by(subject: Subject, paid: Mapping[str, bool], rule: Rule) -> str:
    first = next((task for task in subject.tasks if paid.get(task.id)), None)
    return "" if first is None else replay(first, ([said(rule(prompt_of(subject, first)) or "")],))


def finding_of(
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
