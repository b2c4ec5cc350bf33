"""Push every box onto a target: Sokoban as text, on boards made here or on Boxoban's.

Rewards of moves are those of RAGEN (arXiv 2504.20073): -0.1 a move, 1 for a box onto a target, -1
for one off it, 10 for the last.
"""

import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from pathlib import Path
from typing import Annotated

from turnwise.environments.base import EnvironmentSpec
from turnwise.environments.records import left_out, read_text
from turnwise.environments.tasksets import SOLVED, TaskFile, TaskSet, identities
from turnwise.errors import ConfigError, DataError, NotSupportedError, ToolError
from turnwise.options import Options
from turnwise.ranges import Count, Range, Share
from turnwise.seeds import derive
from turnwise.tools.tool import tool
from turnwise.types import Action, Task, ToolCall
from turnwise_environments.common import identity
from turnwise_environments.games.base import WAY_PARTS, Game

STEPS = {"left": (0, -1), "down": (1, 0), "right": (0, 1), "up": (-1, 0)}
MOVE, ON, OFF, DONE = -0.1, 1.0, -1.0, 10.0
RULES = "Push every box ($) onto a target (.). @ is you, # a wall, * a box on a target."
DRAFTS_PER_BOARD = 4
"""Boards that may be drawn for each new one, at most."""
DRAWS = 100_000
"""Random boards that are drawn for one that can be solved, at most."""
MOST_STATES = 200_000
"""Looked at by the solver before it gives up."""
FEW, WEIGHT = 2, 4

Place = tuple[int, int]
State = tuple[Place, frozenset[Place]]


@dataclass(frozen=True)
class MadeBoards(Options):
    """`boards` different random solvable boards of size x size with walls around, both splits
    together."""

    size: Annotated[int, Range(5)] = 6
    boxes: Count = 1
    boards: Count = 1000
    heldout_share: Share = 0.5

    def load(self) -> TaskSet:
        """Raises ConfigError where there are not so many."""
        return _task_set(_random_boards(self.size, self.boxes, self.boards), self.heldout_share)


STANDARD = MadeBoards()


@dataclass(frozen=True)
class LevelFile(TaskFile):
    """The boards of a file in Boxoban's format, or of a folder of them."""

    def load(self) -> TaskSet:
        """Raises DataError for files without a level."""
        boards, broken = read_levels(self.path)
        return replace(_task_set(boards, self.heldout_share), warnings=broken)


class Sokoban(Game):
    """One tool, `move`; moving towards a box pushes it, if there is room."""

    facts = EnvironmentSpec("sokoban", "1", turn_rewards=True, rewards="signed", parts=WAY_PARTS)

    def __init__(self, tasks: MadeBoards | LevelFile = STANDARD) -> None:
        """One task for each board; train and held-out share none."""
        self.task_set = tasks.load()

    @tool
    def move(self, direction: str) -> str:
        """Move one step: left, down, right or up."""
        play, wanted = self._play, direction.strip()
        if wanted not in STEPS:
            raise ToolError(f"there is no direction {direction!r}; give one of {tuple(STEPS)}")
        rows, targets = play.task["rows"], _places(play.task["rows"], ".*+")
        before = _state(play.scene)
        after = _moved(rows, before, wanted) or before
        gained = len(after[1] & targets) - len(before[1] & targets)
        play.won = play.over = after[1] == targets
        play.reward += MOVE + (ON if gained > 0 else OFF if gained < 0 else 0) + DONE * play.won
        play.moves += 1
        play.scene = _plain(after)
        return self._look()

    def oracle(self, task: Task) -> Sequence[Action]:
        """A solution (see `solve`). Raises NotSupportedError where MOST_STATES states hold none."""
        solution = solve(task.data["rows"])
        if solution is None:
            raise NotSupportedError(f"sokoban: no solution found for board {task.id}")
        return [
            Action("", "", (ToolCall("move", {"direction": direction}),)) for direction in solution
        ]

    def _begin(self, task: Task) -> dict[str, list[Place]]:
        return _plain(_first(task.data["rows"]))

    def _to_go(self, task: Task, view: str) -> float | None:
        """The distances of the boxes from their nearest targets, without walls, added up."""
        rows, targets = task.data["rows"], _places(task.data["rows"], ".*+")
        shown = [line.split(" ") for line in view.split("\n")]
        boxes = _places(["".join(line) for line in shown], "$*")
        if len(boxes) != len(_places(rows, "$*")):
            return None
        apart = (min(abs(row - y) + abs(column - x) for y, x in targets) for row, column in boxes)
        return float(sum(apart))

    def _look(self) -> str:
        rows = self._play.task["rows"]
        agent, boxes = _state(self._play.scene)
        targets, walls = _places(rows, ".*+"), _places(rows, "#")
        lines = []
        for row in range(len(rows)):
            line = ""
            for column in range(max(map(len, rows))):
                place = (row, column)
                on_target = place in targets
                if place in walls:
                    line += "#"
                elif place in boxes:
                    line += "*" if on_target else "$"
                elif place == agent:
                    line += "+" if on_target else "@"
                else:
                    line += "." if on_target else "_"
            lines.append(" ".join(line))
        return "\n".join(lines)


def _task_set(boards: Sequence[tuple[str, ...]], heldout_share: float) -> TaskSet:
    tasks = [Task(identity("/".join(rows)), RULES, data={"rows": list(rows)}) for rows in boards]
    return TaskSet.shuffled(tasks, heldout_share, SOLVED, content=identities)


def solve(rows: Sequence[str]) -> list[str] | None:
    """A shortest solution of a board with at most FEW boxes; of others, which have too many states
    to look at all, the first one found by moves so far and WEIGHT times the pushes to go."""
    targets, start = _places(rows, ".*+"), _first(rows)
    pushes, weight = _pushes(rows), 0 if len(targets) <= FEW else WEIGHT
    came: dict[State, tuple[State, str]] = {}
    moves, queue = {start: 0}, [(0, 0, start)]
    while queue and len(came) < MOST_STATES:
        _, _, state = heappop(queue)
        if state[1] == targets:
            return _way(came, start, state)
        for direction in STEPS:
            following = _moved(rows, state, direction)
            if following is None or moves.get(following, MOST_STATES) <= moves[state] + 1:
                continue
            if not following[1] <= pushes.keys():  # a box that can reach no target any more
                continue
            came[following], moves[following] = (state, direction), moves[state] + 1
            to_go = sum(pushes[box] for box in following[1])
            heappush(queue, (moves[following] + weight * to_go, len(came), following))
    return None


def _pushes(rows: Sequence[str]) -> dict[Place, int]:
    """The least pushes from each place to a target, for one box alone, where there is a way."""
    found = dict.fromkeys(_places(rows, ".*+"), 0)
    queue, free = deque(found), _places(rows, " @$.*+")
    while queue:
        row, column = place = queue.popleft()
        for down, right in STEPS.values():
            box, agent = (row - down, column - right), (row - 2 * down, column - 2 * right)
            if box in free and agent in free and box not in found:
                found[box] = found[place] + 1
                queue.append(box)
    return found


def read_levels(path: Path) -> tuple[list[tuple[str, ...]], list[str]]:
    """Boards of Boxoban files: lines of `# @$.*+`, each board after a line with `;`; and a
    sentence, naming the file and line, on each that is none. Raises DataError without any board."""
    files = sorted(path.glob("*.txt")) if path.is_dir() else [path]
    boards, broken = list[tuple[str, ...]](), list[str]()
    for where, rows in (found for file in files for found in _blocks(file)):
        problem = _problem(rows)
        if problem:
            broken.append(f"{where}: {problem}")
        else:
            boards.append(tuple(rows))
    told = left_out(path, broken, bool(boards))
    if not boards:
        raise DataError(f"{path}: there are no Boxoban levels in it")
    return boards, told


def _blocks(file: Path) -> Iterator[tuple[str, list[str]]]:
    """The lines of each board, with its place."""
    if not file.is_file():
        raise DataError(f"{file} is not there: give a Boxoban file or a folder of them")
    rows: list[str] = []
    for number, line in enumerate([*read_text(file).splitlines(), ";"], start=1):
        if line.strip() and not line.startswith(";"):
            rows.append(line)
        elif rows:
            yield f"{file}, line {number - len(rows)}", rows
            rows = []


def _problem(rows: Sequence[str]) -> str:
    foreign = "".join(sorted(set("".join(rows)) - set("# @$.*+")))
    if foreign:
        return f"not a Sokoban board: it has {foreign!r:.40}"
    boxes, targets = _places(rows, "$*"), _places(rows, ".*+")
    if len(_places(rows, "@+")) != 1 or len(boxes) != len(targets) or not boxes:
        return "a board has one player, and as many boxes as targets"
    if boxes == targets:
        return "all boxes are on targets already"
    return "" if _is_closed(rows) else "there is a way out between the walls"


def _is_closed(rows: Sequence[str]) -> bool:
    """Whether there are walls all around what the player can come to, boxes pushed away."""
    todo, seen = [_first(rows)[0]], set[Place]()
    while todo:
        row, column = place = todo.pop()
        if not (0 <= row < len(rows) and 0 <= column < len(rows[row])):
            return False
        if place not in seen and rows[row][column] != "#":
            seen.add(place)
            todo += [(row + down, column + right) for down, right in STEPS.values()]
    return True


def _random_boards(size: int, boxes: int, count: int) -> list[tuple[str, ...]]:
    found: dict[tuple[str, ...], None] = {}
    for number in range(DRAFTS_PER_BOARD * count):
        found[_random_board(size, boxes, number)] = None
        if len(found) == count:
            return list(found)
    raise ConfigError(f"sokoban: there are only about {len(found)} such boards: lower boards")


def _random_board(size: int, boxes: int, number: int) -> tuple[str, ...]:
    """A solvable one that is not solved already; the same for the same number."""
    stream = random.Random(derive("sokoban", size, boxes, number))
    inner = [(row, column) for row in range(1, size - 1) for column in range(1, size - 1)]
    for _ in range(DRAWS):
        walls = set(stream.sample(inner, len(inner) // 6))
        free = [place for place in inner if place not in walls]
        if len(free) < 2 * boxes + 1:
            raise ConfigError(f"sokoban: {boxes} boxes do not fit on a board of {size} x {size}")
        chosen = stream.sample(free, 2 * boxes + 1)
        signs = dict.fromkeys(walls, "#") | dict.fromkeys(chosen[:boxes], "$")
        signs |= dict.fromkeys(chosen[boxes:-1], ".") | {chosen[-1]: "@"}
        rows = [
            "".join(
                signs.get((row, column), " ") if (row, column) in inner else "#"
                for column in range(size)
            )
            for row in range(size)
        ]
        if solve(rows):
            return tuple(rows)
    raise ConfigError(
        f"sokoban: no board of {size} x {size} with {boxes} boxes was found that can be solved: "
        "lower boxes, or raise size"
    )


def _moved(rows: Sequence[str], state: State, direction: str) -> State | None:
    """The state after a move; None where a wall or a second box is in the way."""
    (row, column), boxes = state
    down, right = STEPS[direction]
    place, beyond = (row + down, column + right), (row + 2 * down, column + 2 * right)
    if rows[place[0]][place[1]] == "#":
        return None
    if place not in boxes:
        return place, boxes
    if rows[beyond[0]][beyond[1]] == "#" or beyond in boxes:
        return None
    return place, boxes - {place} | {beyond}


def _first(rows: Sequence[str]) -> State:
    return next(iter(_places(rows, "@+"))), _places(rows, "$*")


def _places(rows: Sequence[str], signs: str) -> frozenset[Place]:
    return frozenset(
        (row, column)
        for row, line in enumerate(rows)
        for column, sign in enumerate(line)
        if sign in signs
    )


def _way(came: dict[State, tuple[State, str]], start: State, state: State) -> list[str]:
    directions = []
    while state != start:
        state, direction = came[state]
        directions.append(direction)
    return directions[::-1]


def _plain(state: State) -> dict[str, list[Place]]:
    return {"agent": [state[0]], "boxes": sorted(state[1])}


def _state(scene: dict[str, list[Place]]) -> State:
    (agent,) = scene["agent"]
    return (agent[0], agent[1]), frozenset((box[0], box[1]) for box in scene["boxes"])
