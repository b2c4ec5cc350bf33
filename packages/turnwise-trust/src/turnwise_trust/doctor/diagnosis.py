"""The page of a log: causes, the likeliest first, then what was seen, and what could not be."""

from collections.abc import Iterable

from turnwise.monitor.display import visible
from turnwise.storage.audits import Finding
from turnwise_trust.doctor.log import Log
from turnwise_trust.doctor.remedies import NAMES
from turnwise_trust.doctor.rules import behaviour, gaming, signal, updates
from turnwise_trust.doctor.rules.base import Cause, fallen, learns, outcome
from turnwise_trust.doctor.trends import FEWEST, change
from turnwise_trust.page import Page

RULES = (*signal.RULES, *updates.RULES, *behaviour.RULES, *gaming.RULES)
SHOWN = 5
"""Causes on a page, at most: further ones are seldom causes of their own."""


def diagnosed(log: Log) -> Page:
    """The page of a log. Example: `diagnosed(read([Path("runs/demo")], {})).verdict`."""
    found = sorted(causes(log), key=lambda cause: -cause.weight)
    first = {one.finding.check: one.finding for one in reversed(found)}
    shown = sorted(first.values(), key=[one.finding for one in found].index)[:SHOWN]
    verdict = _verdict(log, shown)
    writer = NAMES.get(log.framework, log.source)
    title = log.source if writer in log.source else f"{log.source} of {writer}"
    return Page(f"Doctor: {title}", verdict, [*shown, *_seen(log), *_coverage(log)])


def causes(log: Log) -> Iterable[Cause]:
    """The finds of every rule that the log can answer."""
    yield from signal.said_by_the_run(log)
    for rule in RULES:
        if rule.answerable(log):
            yield from rule.look(log)
    if log.broken and not any(name in log for name in updates.FINITE):
        yield from updates.not_finite(log)


def _verdict(log: Log, found: list[Finding]) -> str:
    if found:
        also = ", ".join(one.check for one in found[1:])
        return f"Most likely: {found[0].check}. {found[0].note.split('. ')[0].rstrip('.')}." + (
            f" Then: {also}." if also else ""
        )
    name = outcome(log)
    if name is None:
        return "Little can be said: the log holds no rewards, and nothing else in it is wrong."
    moved = change(log.values(name))
    if moved is None:
        return f"Nothing wrong is seen; a trend needs {FEWEST} steps, and the log has {log.steps}."
    if learns(log):
        return f"Nothing wrong is seen: {name} rises from {moved}."
    return (
        f"Nothing wrong is seen, and {name} does not rise for certain: {moved}. A rise of less "
        f"than {max(moved.high - moved.difference, 0):.2g} could not be told from "
        "chance in this log: more steps, or more episodes a step, would show it."
    )


def _seen(log: Log) -> Iterable[Finding]:
    """The outcome over the run."""
    name = outcome(log)
    if name is None:
        note = "The log has no rewards: whether the policy learns cannot be seen."
        yield Finding("outcome", note=note, remedy="Log rewards, and completions with them.")
        return
    moved = change(log.values(name))
    if moved is None:
        note = f"{name}, in too few steps for a trend: {len(log.values(name))} of {FEWEST}."
        yield Finding("outcome", log.mean(name), note=note)
        return
    note = f"{name}: {moved}."
    if (down := fallen(log)) is not None:
        note += f" It was best at step {down[0]}: {down[1]:.3g}, and is {down[2]:.3g}."
    yield Finding("outcome", moved.difference, moved.low, moved.high, note=note)


def _coverage(log: Log) -> Iterable[Finding]:
    """The checks that were made, those that the log is too poor for, and what is damaged."""
    checked = list(dict.fromkeys(rule.check for rule in RULES if rule.answerable(log)))
    lacking = {
        rule.check: rule.needs[0]
        for rule in RULES
        if not rule.answerable(log) and rule.check not in checked
    }
    rollouts = f", episodes: {log.rollouts}" if log.rollouts else ""
    note = f"Steps: {log.steps}{rollouts}. {', '.join(checked) or 'nothing'}."
    yield Finding("checked", float(len(checked)), note=note)
    if lacking:
        missing = "; ".join(f"{check} (needs {names})" for check, names in lacking.items())
        yield Finding("not in the log", float(len(lacking)), note=f"{missing}.")
    for text in log.remarks:
        yield Finding("not read", note=visible(f"{text.rstrip('.')}."))
