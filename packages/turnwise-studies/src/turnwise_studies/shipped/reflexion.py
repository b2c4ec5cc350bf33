"""The demonstrations of the study reflexion: agents that explore the rooms of `doors`."""

import random

from turnwise.rollout.demonstrations import Script
from turnwise.seeds import derive
from turnwise.types import Action, ToolCall

COLOURS, ATTEMPTS = ("red", "blue", "green", "gold"), 6


def retrying(script: Script, other: Script) -> Script:
    """Remembers nothing of earlier attempts."""
    return _explored(script, other, "none")


def recalling(script: Script, other: Script) -> Script:
    """Remembers the last attempt alone."""
    return _explored(script, other, "trajectory")


def reflecting(script: Script, other: Script) -> Script:
    """Says after each failure what is known of all rooms, and acts on it."""
    return _explored(script, other, "reflection")


def _explored(script: Script, other: Script, memory: str) -> Script:
    right = [str(action.calls[0].arguments["door"]) for action in script]
    guessed = [str(action.calls[0].arguments["door"]) for action in other]
    stream = random.Random(derive("reflexion", *right, *guessed))
    excluded: list[set[str]] = [set() for _ in right]
    known, actions = 0, list[Action]()
    for _ in range(ATTEMPTS):
        if memory == "none":
            known, excluded = 0, [set() for _ in right]
        for room, door in enumerate(right):
            left = [colour for colour in COLOURS if colour not in excluded[room]]
            opened = door if room < known else stream.choice(left)
            actions.append(_calling("open", door=opened))
            if opened != door:
                break
            known = max(known, room + 1)
        else:
            return actions
        if memory == "trajectory":
            excluded[room] = set()
        excluded[room].add(opened)
        if memory == "reflection":
            actions.append(_calling("reflect", text=_told(right[:known], excluded[known])))
    return actions


def _told(known: list[str], excluded: set[str]) -> str:
    return " ".join([*known, "not", *(one for one in COLOURS if one in excluded)])


def _calling(name: str, **arguments: str) -> Action:
    return Action("", calls=(ToolCall(name, arguments),))
