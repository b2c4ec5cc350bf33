"""Rules and causes, and what several rules ask of a log."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from turnwise.monitor.display import visible
from turnwise.storage.audits import Finding
from turnwise_trust.doctor.log import Log
from turnwise_trust.doctor.remedies import remedy
from turnwise_trust.doctor.trends import Change, change, fall

QUOTED = 160
"""Characters of an example that are shown."""
OUTCOME = re.compile(
    r"(^|_)acc|correct|success|solved|outcome|exact|passed|resolved|(^|_)(em|f1)(_|$)", re.I
)
FORM = re.compile(
    r"format|xml|style|structur|pars(e|able)|syntax|length|brevity|think|(^|_)tags?(_|$)|tool", re.I
)
"""Names of parts of a reward that pay for the answer, and for its form; what is both is form."""


class Cause(NamedTuple):
    """Why a run does not learn."""

    weight: float
    """The share of the run's learning that it takes away, about, from 0 to 1: by it causes are
    ordered."""
    finding: Finding


@dataclass(frozen=True)
class Rule:
    """A question to a log."""

    check: str
    needs: Sequence[str]
    """Numbers of which the log must hold one for the question to have an answer."""
    look: Callable[[Log], Iterable[Cause]]

    def answerable(self, log: Log) -> bool:
        return any(holds(log, name) for name in self.needs)


def holds(log: Log, name: str) -> bool:
    """Whether a log has a number; of a name that ends with a slash, any of the family."""
    return any(one.startswith(name) for one in log.series) if name.endswith("/") else name in log


def cause(
    log: Log,
    check: str,
    weight: float,
    note: str,
    figure: float | None = None,
    bound: float | None = None,
    example: str = "",
    change: Change | None = None,
    why: str = "",
) -> Cause:
    """A cause with its evidence; `why` names the remedy, by default the check. `change` gives the
    figure and its interval, `example` the kind of trajectory to show."""
    low = high = None
    if change is not None:
        figure, low, high = change.difference, change.low, change.high
    shown = f"{note} {quoted(log, example)}".strip() if example else note
    fix = remedy(why or check, log.framework)
    return Cause(weight, Finding(check, figure, low, high, bound, False, shown, remedy=fix))


def quoted(log: Log, kind: str) -> str:
    """The example of a kind, in a sentence; empty where the log has none."""
    one = log.examples.get(kind)
    if one is None or not one.text.strip():
        return ""
    text = visible(" ".join(one.text.split()))
    short = text if len(text) <= QUOTED else f"{text[:QUOTED]} …"
    place = "" if one.step is None else f", step {one.step}"
    reward = "ungraded" if one.reward is None else f"reward {one.reward:.3g}"
    return f"Example ({reward}{place}): «{short}»."


PART = "reward/parts/"


def forms(log: Log) -> list[str]:
    """The parts of a log's rewards that pay for form."""
    return [name for name in log.series if name.startswith(PART) and FORM.search(name[len(PART) :])]


def answers(log: Log) -> list[str]:
    """The parts of a log's rewards that pay for a right answer."""
    return [
        name
        for name in log.series
        if name.startswith(PART)
        and OUTCOME.search(name[len(PART) :])
        and not FORM.search(name[len(PART) :])
    ]


def outcome(log: Log) -> str | None:
    """The number that says best whether the run learns: success, a part of the reward that pays
    for a right answer, or else the reward; None where the log has none of them."""
    if "rollout/success" in log:
        return "rollout/success"
    if named := [name for name in answers(log) if log.values(name).std() > 0]:
        return named[0]
    return "reward/mean" if "reward/mean" in log else None


def fallen(log: Log) -> tuple[int, float, float] | None:
    """Where the outcome was best, where it has fallen since for certain."""
    name = outcome(log)
    return None if name is None else fall(log.values(name), log.series[name].steps)


def learns(log: Log) -> bool:
    """Whether the outcome is higher than in the first third, or in the first tenth of a run that
    learned fast, and has not fallen back by half of that."""
    name, down = outcome(log), fallen(log)
    changes = [change(log.values(name), head) for head in (3, 10)] if name else []
    risen = [one for one in changes if one is not None and one.rises]
    if not risen:
        return False
    return down is None or down[1] - down[2] < (down[1] - risen[-1].before) / 2
