"""A small policy that is trained on the verifier alone: which macro action to take at which turn.

A macro is a call or an answer of the oracle's or a random script, as it is or with slots that are
filled with words of the prompt or of what was shown last. The policy is a table of probabilities,
turn by macro, trained by the cross-entropy method (Rubinstein 1999): of the rules that it draws,
those that earn most are made more likely.
"""

import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from turnwise.types import Action, Trajectory
from turnwise_trust.audit.attempts import Script, described, scripted
from turnwise_trust.audit.reward_search.ground import Ground, Score

MACROS = 40
"""Macros at most, the most frequent."""
TURNS = 8
"""Turns of a rule at most."""
DRAWN, ELITE, GENERATIONS = 24, 5, 12
STEP = 0.6
"""The share of the elite's frequencies in the next table."""
WORD = re.compile(r"\w[\w.-]*\w|\w")
Source = Literal["prompt", "shown"]
SOURCES: tuple[Source, ...] = ("prompt", "shown")
ANSWER = ""
"""The name of an answer among the arguments of calls."""


@dataclass(frozen=True)
class Slot:
    """Words of a text, counted from its beginning, or from its end where `start` is below 0."""

    argument: str
    source: Source
    start: int
    length: int

    def filled(self, trajectory: Trajectory) -> str:
        words = WORD.findall(_text(trajectory, self.source))
        first = self.start if self.start >= 0 else max(0, len(words) + self.start)
        return " ".join(words[first : first + self.length])


@dataclass(frozen=True)
class Macro:
    """An action, and the slots of its first call's arguments, or of its answer."""

    action: Action
    slots: tuple[Slot, ...] = ()

    def __call__(self, trajectory: Trajectory) -> Action:
        given = {slot.argument: slot.filled(trajectory) for slot in self.slots}
        return _with(self.action, given) if given else self.action

    def __str__(self) -> str:
        shown = {one.argument: f"<{one.source}: word {one.start}>" for one in self.slots}
        return described((_with(self.action, shown),) if shown else (self.action,))


Rule = tuple[Macro, ...]


def blind(rule: Rule) -> Script | None:
    """The script of a rule that reads nothing; None of others."""
    return None if any(macro.slots for macro in rule) else tuple(one.action for one in rule)


def trained(ground: Ground) -> Rule:
    """The best rule that the policy has drawn in its training; nothing at all without macros."""
    macros, turns = macros_of(ground)
    table = np.ones((turns, len(macros) + 1))  # the last column ends the rule
    table /= table.sum(axis=1, keepdims=True)
    scores: dict[tuple[int, ...], Score] = {}
    for _ in range(GENERATIONS if macros else 0):
        drawn = [_drawn(table, ground.stream) for _ in range(DRAWN)]
        for rule in drawn:
            if rule not in scores and ground.open:
                scores[rule] = ground.tried(scripted([macros[one] for one in rule]))
        elite = sorted((one for one in drawn if one in scores), key=_rank(scores))[:ELITE]
        if not elite or not ground.open:
            break
        table = (1 - STEP) * table + STEP * _frequencies(elite, table.shape)
    best = min(scores, key=_rank(scores), default=())
    return tuple(macros[one] for one in best)


def _rank(scores: dict[tuple[int, ...], Score]) -> Any:
    """Rules by what they earned, the best first; of equals the shorter."""
    return lambda rule: (-scores[rule].success, -scores[rule].reward, len(rule), rule)


def _drawn(table: np.ndarray, stream: random.Random) -> tuple[int, ...]:
    rule: list[int] = []
    for row in table:
        (one,) = stream.choices(range(len(row)), weights=row.tolist())
        if one == len(row) - 1:
            break
        rule.append(one)
    return tuple(rule)


def _frequencies(elite: Sequence[tuple[int, ...]], shape: tuple[int, int]) -> np.ndarray:
    found = np.zeros(shape)
    for rule in elite:
        for turn in range(shape[0]):
            found[turn, rule[turn] if turn < len(rule) else -1] += 1 / len(elite)
    return found


def macros_of(ground: Ground) -> tuple[list[Macro], int]:
    """The most frequent macros of the seen tasks' scripts, and turns of a rule."""
    known = {task.id for task in ground.seen}
    oracles = [one for one in ground.subject.of_oracle if one.task.id in known]
    found = [
        macro
        for played in oracles
        for turn in range(min(len(played.turns), TURNS))
        for macro in _abstract(played, turn)
    ]
    for task in ground.seen:
        found += map(Macro, ground.subject.random_actions(task)[:TURNS])
    kept = {str(macro): macro for macro in found}
    often = Counter(map(str, found)).most_common(MACROS)
    longest = max((len(one.turns) for one in oracles), default=TURNS)
    return [kept[name] for name, _ in often], min(longest, TURNS)


def _abstract(played: Trajectory, turn: int) -> Iterator[Macro]:
    """An action of an episode as it is, and with its values found in texts before it."""
    action, before = played.turns[turn].action, replace(played, turns=played.turns[:turn])
    yield Macro(action)
    texts = {source: WORD.findall(_text(before, source)) for source in SOURCES}
    orders = [SOURCES, SOURCES[::-1]]
    for order in orders:
        for from_end in (False, True):
            slots = [
                slot
                for argument, value in _values(action).items()
                for slot in _slots(argument, str(value), order, texts, from_end)
            ]
            if slots:
                yield Macro(action, tuple(slots))


def _slots(
    argument: str,
    value: str,
    order: Sequence[Source],
    texts: Mapping[Source, Sequence[str]],
    from_end: bool,
) -> Iterator[Slot]:
    """The first place of a value in the texts, if there is one."""
    wanted = WORD.findall(value)
    for source in order:
        words = texts[source]
        for start in range(len(words) - len(wanted) + 1) if wanted else ():
            if words[start : start + len(wanted)] == wanted:
                yield Slot(argument, source, start - len(words) * from_end, len(wanted))
                return


def _values(action: Action) -> Mapping[str, Any]:
    return action.calls[0].arguments if action.calls else {ANSWER: action.answer or ""}


def _with(action: Action, given: Mapping[str, str]) -> Action:
    """The action with other values, of the types that they had."""
    if not action.calls:
        return Action("", answer=given[ANSWER])
    call = action.calls[0]
    values = {name: _typed(text, call.arguments[name]) for name, text in given.items()}
    changed = replace(call, arguments={**call.arguments, **values})
    return Action("", calls=(changed, *action.calls[1:]))


def _typed(text: str, like: Any) -> Any:
    with suppress(ValueError, TypeError):
        return type(like)(text)
    return text


def _text(trajectory: Trajectory, source: Source) -> str:
    """The prompt, or what was shown last."""
    last = trajectory.turns[-1].step if trajectory.turns else None
    if source == "prompt" or last is None or last.observation is None:
        return trajectory.prompt
    return last.observation.content
