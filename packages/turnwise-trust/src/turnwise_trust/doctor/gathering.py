"""Gathers a log from its events, which are read once: it may be larger than memory.

Numbers of steps are kept as means, of several neighbouring steps where there are too many; of the
trajectories one of each kind is kept, as an example.
"""

import math
from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from turnwise.storage.audits import Finding
from turnwise_trust.copying import NGRAM, ngrams
from turnwise_trust.doctor.log import (
    Alarm,
    Broken,
    Event,
    Log,
    Measured,
    Reason,
    Remark,
    Rollout,
    Series,
    Setting,
)
from turnwise_trust.doctor.names import Translator

STEPS = 4096
"""Rows of a log's numbers, at most: above it neighbouring steps are averaged."""
NAMES = 256
"""Numbers of a step, at most; further ones are left out."""
OPEN_GROUPS = 4096
"""Groups that further members are awaited for, at most; the oldest is closed first."""
LARGEST = 1e100
"""A number from here on counts as infinite."""
SHOWN = 400
"""Characters of an example that are kept."""


def gathered(source: str, framework: str, events: Iterable[Event]) -> Log:
    """Read a log's events once, in bounded memory; on Ctrl-C those that came before it."""
    gatherer = Gatherer()
    try:
        for event in events:
            gatherer.add(event)
    except KeyboardInterrupt:
        gatherer.add(Remark("the rest: it was interrupted, so this is of the beginning alone"))
    return gatherer.log(source, framework)


class _Table:
    """Means of numbers by step, of several steps together beyond `STEPS`."""

    def __init__(self) -> None:
        self._stride, self._rows = 1, dict[int, dict[str, list[float]]]()
        self._names = set[str]()
        self.full = False

    def add(self, step: int, name: str, value: float) -> None:
        if name not in self._names and len(self._names) == NAMES:
            self.full = True
            return
        self._names.add(name)
        cell = self._rows.setdefault(step // self._stride, {}).setdefault(name, [0.0, 0.0])
        cell[0] += value
        cell[1] += 1
        if len(self._rows) > STEPS:
            self._halve()

    def _halve(self) -> None:
        rows, self._rows = self._rows, {}
        self._stride *= 2
        for place, row in rows.items():
            for name, (total, count) in row.items():
                cell = self._rows.setdefault(place // 2, {}).setdefault(name, [0.0, 0.0])
                cell[0] += total
                cell[1] += count

    def series(self) -> dict[str, Series]:
        found: dict[str, tuple[list[int], list[float]]] = {}
        for place, row in sorted(self._rows.items()):
            for name, (total, count) in row.items():
                steps, values = found.setdefault(name, ([], []))
                steps.append(place * self._stride)
                values.append(total / count)
        return {name: Series(np.array(s), np.array(v)) for name, (s, v) in found.items()}


class _Group:
    """Rewards and texts of the members of one group, as running sums."""

    def __init__(self, step: int) -> None:
        self.step, self.count, self.mean, self.squares = step, 0, 0.0, 0.0
        self.texts = Counter[int]()
        self.paid: dict[int, float] = {}
        self.again: list[bool] = []
        """Whether a text that was there before got another reward than then."""

    def add(self, rollout: Rollout) -> None:
        if rollout.text:
            text = hash(rollout.text)  # the texts of all open groups may not fit into memory
            self.texts[text] += 1
            if rollout.reward is not None and not rollout.tool_calls:  # texts do not show calls
                before = self.paid.setdefault(text, rollout.reward)
                self.again += [before != rollout.reward] if self.texts[text] > 1 else []
        if rollout.reward is not None:
            self.count += 1
            above = rollout.reward - self.mean
            self.mean += above / self.count
            self.squares += above * (rollout.reward - self.mean)

    def numbers(self) -> dict[str, float]:
        """Numbers of the group, as far as it has members to compare."""
        found: dict[str, float] = {}
        if self.count > 1:
            spread = math.sqrt(max(0.0, self.squares) / self.count)
            equal = spread <= 1e-9 * max(1.0, abs(self.mean))
            found |= {"reward/group_std": spread, "groups/all_equal": float(equal)}
            found |= {"groups/equal_reward": self.mean} if equal else {}
        texts = self.texts.total()
        if texts > 1:
            alike = sum(count for count in self.texts.values() if count > 1)
            found["repetition/episodes"] = alike / texts
        if self.again:
            found["reward/disagreement"] = sum(self.again) / len(self.again)
        return found


class Gatherer:
    """Takes a log's events in, and keeps what rules need. Its `log` may be asked for between them,
    where they have no groups."""

    def __init__(self) -> None:
        self._measured, self._counted = _Table(), _Table()
        self._translator = Translator()
        self._groups = OrderedDict[tuple[int, str], _Group]()
        self._broken: dict[str, Broken] = {}
        self._examples: dict[str, Rollout] = {}
        self._rollouts = self._compared = 0
        self._reasons: dict[str, list[int]] = {}
        self._settings: dict[str, float] = {}
        self._remarks: dict[str, None] = {}
        self._alarms: list[Finding] = []

    def add(self, event: Event) -> None:
        match event:
            case Measured():
                for name, value in self._translator(event.values):
                    self._number(self._measured, event.step, name, value)
            case Rollout():
                self._rollout(event)
            case Remark():
                self._remarks[event.text] = None
            case Reason():
                self._reasons.setdefault(event.text, []).append(event.step)
            case Alarm():
                self._alarms.append(event.finding)
            case Setting():
                self._settings[event.name] = event.value

    def log(self, source: str, framework: str) -> Log:
        while self._groups:
            self._close()
        if self._measured.full or self._counted.full:
            self._remarks[f"a step has more than {NAMES} numbers: the others were left out"] = None
        return Log(
            source,
            framework or self._translator.framework,
            # A log's own numbers stand before those that are counted of its episodes.
            {**self._counted.series(), **self._measured.series()},
            self._broken,
            self._rollouts,
            self._compared,
            self._examples,
            {text: tuple(steps) for text, steps in self._reasons.items()},
            self._settings,
            tuple(self._remarks),
            tuple(self._alarms),
        )

    def _number(self, table: _Table, step: int, name: str, value: float) -> None:
        if abs(value) < LARGEST:
            table.add(step, name, value)
        else:
            before = self._broken.get(name, Broken(0, step))
            self._broken[name] = Broken(before.steps + 1, min(before.first, step))

    def _rollout(self, rollout: Rollout) -> None:
        step = rollout.step or 0
        if rollout.reward is not None and not math.isfinite(rollout.reward):
            self._number(self._counted, step, "reward/mean", rollout.reward)
            rollout = replace(rollout, reward=None)
        self._rollouts += 1
        repeated = repeated_words(rollout.text)
        self._keep(rollout, repeated)
        if not rollout.counted:
            return
        for name, value in _numbers(rollout, repeated):
            self._number(self._counted, step, name, value)
        if rollout.group is not None:
            self._join(step, rollout.group, rollout)

    def _join(self, step: int, name: str, rollout: Rollout) -> None:
        key = (step, name)
        if key not in self._groups:
            self._groups[key] = _Group(step)
            if len(self._groups) > OPEN_GROUPS:
                self._close()
        self._groups[key].add(rollout)

    def _close(self) -> None:
        _, group = self._groups.popitem(last=False)
        self._compared += group.count > 1
        for name, value in group.numbers().items():
            self._number(self._counted, group.step, name, value)

    def _keep(self, rollout: Rollout, repeated: float | None) -> None:
        short = replace(rollout, text=rollout.text[:SHOWN])
        kinds = {
            "latest": True,
            "truncated": rollout.truncated,
            "malformed": rollout.malformed,
            "ungraded": rollout.reward is None,
            "repeating": (repeated or 0.0) >= 0.5,
            "best": self._is_best(rollout),
        }
        self._examples |= {kind: short for kind, known in kinds.items() if known}

    def _is_best(self, rollout: Rollout) -> bool:
        best = self._examples.get("best", rollout)
        return rollout.reward is not None and rollout.reward >= (best.reward or 0.0)


def _numbers(rollout: Rollout, repeated: float | None) -> Iterable[tuple[str, float]]:
    known: dict[str, float | None] = {
        "reward/mean": rollout.reward,
        "rollout/ungraded_share": rollout.reward is None and rollout.success is None,
        "rollout/success": rollout.success,
        "rollout/truncated": rollout.truncated,
        "rollout/malformed": rollout.malformed,
        "rollout/length_mean": rollout.length,
        "rollout/tool_calls": rollout.tool_calls,
        "repetition/words": repeated,
    }
    if rollout.tool_calls and rollout.tool_errors is not None:
        known["rollout/tool_success"] = 1 - rollout.tool_errors / rollout.tool_calls
    for name, value in known.items():
        if value is not None:
            yield name, float(value)
    for name, value in rollout.parts.items():
        yield f"reward/parts/{name}", value


def repeated_words(text: str) -> float | None:
    """The share of a text's n-grams of words that it has had before; None for a short one."""
    grams = ngrams(text)
    return 1 - len(set(grams)) / len(grams) if len(grams) >= NGRAM else None
