"""A walk through hundreds of rooms, one tool call each, by a rule that is given only once.

Every room has doors of several colours, and is seen only from inside; the rule is an order of the
colours. Now and then a herald changes it, and then the new order holds until the end. One wrong
door ends the walk. Nothing else is hard about it: what is asked for is not to lose the goal.
"""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from turnwise.environments.base import EnvironmentSpec
from turnwise.environments.tasksets import SOLVED, TaskSet, identities
from turnwise.environments.turn_parts import share
from turnwise.errors import ToolError
from turnwise.ranges import Count, Range, Share
from turnwise.seeds import derive
from turnwise.tools.tool import tool
from turnwise.types import Action, Task, ToolCall, Trajectory, Verdict
from turnwise_environments.common import identity
from turnwise_environments.games.base import PARTS, Game

COLOURS = ("red", "blue", "green", "gold", "white")
DOORS = 3
LENGTH, HERALD_EVERY, COUNT = 300, 50, 1000
HELD = {
    "held": share("1 where each turn went through a right door, however few the turns were"),
    "walked": share("share of the rooms that lie behind"),
}


class LongWalk(Game):
    """One tool, `go`; each right door is worth its share of 1."""

    facts = EnvironmentSpec("long_walk", "1", turn_rewards=True, parts=PARTS | HELD)

    def __init__(
        self,
        length: Count = LENGTH,
        herald_every: Annotated[int, Range(0)] = HERALD_EVERY,
        count: Count = COUNT,
        heldout_share: Share = 0.5,
    ) -> None:
        """`length` rooms, a herald in each `herald_every`-th one (0 for none), `count` walks. A
        random walker is right once in DOORS doors."""
        self.length, self.herald_every = length, herald_every
        tasks = [self._task(number) for number in range(count)]
        scores = SOLVED | {"random": DOORS**-length}
        self.task_set = TaskSet.shuffled(tasks, heldout_share, scores, content=identities)

    @tool
    async def go(self, door: str) -> str:
        """Go through the door of that colour into the next room."""
        play, wanted = self._play, door.strip()
        room, doors = play.scene["room"], self._doors(play.task, play.scene["room"])
        if wanted not in doors:
            raise ToolError(f"there is no {door!r} door; doors: {', '.join(doors)}")
        play.moves += 1
        if wanted != _best(play.scene["order"], doors):
            play.over = True
            return "Wrong door: the walk is over."
        room += 1
        play.reward = room / self.length
        order = self._order_in(play.task, room, play.scene["order"])
        play.scene = {"room": room, "order": order}
        play.won = play.over = room == self.length
        return "You are out." if play.over else self._look()

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """Besides: how far the walk went, and whether all went well as far as it was let."""
        verdict, rooms = await super().verify(trajectory), self._play.scene["room"]
        held = rooms == self._play.moves and rooms >= len(trajectory.turns) > 0
        further = {"held": float(held), "walked": rooms / self.length}
        return replace(verdict, parts={**verdict.parts, **further})

    def oracle(self, task: Task) -> Sequence[Action]:
        order, right = task.data["order"], []
        for room in range(self.length):
            order = self._order_in(task.data, room, order)
            right.append(_best(order, self._doors(task.data, room)))
        return [Action("", door, (ToolCall("go", {"door": door}),)) for door in right]

    def random_actions(self, task: Task, stream: random.Random) -> Sequence[Action]:
        rooms = [self._doors(task.data, room) for room in range(self.length)]
        doors = [stream.choice(doors) for doors in rooms]
        return [Action("", calls=(ToolCall("go", {"door": door}),)) for door in doors]

    def _task(self, number: int) -> Task:
        order = random.Random(derive("long walk", number)).sample(COLOURS, len(COLOURS))
        data = {"walk": number, "order": order}
        prompt = (
            f"There are {self.length} rooms, one after the other. In each, take the {order[0]} "
            f"door; where there is none, the {order[1]} one; then {', '.join(order[2:])}. A herald "
            "may change that. A wrong door ends the walk."
        )
        content = json.dumps([data, self.length, self.herald_every])
        return Task(identity(content), prompt, data=data)

    def _begin(self, task: Task) -> dict[str, Any]:
        return {"room": 0, "order": list(task.data["order"])}

    def _look(self) -> str:
        room = self._play.scene["room"]
        herald = self._herald(self._play.task, room)
        news = f" A herald: from now on, {herald} comes first." if herald else ""
        return f"Room {room + 1}.{news} Doors: {', '.join(self._doors(self._play.task, room))}."

    def _doors(self, data: Mapping[str, Any], room: int) -> list[str]:
        stream = random.Random(derive("long walk", data["walk"], "room", room))
        return stream.sample(COLOURS, DOORS)

    def _herald(self, data: Mapping[str, Any], room: int) -> str | None:
        """The colour that comes first from this room on, where a herald changes the rule."""
        if not self.herald_every or room == 0 or room % self.herald_every:
            return None
        return COLOURS[derive("long walk", data["walk"], "herald", room) % len(COLOURS)]

    def _order_in(self, data: Mapping[str, Any], room: int, before: list[str]) -> list[str]:
        """The order of the colours that holds in a room, by that of the room before."""
        herald = self._herald(data, room)
        return before if herald is None else [herald, *(one for one in before if one != herald)]


def _best(order: Sequence[str], doors: Sequence[str]) -> str:
    return next(colour for colour in order if colour in doors)
