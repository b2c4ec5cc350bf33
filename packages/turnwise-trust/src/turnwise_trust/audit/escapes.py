"""Failures provoked: an episode without a grade in place of a failure is an escape from it.

An agent whose mistakes are never graded is never taught that they are mistakes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from turnwise.storage.audits import Finding
from turnwise.types import Action, Task, ToolCall, Trajectory
from turnwise_environments.choosing import spread
from turnwise_trust.audit.grader import surfaces
from turnwise_trust.audit.plays import rate
from turnwise_trust.audit.scripts import (
    RARELY,
    Script,
    calling,
    earned,
    looked_at,
    play,
    replay,
    said,
)
from turnwise_trust.audit.subject import OutOfTime, Subject

TASKS = 2
"""Tasks whose tools are abused: tools are the same in all."""
MEGABYTE = 1_000_000
HOSTILE: tuple[Any, ...] = (
    *("", "\0", "\ud800", "²", "x" * MEGABYTE, "[" * 5000, "(" * 5000, "../../etc/passwd"),
    *("'; DROP TABLE a; --", "%s%n{0}{x}", "nan", "-1", "9" * 5000, -1, 10**30, 1e308, 0),
    *(True, None, [], ["x"], {"x": 1}, {"x": {"x": [[[[]]]]}}),
)
"""Arguments that nothing asked for."""
STRANGE = (
    *("", "\0", "\ud800", "²", "½", "٣", "nan", "inf", "1e999", "-", "1/0", "0/0", "9**9**9**9"),
    *("9" * 5000, "[" * 5000, "(" * 5000, '{"x":' * 5000, "{}", "[]", "null", "\\frac{1}{0}"),
    *("x" * MEGABYTE, "1 " * 100_000, "🙂" * 999, "\\", '"', "<answer>", "]]>", "%", "None"),
    "a=b=c",
)
"""Answers that a careless verifier raises at."""
HARM = "harm"
"""The part of a verdict by which an environment declares what harm is."""
ENDLESS = {"program": "while True: pass", "command": "while :; do :; done"}
LARGE = {"program": "x = 'x' * 10**10", "command": "head -c 100000000 /dev/zero | tr '\\0' x"}


def escapes(subject: Subject) -> Iterator[Finding]:
    """Strange answers and calls that were not graded; and what the oracle may do besides."""
    tasks = looked_at(subject, TASKS)[0]
    answers: list[tuple[Task, Script]] = [
        (task, [said(text)]) for task in tasks for text in STRANGE
    ]
    ends = [(task, _before(subject, task)) for task in tasks]
    answers += [
        (task, [*before, said(text)]) for task, before in ends if before for text in STRANGE
    ]
    yield _ungraded(
        subject,
        "strange answers",
        answers,
        "Have verify() return a failure for what it cannot read, in place of raising.",
    )
    calls: list[tuple[Task, Script]] = [
        (task, [call]) for task in tasks for call in _calls(subject)
    ]
    if calls:
        yield _ungraded(
            subject,
            "strange calls",
            calls,
            "Raise ToolError for what the agent did wrong, and bound what a call may take.",
        )
    if any(action.calls for actions in subject.oracle.values() for action in actions):
        yield from _besides(subject)


def _before(subject: Subject, task: Task) -> Script:
    return [action for action in subject.oracle.get(task.id, []) if action.answer is None]


def _calls(subject: Subject) -> Iterator[Action]:
    yield calling("no_such_tool")
    yield calling("verify")
    yield Action("")
    for tool in subject.tools:
        names = tool.schema["parameters"].get("properties", {})
        yield calling(tool.name, **dict.fromkeys([*names, "surplus"], "x"))
        yield calling(tool.name)
        for value in HOSTILE if names else ():
            yield Action("", calls=(ToolCall(tool.name, dict.fromkeys(names, value)),))
    if subject.environment.sandbox is not None:  # elsewhere it would go on in this process
        for place in surfaces(subject):
            for texts in (ENDLESS, LARGE):
                if place.kind in texts:
                    yield place.write(texts[place.kind])


def _ungraded(
    subject: Subject, check: str, pairs: Sequence[tuple[Task, Script]], remedy: str
) -> Finding:
    """The share of episodes without a grade."""
    ended = _ended(subject, check, pairs)
    escaped = [one for one in ended if not one[2].outcome.graded]
    note = f"{len(escaped)} of {len(ended)} episodes were not graded"
    shown = ""
    if escaped:
        task, script, played = escaped[0]
        note += f", as after {played.outcome.value}: {played.problem[:120]}"
        shown = replay(task, (script,))
    return Finding(
        f"{check} that escape a grade",
        **rate(len(escaped), len(ended)),
        bound=0.0,
        passed=not escaped,
        note=note,
        replay=shown,
        remedy=remedy,
    )


def _ended(
    subject: Subject, check: str, pairs: Sequence[tuple[Task, Script]]
) -> list[tuple[Task, Script, Trajectory]]:
    """The episodes of scripts, as many as there is time for. Raises OutOfTime for none."""
    ended = []
    for task, script in pairs:
        try:
            ended.append((task, script, play(subject, task, script)))
        except OutOfTime:
            if not ended:
                raise
            subject.unmeasured.append(f"{check}, after {len(ended)} of {len(pairs)} episodes")
            break
    return ended


def _besides(subject: Subject) -> Iterator[Finding]:
    """The oracle's success when each call is made twice, and with calls at random before its last
    action. What may be kept besides is not written anywhere, unless harm is among its parts."""
    solved = {one.task.id: _harm(one) for one in subject.of_oracle if earned(subject, one) == 1}
    tasks = [task for task in spread(subject.tasks, 16) if task.id in solved]
    ways: Mapping[str, Callable[[Task], Script]] = {
        "each call made twice": lambda task: [
            one for action in subject.oracle[task.id] for one in _doubled(action)
        ],
        "calls at random on the way": lambda task: _with_random(subject, task),
    }
    for what, script in ways.items():
        check = f"the oracle, {what}"
        ended = _ended(subject, check, [(task, script(task)) for task in tasks]) if tasks else []
        yield _kept(subject, check, ended, solved)


def _harm(episode: Trajectory) -> float:
    """The harm that a verdict reports by the part of this name."""
    verdict = episode.verdict
    if verdict is None:
        return 0.0
    return verdict.parts.get(HARM, 0.0) + sum(verdict.turn_parts.get(HARM, ()))


def _doubled(action: Action) -> Sequence[Action]:
    return [action, action] if action.calls else [action]


def _with_random(subject: Subject, task: Task) -> Script:
    extra = [one for one in subject.random_actions(task) if one.calls]
    actions = subject.oracle[task.id]
    return [*actions[:-1], *extra, *actions[-1:]]


def _kept(
    subject: Subject,
    check: str,
    ended: Sequence[tuple[Task, Script, Trajectory]],
    solved: Mapping[str, float],
) -> Finding:
    """The share of episodes that succeed all the same; of those that did harm, where it is declared
    what that is: none of them may."""
    declared = HARM in subject.environment.spec.parts
    harmed = [one for one in ended if _harm(one[2]) > solved[one[0].id]] if declared else ended
    kept = [one for one in harmed if earned(subject, one[2]) == 1]
    share = rate(len(kept), len(harmed))
    passed = share["low"] <= RARELY if declared and harmed else None
    note = f"{len(kept)} of {len(harmed)} episodes succeed all the same"
    note += (
        f", of those of {len(ended)} that did harm by the environment's own measure"
        if declared
        else "; a measurement: the environment declares no part of the name harm"
    )
    return Finding(
        check,
        **share,
        bound=RARELY if declared else None,
        passed=passed,
        note=note,
        replay=replay(kept[0][0], (kept[0][1],)) if passed is False else "",
        remedy="Have verify() fail an episode that did harm.",
    )
