"""Rooms in a row, each with doors of several colours, one of which leads on: the others are traps.

Which one it is nothing tells, and it stays so: one attempt is a guess, and of a failure can be
learned. For `attempts`.
"""

from collections.abc import Sequence
from typing import Annotated

from turnwise.environments.base import EnvironmentSpec
from turnwise.environments.tasksets import SOLVED, SPLITS, Split, TaskSet
from turnwise.errors import ToolError
from turnwise.ranges import Count, Range
from turnwise.seeds import derive
from turnwise.tools.tool import tool
from turnwise.types import Action, Task, ToolCall
from turnwise_environments.games.base import PARTS, Game
from turnwise_environments.games.long_walk import COLOURS


class Doors(Game):
    """One tool, `open`; a trap ends the game."""

    same_splits = True
    facts = EnvironmentSpec("doors", "1", parts=PARTS)

    def __init__(
        self,
        rooms: Count = 3,
        doors: Annotated[int, Range(2, len(COLOURS))] = 4,
        count: Count = 1000,
    ) -> None:
        """`rooms` in a row with so many `doors` each; `count` tasks in each split, which differ in
        what leads on alone."""
        self.rooms, self.colours = rooms, COLOURS[:doors]
        tasks = {split: [self._task(split, place) for place in range(count)] for split in SPLITS}
        scores = SOLVED | {"random": doors**-rooms}
        self.task_set = TaskSet.of(tasks, scores)

    @tool
    def open(self, door: str) -> str:
        """Open the door of that colour."""
        play, wanted = self._play, door.strip()
        if wanted not in self.colours:
            raise ToolError(f"there is no {door!r} door; doors: {', '.join(self.colours)}")
        play.moves += 1
        if wanted != play.task["right"][play.scene]:
            play.over = True
            return "It is a trap."
        play.scene += 1
        play.won = play.over = play.scene == self.rooms
        return "You are out." if play.over else self._look()

    def oracle(self, task: Task) -> Sequence[Action]:
        return [
            Action("", calls=(ToolCall("open", {"door": door}),)) for door in task.data["right"]
        ]

    def _task(self, split: Split, number: int) -> Task:
        right = [
            self.colours[derive("doors", split, number, room) % len(self.colours)]
            for room in range(self.rooms)
        ]
        prompt = f"{self.rooms} rooms. Doors: {', '.join(self.colours)}."
        return Task(f"{split}-{number}", prompt, data={"right": right})

    def _begin(self, task: Task) -> int:
        del task
        return 0

    def _look(self) -> str:
        return f"Room {self._play.scene + 1}."

    def _moves(self, task: Task) -> Sequence[str]:
        del task
        return self.colours

    def _outcome_reward(self) -> float:
        return float(self._play.won)
