"""The environment of the study voyager: items to make one after the other, and a skill library.

An item of the first level is made of two materials, any other of an item of the level below and a
material. Each item begins with empty hands and an empty context. The calls that made it are its
plan, and a plan that makes it again from empty hands is kept as a skill, which is run in one call.
Source: Voyager (arXiv 2305.16291, section 2). Not here: the automatic curriculum, and programs.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from turnwise.environments.base import Environment, EnvironmentSpec
from turnwise.environments.tasksets import SOLVED, SPLITS, Split, TaskSet
from turnwise.environments.turn_parts import share
from turnwise.errors import ToolError
from turnwise.ranges import Count, Share
from turnwise.rewards.parts import RewardPart
from turnwise.seeds import derive
from turnwise.tokens import Source
from turnwise.tools.bm25 import BM25Index
from turnwise.tools.tool import tool
from turnwise.types import Action, Observation, Step, Task, ToolCall, Trajectory, Verdict

LEVELS, WIDTH = 4, 2
"""Levels of the recipes, and items of each; they are made level by level."""
BUDGET = 16
"""Calls for an item; without skills one of the last level needs 12."""
SHOWN = 2
"""Skills that are shown with a recipe, at most."""
MATERIALS = ("text", "line", "string", "number", "key", "byte")
ITEMS = (
    *("widget", "socket", "tree", "event", "loop", "context", "object", "process", "package"),
    *("module", "method", "function", "class", "command", "error", "test"),
)
Plan = Sequence[tuple[str, str]]
"""Tools and what they were called with."""
PARTS = {"items": RewardPart(0, LEVELS * WIDTH, "items made")} | {
    f"level_{level}": share(f"share of the items of level {level} that were made")
    for level in range(1, LEVELS + 1)
}


class Workshop(Environment):
    """See the module; the reward is the share of the items that are made."""

    facts = EnvironmentSpec("workshop", "1", rewards="shares", parts=PARTS)

    def __init__(
        self, library: tuple[Share, ...] = (1.0,), verified: bool = True, count: Count = 1000
    ) -> None:
        """`library` are the shares of skills that are kept, which tasks take in turn; without
        `verified` the plans of items that were not made are kept too; `count` tasks in each
        split."""
        self.verified = verified
        tasks = {
            split: [_task(split, n, library[n % len(library)]) for n in range(count)]
            for split in SPLITS
        }
        self.task_set = TaskSet.of(tasks, SOLVED)

    async def reset(self, task: Task, seed: int) -> Observation:
        self._recipes: Mapping[str, Sequence[str]] = task.data["recipes"]
        self._kept: Sequence[str] = task.data["kept"]
        self._left, self._made, self._skills = list(self._recipes), list[bool](), dict[str, Plan]()
        return Observation(f"{task.prompt}\n{self._begin()}", Source.USER)

    async def step(self, action: Action) -> Step:
        """Run the calls; go on with the next item when this one is made, its budget is spent, or
        the agent answers, and so gives it up."""
        step = Step(Observation("")) if action.answer else await super().step(action)
        self._calls += len(action.calls)
        made = self._goal in self._held
        if not made and not action.answer and self._calls < BUDGET:
            return step
        self._made.append(made)
        if self._goal in self._kept and (not self.verified or self._makes_again()):
            self._skills[self._goal] = self._plan
        if not self._left:
            return replace(step, done=True)
        return Step(Observation(self._begin(), Source.ENVIRONMENT), step.results, forgets=True)

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """Count the items; those that an end cut off are not made."""
        del trajectory
        made = self._made + [False] * (LEVELS * WIDTH - len(self._made))
        levels = [sum(made[place : place + WIDTH]) / WIDTH for place in range(0, len(made), WIDTH)]
        parts = {"items": float(sum(made))}
        parts |= {f"level_{level}": one for level, one in enumerate(levels, 1)}
        return Verdict(sum(made) / len(made), all(made), parts, f"{sum(made)} items")

    @tool
    def get(self, material: str) -> str:
        """Take a material."""
        return self._act("get", material)

    @tool
    def make(self, item: str) -> str:
        """Make an item of its parts, which are used up."""
        return self._act("make", item)

    @tool
    def use(self, skill: str) -> str:
        """Do all that made an earlier item."""
        return self._act("use", skill)

    @tool
    def read(self, recipe: str) -> str:
        """Read the recipe of an item."""
        if recipe.strip() not in self._recipes:
            raise ToolError(f"there is no recipe of {recipe!r}")
        self._open.append(recipe.strip())
        return self._shown(recipe.strip())

    def oracle(self, task: Task) -> Sequence[Action]:
        """Use what is kept as a skill, and make the rest from materials."""
        recipes, kept = task.data["recipes"], task.data["kept"]
        plans = [_plan(item, recipes, kept) for item in recipes]
        return [calling(*call) for plan in plans for call in plan]

    def _begin(self) -> str:
        """Empty hands, and the next item."""
        self._goal, self._held, self._calls = self._left.pop(0), list[str](), 0
        self._plan: list[tuple[str, str]] = []
        self._open = [self._goal]
        return f"Make {self._shown(self._goal)}"

    def _shown(self, item: str) -> str:
        """The recipe of an item, and the skills nearest to it."""
        recipe = f"{item}: {' '.join(self._recipes[item])}."
        names = list(self._skills)
        if not names:
            return recipe
        texts = [" ".join(name for _, name in self._skills[skill]) for skill in names]
        near = [names[place] for place in BM25Index(texts, names).search(recipe, SHOWN)]
        return f"{recipe} Skills: {' '.join(near) or 'none'}."

    def _act(self, tool_name: str, name: str) -> str:
        self._held = self._after((tool_name, name.strip()), self._held)
        self._plan.append((tool_name, name.strip()))
        while self._open and self._open[-1] in self._held:
            self._open.pop()
        return f"held: {' '.join(self._held)}.{self._lacking()}"

    def _lacking(self) -> str:
        """The parts that the recipe read last still needs."""
        if not self._open:
            return ""
        item = self._open[-1]
        parts = [part for part in self._recipes[item] if part not in self._held]
        return f" {item} lacks {' '.join(parts)}." if parts else f" Fits: {item}."

    def _makes_again(self) -> bool:
        held: Sequence[str] = ()
        for call in self._plan:
            held = self._after(call, held)
        return self._goal in held

    def _after(self, call: tuple[str, str], held: Sequence[str]) -> list[str]:
        """The hands after a call. Raises ToolError where it cannot be done."""
        tool_name, name = call
        if tool_name == "make":
            return self._combined(name, held)
        if tool_name == "get" and name in MATERIALS:
            return [*held, name]
        if tool_name == "get" or name not in self._skills:
            raise ToolError(f"there is no {name!r}")
        for one in self._skills[name]:  # of earlier items alone, so it ends
            held = self._after(one, held)
        return list(held)

    def _combined(self, item: str, held: Sequence[str]) -> list[str]:
        left = list(held)
        for part in self._recipes.get(item, [item]):
            if part not in left:
                raise ToolError(f"no {part}")
            left.remove(part)
        return [*left, item]


def _task(split: Split, number: int, kept: float) -> Task:
    stream = random.Random(derive("workshop", split, number))
    items = stream.sample(ITEMS, LEVELS * WIDTH)
    recipes: dict[str, Sequence[str]] = {}
    for place, item in enumerate(items):
        level = place // WIDTH
        below = items[(level - 1) * WIDTH : level * WIDTH]
        parts = [stream.choice(below), stream.choice(MATERIALS)] if level else []
        recipes[item] = parts or stream.sample(MATERIALS, 2)
    data: dict[str, Any] = {"recipes": recipes}
    data["kept"] = [item for item in items if stream.random() < kept]
    return Task(f"{split}-{number}", f"{len(items)} items.", data=data)


def _plan(item: str, recipes: Mapping[str, Sequence[str]], kept: Sequence[str]) -> Plan:
    first, material = recipes[item]
    if first in MATERIALS:
        before: Plan = [("get", first)]
    elif first in kept:
        before = [("use", first)]
    else:
        before = [("read", first), *_plan(first, recipes, kept)]
    return [*before, ("get", material), ("make", item)]


def calling(name: str, argument: str) -> Action:
    argument_of = {"get": "material", "make": "item", "use": "skill", "read": "recipe"}
    return Action("", calls=(ToolCall(name, {argument_of[name]: argument}),))
