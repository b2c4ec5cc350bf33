"""The game of the study agent_rlvr, with hints, and its demonstrations."""

import random
from collections.abc import Sequence
from dataclasses import replace

from turnwise.ranges import Count
from turnwise.rollout.demonstrations import Script
from turnwise.seeds import derive
from turnwise.tools.tool import tool
from turnwise.types import Action, Task, Trajectory
from turnwise_studies.shipped.gigpo import DOORS, LEADS_ON, Rooms, going


class Traps(Rooms):
    """Rooms in which a wrong door ends the walk; a hint names the right door of each sign."""

    def __init__(
        self, length: Count = 5, signs: Count = 16, count: Count = 2000, own_rules: bool = False
    ) -> None:
        """See `Rooms`; with `own_rules` each walk has one of its own, which only a hint tells."""
        self.own_rules = own_rules
        super().__init__(length, signs, count)

    @tool
    def go(self, door: str) -> str:
        """Go through a door: a or b."""
        play = self._play
        play.moves += 1
        if door.strip() != play.task["doors"][play.scene]:
            play.over = True
            return "A trap."
        play.scene += 1
        play.won = play.over = play.scene == self.length
        return "Out." if play.over else self._look()

    def oracle(self, task: Task) -> Sequence[Action]:
        return [going(door) for door in task.data["doors"]]

    def guidance(self, attempt: Trajectory) -> str:
        """Give the sign of each room with its door."""
        data = attempt.task.data
        pairs = zip(data["signs"], data["doors"], strict=True)
        return ", ".join(f"{sign} {door}" for sign, door in pairs)

    def _task(self, number: int) -> Task:
        task = super()._task(number)
        rule = {sign: DOORS[derive("rule", number, sign) % 2] for sign in self.signs}
        leads_on = rule if self.own_rules else LEADS_ON
        doors = "".join(leads_on[sign] for sign in task.data["signs"])
        return replace(task, data={**task.data, "doors": doors})


def stumbling(script: Script, other: Script) -> Script:
    """Takes doors by chance; after a trap it acts as the hint says."""
    doors, others = ([str(one.calls[0].arguments["door"]) for one in by] for by in (script, other))
    stream = random.Random(derive("stumbling", *doors, "/", *others))
    for room, door in enumerate(doors):
        if stream.random() < 0.5:
            return [*script[:room], going(DOORS[door == DOORS[0]]), *script]
    return script
