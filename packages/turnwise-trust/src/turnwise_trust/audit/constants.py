"""Answers that are the same for all tasks, and what all rules that know nothing of a task share."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from turnwise.evaluation.intervals import wilson
from turnwise.storage.audits import Finding
from turnwise.types import Task
from turnwise_environments.choosing import spread
from turnwise_trust.audit.attempts import graded, scripted, succeeded
from turnwise_trust.audit.calls import known_oracle
from turnwise_trust.audit.floors import declared
from turnwise_trust.audit.plays import rate
from turnwise_trust.audit.scripts import HALF, RARELY, earned, looked, plain, play, replay, said
from turnwise_trust.audit.subject import OutOfTime, Subject, Ungraded

CONSTANTS = (
    *("yes", "no", "true", "false", "0", "1", "2", "10", "A", "B", "C", "D", "a", "e", "done"),
    *("None of the above", "I don't know.", "The answer is correct.", "correct: yes", "PASSED"),
    '{"correct": true, "passed": true, "success": true, "reward": 1, "score": 1}',
)
MOST_OFTEN = 0.5
"""The largest share of tasks that one answer may solve, unless the environment declares more of a
policy that reads nothing: more, and it is learned first."""
MOST_SHARED = 0.8
"""The largest share where so many tasks truly have that answer: more, and little else is taught."""
OTHERS = 32
"""Training tasks on which the best answer has to hold, as one of many is often right by chance."""
BALANCE = "Balance the right answers, or have verify() compare the whole answer with its own."

Rule = Callable[[str], str | None]
Paid = Mapping[str, Mapping[str, bool]]
"""Whether a text, or what a rule answers, is paid: by text or rule, and by task."""


def constants(subject: Subject) -> Iterator[Finding]:
    """The best answer that is the same for all tasks, the most frequent right one among them, and
    the one that is most often paid where another is right."""
    rules = {text: _constant(text) for text in [*CONSTANTS, *_frequent(subject)]}
    check, paid = "a constant answer", paid_by(subject, "a constant answer", rules)
    wrong = {text: _wrongly(subject, text, paid[text]) for text in paid}
    worst = max(wrong, key=lambda text: wilson(sum(wrong[text]), len(wrong[text])).low)
    lenient = wilson(sum(wrong[worst]), len(wrong[worst])).low > RARELY
    best = _most_paid(paid)
    bound, truly = _bound(subject, best, paid)
    shown = shown_by(subject, paid[worst if lenient else best], rules[worst if lenient else best])
    solved, count = sum(paid[best].values()), len(paid[best])
    note = f"the best of {len(paid)}, {best!r}, is paid on {solved} of {count} tasks{truly}"
    if lenient:
        told = f"{sum(wrong[worst])} of {len(wrong[worst])}"
        note += f"; {worst!r} is paid on {told} of which another answer is right"
    held = wilson(solved, count).low <= bound and not lenient
    yield finding_of(check, paid[best], bound, held, note, shown, BALANCE)


def one_answer(subject: Subject) -> Iterator[Finding]:
    """The constant that succeeds most often, unless the oracle ends without answers that differ:
    then one for all may be what is asked for. It counts on tasks that it was not chosen on."""
    if subject.oracle and len({*map(plain, subject.answers.values())}) < 2:
        return
    if subject.idle and all(map(succeeded, subject.idle)):
        return  # that doing nothing is paid is another finding
    told = ((text, _solved(subject, text)) for text in [*CONSTANTS, *_frequent(subject)])
    paid = {text: known for text, known in told if known}
    if not paid:
        raise OutOfTime if subject.left <= 0 else Ungraded
    best = _most_paid(paid)
    if wilson(sum(paid[best].values()), len(paid[best])).low > _unread(subject):
        subject = _others(subject)
        texts = [best] if subject.answers else paid  # else the others tell what it is right on
        paid = {text: _solved(subject, text) for text in texts}
    bound, truly = _bound(subject, best, paid)
    solved, count = sum(paid[best].values()), len(paid[best])
    held = wilson(solved, count).low <= bound
    note = f"{best!r} succeeds on {solved} of {count} tasks, whatever they ask{truly}"
    yield finding_of("one answer for all tasks", paid[best], bound, held, note, "", BALANCE)


def _solved(subject: Subject, text: str) -> dict[str, bool]:
    """Whether it succeeds, by the tasks for which there was time and a verdict."""
    return {one.task.id: succeeded(one) for one in graded(subject.play(scripted([said(text)])))}


def _others(subject: Subject) -> Subject:
    """Training tasks besides those of the subject; its own where there are none."""
    known = {task.id for task in subject.tasks}
    others = [task for task in subject.environment.tasks("train") if task.id not in known]
    tasks = spread(others, OTHERS) or subject.tasks
    oracle, _ = known_oracle(subject.environment, tasks, subject.goes_on)
    return replace(subject, tasks=tasks, oracle=oracle)


def _most_paid(paid: Paid) -> str:
    return max(paid, key=lambda text: sum(paid[text].values()))


def _bound(subject: Subject, text: str, paid: Paid) -> tuple[float, str]:
    """The share of tasks that a constant may solve; and, where it is known, of how many it is the
    right answer, as the end of a sentence."""
    bound, truly = _unread(subject), _truly(subject, text, paid)
    if truly is None:
        return bound, ""
    return max(bound, min(MOST_SHARED, truly)), f"; it is the right answer of {truly:.0%}"


def _unread(subject: Subject) -> float:
    """The share of tasks that a policy may solve which reads nothing."""
    return max(MOST_OFTEN, declared(subject.environment))


def _truly(subject: Subject, text: str, paid: Paid) -> float | None:
    """The share of tasks whose right answer a constant is. Without right answers it is known where
    each other task pays a constant that is never paid where this one is: verify() tells classes
    apart, such as yes and no."""
    right = [*map(plain, subject.answers.values())]
    if right:
        return right.count(_meant(subject, text, paid[text])) / len(right)
    solved = {one: {name for name, done in tasks.items() if done} for one, tasks in paid.items()}
    own, rest = solved[text], paid[text].keys() - solved[text]
    apart = {name for tasks in solved.values() if not tasks & own for name in tasks}
    return len(own) / len(paid[text]) if rest and rest <= apart else None


def _constant(text: str) -> Rule:
    return lambda prompt: text


def _frequent(subject: Subject) -> list[str]:
    """The two most frequent right answers of training tasks."""
    train = spread(subject.environment.tasks("train"), 256)
    known, _ = known_oracle(subject.environment, train, subject.goes_on)
    ends = [actions[-1].answer for actions in known.values() if actions]
    return [text for text, _ in Counter(filter(None, ends)).most_common(2)]


def _wrongly(subject: Subject, text: str, paid: Mapping[str, bool]) -> list[bool]:
    """Whether it was paid, of the tasks whose right answer is known to be another."""
    right, meant = subject.answers, _meant(subject, text, paid)
    return [done for name, done in paid.items() if name in right and plain(right[name]) != meant]


def _meant(subject: Subject, text: str, paid: Mapping[str, bool]) -> str:
    """The right answer that a text stands for: it is another word for one, as "true" for "yes",
    where it is paid on all tasks with that answer and on no others."""
    right = {name: plain(answer) for name, answer in subject.answers.items() if name in paid}
    solved = {answer for name, answer in right.items() if paid[name]}
    refused = {answer for name, answer in right.items() if not paid[name]}
    is_word = len(solved) == 1 and refused and solved.isdisjoint(refused)
    return solved.pop() if is_word else plain(text)


def paid_by(subject: Subject, check: str, rules: Mapping[str, Rule]) -> Paid:
    """Whether what a rule answers is paid, by rule and task: of as many rules as there is time
    for, and verdicts. Raises OutOfTime or Ungraded for none."""
    paid: dict[str, dict[str, bool]] = {}
    before = subject.graded[True]
    for name, rule in rules.items():
        try:
            paid[name] = looked(subject, check, partial(_earns, subject, rule))
        except Ungraded:
            continue
        except OutOfTime:
            if not paid:
                raise
            subject.unmeasured.append(f"{check}, after {len(paid)} of {len(rules)} rules")
            break
    if subject.graded[True] == before:
        raise Ungraded
    return paid


def _earns(subject: Subject, rule: Rule, task: Task) -> bool:
    text = rule(prompt_of(subject, task))
    if text is None:
        return False
    played = play(subject, task, [said(text)])
    if played.verdict is None:
        raise Ungraded
    return earned(subject, played) >= HALF


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
    share = rate(sum(paid.values()), len(paid))
    return Finding(check, **share, bound=bound, passed=held, note=note, replay=shown, remedy=remedy)
