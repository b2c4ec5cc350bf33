"""The game of the study hero, whose errors tell the right door, and its demonstrations."""

import random
from collections.abc import Sequence
from dataclasses import replace

from turnwise.errors import MissingExtraError, ToolError
from turnwise.ranges import Count
from turnwise.rollout.demonstrations import Script
from turnwise.seeds import derive
from turnwise.tokens import Source
from turnwise.tools.tool import tool
from turnwise.types import Action, Observation, Step, Task
from turnwise_studies.shipped.gigpo import Rooms, going

try:
    from turnwise_algorithms.signals.feedback_teacher import SAID
    from turnwise_algorithms.signals.self_teacher import AFTER
except ImportError:
    raise MissingExtraError("turnwise-algorithms", "algorithms") from None

DOORS = "abcd"
RULE = "bdacadbc"
"""The doors that lead on, room by room: the same in all walks, and no prompt has them."""


class Locks(Rooms):
    """Rooms with four doors: at a wrong one an error names the right one, and the walk is lost."""

    def __init__(
        self, length: Count = 3, signs: Count = 8, count: Count = 4000, retold: bool = False
    ) -> None:
        """See `Rooms`; with `retold` each walk has doors of its own, which only errors tell, in the
        feedback teacher's words, and is walked once more after those of the self-teacher."""
        self.retold = retold
        super().__init__(length, signs, count)

    @tool
    def go(self, door: str) -> str:
        """Go through a door: a, b, c or d."""
        play, room, last = self._play, self._room, self.length * (1 + self.retold)
        play.moves += 1
        play.over = play.moves > self.length and not self.retold
        right = play.task["doors"][room]
        if door.strip() != right:
            raise ToolError(f"{play.task['signs'][room]}: {right}")
        play.scene += 1
        if play.scene < last:
            return self._look() if self._room else AFTER
        play.over, play.won = True, play.moves == last
        return "Out."

    async def step(self, action: Action) -> Step:
        """Move; with `retold` an error comes in the words in which a feedback teacher reads it."""
        step = await super().step(action)
        if not self.retold or all(result.ok for result in step.results):
            return step
        assert step.observation is not None
        before, after = SAID
        told = f"{before} {step.observation.content} {after}"
        return replace(step, observation=Observation(told, Source.USER))

    def oracle(self, task: Task) -> Sequence[Action]:
        """The right door of each room."""
        return [going(door) for door in task.data["doors"] * (1 + self.retold)]

    def _task(self, number: int) -> Task:
        task = super()._task(number)
        own = "".join(DOORS[derive("door", number, room) % 4] for room in range(self.length))
        doors = own if self.retold else RULE[: self.length]
        prompt = f"{self.length} rooms, doors a to d."
        return replace(task, prompt=prompt, data={**task.data, "doors": doors})

    @property
    def _room(self) -> int:
        return int(self._play.scene) % self.length

    def _look(self) -> str:
        return f"{self._room + 1}: {self._play.task['signs'][self._room]}"

    def _moves(self, task: Task) -> Sequence[str]:
        return DOORS


def trying(script: Script, other: Script) -> Script:
    """Takes a door by chance in each room, after an error the door that this names; then walks as
    it did without the errors."""
    doors, others = ([str(one.calls[0].arguments["door"]) for one in by] for by in (script, other))
    stream = random.Random(derive("trying", *doors, "/", *others))
    moves: list[str] = []
    for right in doors[: len(doors) // 2]:
        tried = stream.choice(DOORS)
        moves += [tried] if tried == right else [tried, right]
    return [going(door) for door in [*moves, *doors[len(doors) // 2 :]]]
