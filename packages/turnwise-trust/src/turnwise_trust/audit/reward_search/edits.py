"""Random edits of scripts: what an attacker changes who does not know the task."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from turnwise.types import Action
from turnwise_trust.audit.attempts import Script

LONGEST = 400
"""Actions of an edited script."""
PLAIN = (str, int, float)
"""Types of arguments that have an empty value."""


def edited(script: Script, pool: Sequence[Script], stream: random.Random) -> Script:
    """One edit of a script; `pool` has others, of other tasks, to take from."""
    edit = stream.choice(EDITS)
    return edit(script, pool, stream)[:LONGEST]


def _drop(script: Script, pool: Sequence[Script], stream: random.Random) -> Script:
    place = _place(script, stream)
    return script[:place] + script[place + 1 :]


def _duplicate(script: Script, pool: Sequence[Script], stream: random.Random) -> Script:
    place = _place(script, stream)
    return script[:place] + script[place : place + 1] + script[place:]


def _swap(script: Script, pool: Sequence[Script], stream: random.Random) -> Script:
    changed = list(script)
    if script:
        first, second = _place(script, stream), _place(script, stream)
        changed[first], changed[second] = changed[second], changed[first]
    return tuple(changed)


def _truncate(script: Script, pool: Sequence[Script], stream: random.Random) -> Script:
    return script[: _place(script, stream)]


def _splice(script: Script, pool: Sequence[Script], stream: random.Random) -> Script:
    other = stream.choice(pool)
    return script[: stream.randint(0, len(script))] + other[_place(other, stream) :]


def _mutate(script: Script, pool: Sequence[Script], stream: random.Random) -> Script:
    """Take an argument, or an answer, from elsewhere, leave it empty, or make it very negative."""
    if not script:
        return script
    place = _place(script, stream)
    changed = _with_value_of(script[place], stream.choice(pool), stream)
    return (*script[:place], changed, *script[place + 1 :])


def _with_value_of(action: Action, other: Script, stream: random.Random) -> Action:
    if not action.calls:
        answers = [one.answer for one in other if one.answer is not None]
        return Action("", answer=stream.choice([*answers, ""]))
    call = action.calls[0]
    if not call.arguments:
        return action
    name = stream.choice(sorted(call.arguments))
    given = [
        one.arguments[name]
        for each in other
        for one in each.calls
        if one.name == call.name and name in one.arguments
    ]
    kind = type(call.arguments[name])
    values = [one for one in given if type(one) is kind]
    values += [kind()] if kind in PLAIN else []
    values += [-1000 * one for one in values if kind in (int, float)]
    if not values:
        return action
    value = stream.choice(values)
    calls = (replace(call, arguments={**call.arguments, name: value}), *action.calls[1:])
    return Action("", calls=calls)


def _place(script: Script, stream: random.Random) -> int:
    return stream.randrange(len(script)) if script else 0


EDITS: Sequence[Callable[[Script, Sequence[Script], random.Random], Script]] = (
    _drop,
    _duplicate,
    _swap,
    _truncate,
    _splice,
    _mutate,
)
