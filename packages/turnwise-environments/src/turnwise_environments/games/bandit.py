"""Two slot machines with names: one always pays a little, the other sometimes pays much.

As in RAGEN (arXiv 2504.20073): 0.15 for certain against 1 with probability 0.25. What a name stands
for is drawn for each task and cannot be known, so one pull is a guess and more pulls can learn.
"""

from collections.abc import Sequence

from turnwise.environments.base import EnvironmentSpec
from turnwise.environments.tasksets import SPLITS, Split, TaskSet
from turnwise.errors import ToolError
from turnwise.ranges import Count
from turnwise.seeds import derive
from turnwise.tools.tool import tool
from turnwise.types import Task
from turnwise_environments.games.base import PARTS, Game

SAFE_PAY, RISKY_PAY, RISKY_CHANCE = 0.15, 1.0, 0.25
NAMES = ("phoenix", "dragon", "teacher", "engineer", "trader", "librarian")


class Bandit(Game):
    """One tool, `pull`; the episode ends after so many pulls."""

    same_splits = True

    facts = EnvironmentSpec("bandit", "1", turn_rewards=True, parts=PARTS)

    def __init__(self, pulls: Count = 1, count: Count = 512) -> None:
        """`pulls` in an episode; `count` tasks in each split, pairs of names. Success is to have
        won more than the safe machine would have paid."""
        self.pulls = pulls
        tasks = {split: [self._task(split, place) for place in range(count)] for split in SPLITS}
        self.task_set = TaskSet.of(tasks)

    def _task(self, split: Split, number: int) -> Task:
        # Three parts of one number, so that the names do not tell which of them is risky.
        draw = derive("bandit", split, number)
        first = draw % len(NAMES)
        second = (first + 1 + draw // 7 % (len(NAMES) - 1)) % len(NAMES)
        names = [NAMES[first], NAMES[second]]
        prompt = f"Pull the {names[0]} arm or the {names[1]} arm; {self.pulls} to go."
        risky = names[draw // 64 % 2]
        return Task(f"{split}-{number}", prompt, data={"names": names, "risky": risky})

    def _begin(self, task: Task) -> str:
        return str(task.data["risky"])

    def _look(self) -> str:
        return f"{self.pulls - self._play.moves} pulls left."

    def _moves(self, task: Task) -> Sequence[str]:
        names: Sequence[str] = task.data["names"]
        return names

    @tool
    def pull(self, arm: str) -> str:
        """Pull the arm of that name; says what it pays."""
        play = self._play
        if arm.strip() not in play.task["names"]:
            raise ToolError(f"there is no arm {arm!r}; arms: {', '.join(play.task['names'])}")
        lucky = self._chance() < RISKY_CHANCE
        risky = arm.strip() == play.scene
        paid = (RISKY_PAY if lucky else 0.0) if risky else SAFE_PAY
        play.reward += paid
        play.moves += 1
        play.over = play.moves >= self.pulls
        # Sums of SAFE_PAY are rounded: as much as the safe machine pays is no success.
        play.won = play.over and play.reward > SAFE_PAY * self.pulls + 1e-9
        return f"It pays {paid:g}. {self._look()}"
