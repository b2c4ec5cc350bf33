"""An environment of one's own: tasks, a state, a tool, rewards for steps, a verdict, an oracle."""

from dataclasses import replace
from typing import Literal

from turnwise import Action, Environment, Observation, Source, Task, ToolCall, Verdict, tool


class Thermostat(Environment):
    def tasks(self, split):
        rooms = range(100) if split == "train" else range(100, 150)
        return [Task(f"room {n}", f"Room {n}", {"degrees": 7 * n % 9 - 4}) for n in rooms]

    async def reset(self, task, seed):
        self.degrees = 7 * int(task.id.split()[1]) % 9 - 4  # an instance is one episode: its state
        return Observation(f"{task.prompt} is {self.feels()}.", Source.USER)

    @tool
    def turn(self, direction: Literal["up", "down"]) -> str:
        """Turn the heating up or down."""
        self.degrees += 1 if direction == "up" else -1
        return f"It is {self.feels()}."

    def feels(self):
        return "too cold" if self.degrees < 0 else "too warm" if self.degrees > 0 else "right"

    async def step(self, action):
        before = abs(self.degrees)
        step = await super().step(action)  # runs the tool
        return replace(step, reward=0.1 * (before - abs(self.degrees)))

    async def verify(self, trajectory):
        return Verdict(reward=float(self.degrees == 0), success=self.degrees == 0)

    def oracle(self, task):
        off = task.secret["degrees"]
        turn = Action("", "", (ToolCall("turn", {"direction": "up" if off < 0 else "down"}),))
        return [turn] * abs(off) + [Action("", "", answer="done")]
