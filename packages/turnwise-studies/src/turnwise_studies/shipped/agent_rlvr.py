"""The game of the study agent_rlvr, with hints, and its demonstrations."""

import random

from turnwise.rollout.demonstrations import Script
from turnwise.seeds import derive
from turnwise.tools.tool import tool
from turnwise.types import Trajectory
from turnwise_studies.shipped.gigpo import DOORS, LEADS_ON, Rooms, going

RIGHT = 0.55
"""Share of right doors in a demonstration's first attempt."""


class Traps(Rooms):
    """Rooms in which a wrong door ends the walk; a hint names the right door of each sign."""

    @tool
    def go(self, door: str) -> str:
        """Go through a door: a or b."""
        play, room = self._play, self._play.scene
        shown = super().go(door)
        if play.scene > room:
            return shown
        play.over = True
        return "A trap."

    def guidance(self, attempt: Trajectory) -> str:
        """Give the sign of each room with its door."""
        return ", ".join(f"{sign} {LEADS_ON[sign]}" for sign in attempt.task.data["signs"])


def stumbling(script: Script, other: Script) -> Script:
    """Takes each door rightly with probability RIGHT; after a trap it acts as the hint says."""
    doors, others = ([str(one.calls[0].arguments["door"]) for one in by] for by in (script, other))
    stream = random.Random(derive("stumbling", *doors, "/", *others))
    for room, door in enumerate(doors):
        if stream.random() > RIGHT:
            return [*script[:room], going(DOORS[door == DOORS[0]]), *script]
    return script
