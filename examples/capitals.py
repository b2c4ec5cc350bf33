"""An environment of one's own: one tool, a handful of tasks, a verdict."""

from turnwise import Environment, Task, ToolError, Trajectory, Verdict, tool

CAPITALS = {"France": "Paris", "Italy": "Rome", "Japan": "Tokyo", "Kenya": "Nairobi"}


class Capitals(Environment):
    def tasks(self, split):
        chosen = list(CAPITALS)[:3] if split == "train" else list(CAPITALS)[3:]
        return [Task(land, f"Capital of {land}?", {"answer": CAPITALS[land]}) for land in chosen]

    @tool
    def lookup(self, country: str) -> str:
        """Look a country up."""
        if country not in CAPITALS:
            raise ToolError(f"there is no country {country!r}")
        return f"The capital of {country} is {CAPITALS[country]}."

    async def verify(self, trajectory: Trajectory) -> Verdict:
        right = trajectory.answer == trajectory.task.secret["answer"]
        return Verdict(reward=float(right), success=right)
