"""Cross a frozen lake without falling into a hole: gymnasium's FrozenLake as text.

Maps and transitions are gymnasium's (`FrozenLake-v1`), so its known values hold here. The agent
sees the map with P where it stands. Needs the extra `games`.
"""

import math
from collections import deque
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import accumulate
from typing import Annotated, Any

from turnwise.environments.base import EnvironmentSpec, Rewards
from turnwise.environments.tasksets import SOLVED, Tasks, TaskSet, identities
from turnwise.errors import ConfigError, NotSupportedError, ToolError
from turnwise.ranges import Range, Share
from turnwise.tools.tool import tool
from turnwise.types import Action, Task, ToolCall
from turnwise_environments.common import check_installed, identity
from turnwise_environments.games.base import DIRECTIONS, WAY_PARTS, Game

RULES = "Walk from P to G over frozen ground (F); holes (H) end the game."
SLIPPERY = " The ice is slippery: a move may go to either side instead."
Table = dict[int, dict[int, list[tuple[float, int, float, bool]]]]


class FrozenLake(Game):
    """One tool, `move`; reward 1 at the goal, 0 otherwise; besides, what a move is worth."""

    def __init__(
        self,
        size: Annotated[int, Range(2)] = 4,
        slippery: bool = False,
        maps: Annotated[int, Range(0)] = 1000,
        frozen_share: Annotated[float, Range(1e-6, 1)] = 0.8,
        heldout_share: Share = 0.5,
        move_reward: float = 0.0,
    ) -> None:
        """`maps` random maps of size x size, or the standard one (4x4 or 8x8) with maps = 0. With a
        `move_reward` below 0 moves cost, and to give up does not."""
        check_installed("gymnasium", "games")
        rewards: Rewards = "signed" if move_reward < 0 else "unknown"
        turn_rewards = bool(move_reward)
        self.facts = EnvironmentSpec(
            "frozen_lake", "1", turn_rewards=turn_rewards, rewards=rewards, parts=WAY_PARTS
        )
        self.slippery, self.move_reward = slippery, move_reward
        drawn = _random_maps(size, maps, frozen_share) if maps else [_standard_map(size)]
        rules = RULES + SLIPPERY * slippery
        tasks = [Task(identity("/".join(rows)), rules, data={"rows": list(rows)}) for rows in drawn]
        scores = {"noop": 0.0} if slippery else SOLVED
        if maps:
            few = f"frozen_lake: {len(tasks)} different maps were found, of {maps} asked for"
            told = [few] if len(tasks) < maps else []
            self.task_set = TaskSet.shuffled(tasks, heldout_share, scores, told, identities)
        else:
            self.same_splits = True  # there is one standard map
            both: Tasks = {"train": tasks, "heldout": tasks}
            self.task_set = TaskSet.of(both, scores, content=identities)

    def table(self, task: Task) -> Table:
        """gymnasium's transitions: state -> action -> (probability, next, reward, end)."""
        return _table(tuple(task.data["rows"]), self.slippery)

    @tool
    def move(self, direction: str) -> str:
        """Move one step: left, down, right or up."""
        play, wanted = self._play, direction.strip()
        if wanted not in DIRECTIONS:
            raise ToolError(f"there is no direction {direction!r}; give one of {DIRECTIONS}")
        task = Task("", "", data=play.task)
        chances = self.table(task)[play.scene][DIRECTIONS.index(wanted)]
        edges = accumulate(probability for probability, *_ in chances)
        drawn = self._chance()
        reached = (place for place, edge in zip(chances, edges, strict=True) if drawn < edge)
        # Three thirds, added up, may be less than 1.
        _, state, reward, over = next(reached, chances[-1])
        play.scene, play.over = int(state), bool(over)
        play.moves += 1
        play.reward += self.move_reward
        play.won = play.over and reward > 0
        return self._look()

    def oracle(self, task: Task) -> Sequence[Action]:
        if self.slippery:
            raise NotSupportedError(
                "frozen_lake: on slippery ice there is no fixed way to the goal"
            )
        table, left, state = self.table(task), _distances(task.data["rows"]), 0
        actions = []
        while left[state]:
            reached = [table[state][action][0][1] for action in range(len(DIRECTIONS))]
            nearer = (left.get(place, math.inf) < left[state] for place in reached)
            chosen = list(nearer).index(True)
            state = reached[chosen]
            actions.append(Action("", "", (ToolCall("move", {"direction": DIRECTIONS[chosen]}),)))
        return actions

    def _begin(self, task: Task) -> int:
        return 0

    def _look(self) -> str:
        rows = [list(row) for row in self._play.task["rows"]]
        width = len(rows[0])
        fallen = self._play.over and not self._play.won
        rows[self._play.scene // width][self._play.scene % width] = "X" if fallen else "P"
        return "\n".join(" ".join(row) for row in rows)

    def _to_go(self, task: Task, view: str) -> float | None:
        signs, ground = view.split(), "".join(task.data["rows"])
        if len(signs) != len(ground) or not {"P", "X"} & set(signs):
            return None
        return math.inf if "X" in signs else _distances(task.data["rows"])[signs.index("P")]

    def _outcome_reward(self) -> float:
        return float(self._play.won)


@lru_cache(maxsize=1024)  # a table of a large map has megabytes, and a run has thousands of maps
def _table(rows: tuple[str, ...], slippery: bool) -> Table:
    found: Table = _toy_text().FrozenLakeEnv(desc=list(rows), is_slippery=slippery).P
    return found


def _distances(rows: Sequence[str]) -> dict[int, int]:
    ground, width = "".join(rows), len(rows[0])
    goal = ground.index("G")
    found, queue = {goal: 0}, deque([goal])
    while queue:
        place = queue.popleft()
        row, column = divmod(place, width)
        for down, right in ((0, -1), (1, 0), (0, 1), (-1, 0)):
            inside = 0 <= row + down < len(rows) and 0 <= column + right < width
            other = place + width * down + right
            if inside and ground[other] != "H" and other not in found:
                found[other] = found[place] + 1
                queue.append(other)
    return found


@cache  # seconds for thousands, and checks make the environment several times
def _random_maps(size: int, count: int, frozen_share: float) -> Sequence[tuple[str, ...]]:
    """Different ones, each with a way to the goal; fewer than asked where there are not so many.
    Raises ConfigError where hardly any has one: gymnasium draws until it finds it."""
    # The shortest ways, on average, of a map: 2 size - 3 squares between start and goal are frozen.
    shortest = math.comb(2 * size - 2, size - 1)
    least = math.ceil(100 * (1e-3 / shortest) ** (1 / (2 * size - 3))) / 100
    if frozen_share < least:
        raise ConfigError(
            f"frozen_lake: of maps of size {size} with frozen_share = {frozen_share} hardly any has"
            f" a way to the goal: give {least} or more"
        )
    generate, found = _toy_text().generate_random_map, dict[tuple[str, ...], None]()
    for seed in range(4 * count):
        found[tuple(generate(size, frozen_share, seed))] = None
        if len(found) == count:
            break
    return list(found)


def _standard_map(size: int) -> tuple[str, ...]:
    known = _toy_text().MAPS
    name = f"{size}x{size}"
    if name not in known:
        raise ConfigError(f"frozen_lake: the standard maps are {', '.join(known)}, not {name}")
    return tuple(known[name])


def _toy_text() -> Any:
    from gymnasium.envs.toy_text import frozen_lake

    return frozen_lake
