"""The cold start of the study reflexion: explorers of the rooms of `doors`, with each memory."""

import random
from collections.abc import Sequence
from dataclasses import replace

from turnwise.rollout.demonstrations import Script
from turnwise.seeds import derive
from turnwise.types import Action, Observation, Task, ToolCall
from turnwise_environments.attempts import Attempts, Memory

COLOURS, ATTEMPTS = ("red", "blue", "green", "gold"), 6
MEMORIES: tuple[Memory, ...] = ("none", "trajectory", "trajectory", "reflection", "reflection")
"""One of these for each task; of attempts that are shown nothing there is little to learn."""


class EachMemory(Attempts):
    """`attempts`, with a memory that changes from task to task; an oracle's thought names both."""

    async def reset(self, task: Task, seed: int) -> Observation:
        self.memory = _memory(task)
        return await super().reset(task, seed)

    def oracle(self, task: Task) -> Sequence[Action]:
        return [replace(one, thought=f"{_memory(task)} {task.id}") for one in super().oracle(task)]


def exploring(script: Script, other: Script) -> Script:
    """Opens any door that its memory does not exclude, and those that it knows."""
    memory = script[0].thought.split()[0]
    right = [str(action.calls[0].arguments["door"]) for action in script]
    guessed = [str(action.calls[0].arguments["door"]) for action in other]
    stream = random.Random(derive("reflexion", script[0].thought, *guessed))
    excluded: list[list[str]] = [[] for _ in right]
    known, actions = 0, list[Action]()
    for _ in range(ATTEMPTS):
        if memory == "none":
            known, excluded = 0, [[] for _ in right]
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
            excluded[room] = []
        excluded[room].append(opened)
        if memory == "reflection":
            actions.append(_calling("reflect", text=_told(right[:known], excluded[known])))
    return actions


def _memory(task: Task) -> Memory:
    return MEMORIES[derive("reflexion", task.id) % len(MEMORIES)]


def _told(known: Sequence[str], excluded: Sequence[str]) -> str:
    rooms = [f"Room {number}. {door}" for number, door in enumerate(known, 1)]
    return " ".join([*rooms, f"Room {len(known) + 1}. not", *excluded])


def _calling(name: str, **arguments: str) -> Action:
    return Action("", calls=(ToolCall(name, arguments),))
