"""Rewards: whether they are as declared, how fine they are, and how often they are wrong."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

from turnwise.seeds import derive
from turnwise.storage.audits import Finding
from turnwise.types import Action, Task, Trajectory
from turnwise_trust.audit.attempts import graded
from turnwise_trust.audit.plays import Script, compared, played, rate
from turnwise_trust.audit.subject import Subject

FALSE_POSITIVES = 0.05
"""The largest share of wrong episodes that may pass, unless doing nothing is declared to."""
CUTS = 4
"""Lengths to which an oracle's way is cut, the whole among them, at most."""
SEEDS = 4
"""Seeds under which an oracle that was refused is played again: it may have had bad luck."""
TRIED = 8
EPSILON = 1e-9


def rewards(subject: Subject) -> Iterator[Finding]:
    """Look at the rewards of oracle, random, idle, wrong and unfinished episodes."""
    yield _well_formed(subject)
    yield _continuous(subject)
    yield _false_positives(subject)
    yield _false_negatives(subject)


def _well_formed(subject: Subject) -> Finding:
    known = [*subject.of_oracle, *subject.of_random, *subject.idle]
    wrong = [
        f"task {one.task.id}: {said}" for one in known for said in _malformed(subject, one)[:1]
    ]
    earned = [one.reward for one in known if one.reward is not None]
    count = len(known)
    note = f"of {count} episodes of the oracle, at random and idle"
    return Finding(
        "well-formed reward",
        **rate(len(wrong), count),
        bound=0.0,
        passed=not wrong,
        note=f"{len(wrong)} {note} are not: {wrong[0]}"
        if wrong
        else f"{note} each gets a verdict whose numbers are in the ranges that are declared: "
        f"rewards {min(earned):g} to {max(earned):g}",
        remedy="Mend what raises, or give the ranges in the environment's facts: rewards, parts."
        if wrong
        else "",
    )


def _malformed(subject: Subject, episode: Trajectory) -> list[str]:
    """Faults of its verdict, each as a sentence's end."""
    verdict, spec = episode.verdict, subject.environment.spec
    if verdict is None:
        return [f"{episode.outcome.value}: {episode.problem}"]
    found = []
    if spec.rewards == "shares" and not 0 <= verdict.reward <= 1:
        found.append(f"reward {verdict.reward:g} outside of 0 to 1")
    turns = episode.turn_rewards
    stated = subject.environment.facts is not None  # else nothing is declared at all
    if stated and not spec.turn_rewards and turns is not None and turns.any():
        found.append("its turns have rewards, and turn_rewards is not declared")
    for name, part in spec.parts.items():
        numbers = (
            [verdict.parts[name]] if name in verdict.parts else verdict.turn_parts.get(name, [])
        )
        outside = [one for one in numbers if not part.low - EPSILON <= one <= part.high + EPSILON]
        if outside:
            found.append(f"part {name} {outside[0]:g} outside of {part.low:g} to {part.high:g}")
    return found


def _continuous(subject: Subject) -> Finding:
    """How much partial credit there is, which a policy that cannot do the task yet learns from."""
    ways = [_way(subject, task) for task in compared(subject, CUTS) if _length(subject, task) > 1]
    cut = [reward for way in ways for reward in way[:-1]]
    partial = [r for way in ways for r in way[:-1] if EPSILON < r < way[-1] - EPSILON]
    falls = sum(any(b < a - EPSILON for a, b in pairwise(way)) for way in ways)
    known = [one.reward for one in [*subject.of_oracle, *subject.of_random, *subject.idle]]
    values = {round(one, 9) for one in [*known, *cut] if one is not None}
    said = f"{len(values)} different rewards of {len(known) + len(cut)} episodes"
    if not cut:
        return Finding("continuous: partial credit", note=f"{said}; no oracle's way has two steps")
    return Finding(
        "continuous: partial credit",
        **rate(len(partial), len(cut)),
        note=f"share of {len(cut)} unfinished oracle's episodes that earn something, and less than "
        f"the whole; {said}; on the oracle's way the reward falls in {falls} of {len(ways)} tasks",
    )


def _length(subject: Subject, task: Task) -> int:
    return len(subject.oracle.get(task.id, ()))


def _way(subject: Subject, task: Task) -> list[float]:
    """The rewards of an oracle's episodes that stop after some steps, the last after all."""
    actions = subject.oracle[task.id]
    places = sorted({max(1, len(actions) * part // CUTS) for part in range(1, CUTS + 1)})
    chosen = [Script("oracle", task, actions[:place]) for place in places]
    return [one.reward for one in played(subject, chosen) if one.reward is not None]


def _false_positives(subject: Subject) -> Finding:
    others = list(graded(played(subject, list(_wrong_answers(subject)))))
    wrong = [*graded(subject.idle_at_work), *others]
    passing = [one for one in wrong if one.verdict and one.verdict.success]
    chance = [one.verdict.success for one in graded(subject.of_random) if one.verdict]
    share = rate(len(passing), len(wrong))
    first = f"; first: task {passing[0].task.id}" if passing else ""
    idle = len(wrong) - len(others)
    if not wrong:
        return Finding("low noise: false positives", note="no episode got a verdict")
    most = max(FALSE_POSITIVES, subject.environment.spec.reference_scores.get("noop", 0.0))
    passed = share["low"] <= most
    return Finding(
        "low noise: false positives",
        **share,
        bound=most,
        passed=passed,
        note=f"share of {idle} idle episodes and {len(others)} answers of other "
        f"tasks' oracles that pass{first}; random actions pass in {sum(chance)} of {len(chance)}",
        remedy="" if passed else "Have verify() compare with what this task asks for.",
    )


def _wrong_answers(subject: Subject) -> Iterator[Script]:
    """For each task the answer of another one's oracle, without what it did before: one that is
    another text."""
    tasks = compared(subject, 1)
    answers = {task.id: last for task in tasks if (last := _answer(subject, task)) is not None}
    for task, other in zip(tasks, [*tasks[1:], *tasks[:1]], strict=True):
        own, given = answers.get(task.id), answers.get(other.id)
        if own and given and _words(own) != _words(given):
            yield Script("wrong", task, [given])


def _answer(subject: Subject, task: Task) -> Action | None:
    actions = subject.oracle.get(task.id, ())
    return actions[-1] if actions and actions[-1].answer is not None else None


def _words(action: Action) -> str:
    return " ".join((action.answer or "").casefold().split())


def _false_negatives(subject: Subject) -> Finding:
    """Count oracle's episodes that are refused, whatever the luck, and other forms of answers."""
    check = "low noise: false negatives"
    if subject.problem:
        return Finding(check, passed=False, note=subject.problem, remedy="Mend oracle().")
    right = list(graded(subject.of_oracle))
    if not right:
        return Finding(
            check,
            note="no oracle says what is right"
            if not subject.oracle
            else "no episode of the oracle got a verdict",
        )
    refused = [one.task for one in right if one.verdict and not one.verdict.success]
    always = [task.id for task in refused[:TRIED] if not _lucky(subject, task)]
    spaced = _refused_forms(subject, lambda answer: f"\n{answer}\n")
    whole = _refused_forms(subject, _whole)
    note = f"share of {len(right)} tasks whose oracle is refused"
    note += f", under {1 + SEEDS} seeds: {', '.join(always)}" if always else ""
    note += f"; {len(whole)} whole numbers are refused whose '.0' passes" if whole else ""
    return Finding(
        check,
        **rate(len(refused), len(right)),
        bound=0.0,
        passed=not always and not whole,
        note=f"{note}; with blank lines around {len(spaced)} of its answers are refused",
        remedy="Mend the labels of these tasks, or the verifier." if always or whole else "",
    )


def _lucky(subject: Subject, task: Task) -> bool:
    """Whether the oracle succeeds under another seed."""
    seeds = [derive("luck", subject.seed, number) for number in range(SEEDS)]
    script = [Script("oracle", task, subject.oracle[task.id])]
    again = [one for seed in seeds for one in played(replace(subject, seed=seed), script)]
    return any(one.verdict is not None and one.verdict.success for one in again)


def _refused_forms(subject: Subject, form: Callable[[str], str | None]) -> list[Trajectory]:
    """Episodes that are refused for another form of a right answer; None is no other form."""
    accepted = {one.task.id for one in subject.of_oracle if one.verdict and one.verdict.success}
    chosen = []
    for task in compared(subject, 1):
        last = _answer(subject, task)
        other = None if last is None else form(last.answer or "")
        if task.id in accepted and last is not None and other is not None:
            actions = [*subject.oracle[task.id][:-1], replace(last, answer=other)]
            chosen.append(Script("oracle", task, actions))
    return [
        one for one in graded(played(subject, chosen)) if one.verdict and not one.verdict.success
    ]


def _whole(answer: str) -> str | None:
    """The whole number of a text such as '31.0', which a label is that was a float by mistake.

    >>> _whole("31.0"), _whole("31.5")
    ('31', None)
    """
    number, point, digits = answer.strip().partition(".")
    return (
        number if number.removeprefix("-").isdecimal() and point and not digits.strip("0") else None
    )
