"""The game of the study gigpo and its demonstrations: a wrong door leads one room back."""

import hashlib
import random
from collections.abc import Sequence

from turnwise.environments.base import EnvironmentSpec
from turnwise.environments.tasksets import SOLVED, TaskSet, identities
from turnwise.errors import MissingExtraError, ToolError
from turnwise.ranges import Count
from turnwise.rollout.demonstrations import Script
from turnwise.seeds import derive
from turnwise.tools.tool import tool
from turnwise.types import Action, Task, ToolCall

try:
    from turnwise_environments.games.base import PARTS, Game
except ImportError:
    raise MissingExtraError("turnwise-environments", "environments") from None

DOORS = ("a", "b")
LEADS_ON = dict(zip("cdefghiklmnopqrs", "abbabaabbbabaaba", strict=True))
"""The door that leads on, by the sign of the room: one rule for all walks, and no prompt has it."""
RIGHT = 0.7
"""Share of right doors in demonstrations by `careless`."""
MOST = 2
"""Moves of such a demonstration for each room, at most."""


class Rooms(Game):
    """One tool, `go`: a right door leads one room on, a wrong one a room back; 1 for being out."""

    facts = EnvironmentSpec("rooms", "1", parts=PARTS)

    def __init__(self, length: Count = 8, signs: Count = 8, count: Count = 2000) -> None:
        """`count` walks of `length` rooms with `signs` different signs, both splits together."""
        self.length, self.signs = length, list(LEADS_ON)[:signs]
        tasks = [self._task(number) for number in range(count)]
        self.task_set = TaskSet.shuffled(tasks, 0.5, SOLVED, content=identities)

    @tool
    def go(self, door: str) -> str:
        """Go through a door: a or b."""
        play, wanted = self._play, door.strip()
        if wanted not in DOORS:
            raise ToolError(f"there is no door {door!r}; doors: {', '.join(DOORS)}")
        play.moves += 1
        right = wanted == LEADS_ON[play.task["signs"][play.scene]]
        play.scene = max(0, play.scene + (1 if right else -1))
        play.won = play.over = play.scene == self.length
        return "Out." if play.over else self._look()

    def oracle(self, task: Task) -> Sequence[Action]:
        """The right door of each room."""
        return [going(LEADS_ON[sign]) for sign in task.data["signs"]]

    def _task(self, number: int) -> Task:
        stream = random.Random(derive("rooms", number))
        signs = "".join(stream.choices(self.signs, k=self.length))
        identity = hashlib.sha256(signs.encode()).hexdigest()[:16]
        return Task(identity, f"{self.length} rooms, doors a and b.", data={"signs": signs})

    def _begin(self, task: Task) -> int:
        return 0

    def _look(self) -> str:
        room = self._play.scene
        return f"{room + 1}: {self._play.task['signs'][room]}"

    def _outcome_reward(self) -> float:
        return float(self._play.won)

    def _moves(self, task: Task) -> Sequence[str]:
        return DOORS


def careless(script: Script, other: Script) -> Script:
    """Takes each door rightly with probability RIGHT, until it is out or has had enough."""
    rights, others = ([str(one.calls[0].arguments["door"]) for one in by] for by in (script, other))
    stream = random.Random(derive("careless", *rights, "/", *others))
    room = 0
    moves: list[Action] = []
    while room < len(rights) and len(moves) < MOST * len(rights):
        right = stream.random() < RIGHT
        moves.append(going(rights[room] if right else DOORS[rights[room] == DOORS[0]]))
        room = max(0, room + (1 if right else -1))
    return moves


def going(door: str) -> Action:
    """Going through a door, as an action."""
    return Action("", "", (ToolCall("go", {"door": door}),))
