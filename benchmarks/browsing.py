"""More browsing finds more: a scripted searcher in `deep_research`, with budgets of calls.

    python benchmarks/browsing.py            # a line for each budget, over all tasks

It looks for the first method that the question names, page by page, opens the classes that it comes
to, and answers with the first one that meets all conditions; without calls left, with the last one
that it saw. Not here: anything learned.
"""

import asyncio
import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from turnwise.environments.base import Environment
from turnwise.environments.registry import make_environment
from turnwise.types import Action, Task, ToolCall, Trajectory, Turn
from turnwise_environments.choosing import all_tasks

BUDGETS = (2, 4, 8, 16, 32, 64, 128)
_RESULT = re.compile(r"^\[(.+?)\]", re.MULTILINE)


class SpentError(Exception):
    """No calls are left."""


@dataclass
class Searcher:
    """One episode. Example: await Searcher(environment, task, budget=16).play()"""

    environment: Environment
    task: Task
    budget: int
    turns: list[Turn] = field(default_factory=list)
    pages: dict[str, str] = field(default_factory=dict)
    seen: str = ""
    """The class that was met last."""

    async def play(self) -> bool:
        """Whether the verifier accepts what was found."""
        await self.environment.reset(self.task.public(), 0)
        with contextlib.suppress(SpentError):
            await self._look()
        await self._act(Action("", answer=self.seen.rpartition(".")[2]))
        played = Trajectory(self.task, "browsing", 0, 0, turns=tuple(self.turns))
        return (await self.environment.verify(played)).success

    async def _look(self) -> None:
        method = self.task.info["methods"][0]
        for page in range(1, 21):
            text = await self._call("search", query=method, page=page)
            found = _RESULT.findall(text)
            for entry in found:
                owner, _, name = entry.rpartition(".")
                if name == method and owner not in self.pages:
                    self.seen = owner
                    if await self._fits(owner):
                        return
            if not found:
                return

    async def _fits(self, identity: str) -> bool:
        page = await self._opened(identity)
        if ". Module: " not in page:
            return False
        for kind, value in conditions(self.task.prompt):
            if kind in ("classes", "function"):
                module = await self._opened(identity.rpartition(".")[0])
                if not met(kind, value, module, identity):
                    return False
            elif not met(kind, value, page, identity):
                return False
        return True

    async def _opened(self, document: str) -> str:
        if document not in self.pages:
            self.pages[document] = await self._call("open_document", document=document)
        return self.pages[document]

    async def _call(self, name: str, **arguments: object) -> str:
        if len(self.turns) == self.budget:
            raise SpentError
        return await self._act(Action("", calls=(ToolCall(name, arguments),)))

    async def _act(self, action: Action) -> str:
        step = await self.environment.step(action)
        self.turns.append(Turn(action, step))
        return step.observation.content if step.observation is not None else ""


def conditions(prompt: str) -> list[tuple[str, str]]:
    """What a question asks for, as (kind, value)."""
    forms = {
        "method": r"It has the method (\S+)\.(?= |$)",
        "package": r"It is in the package (\S+), or",
        "base": r"It is derived from (\S+)\.(?= |$)",
        "methods": r"The number of its own methods is (\d+)\.",
        "classes": r"The number of classes in its module is (\d+)\.",
        "function": r"Its module defines the function (\S+)\.(?= |$)",
    }
    return [(kind, value) for kind, form in forms.items() for value in re.findall(form, prompt)]


def met(kind: str, value: str, page: str, identity: str) -> bool:
    """Whether a page of a class, or of its module, says so."""
    if kind == "package":
        return identity.partition(".")[0] == value
    if kind == "base":
        return re.search(rf"Bases?: (?:[^.]*, )?{re.escape(value)}\b", page) is not None
    if kind in ("methods", "classes"):
        return re.search(rf"^{value} {kind}", page, re.MULTILINE) is not None
    listed = {"method": "methods", "function": "functions"}[kind]
    names = re.search(rf"^\d+ {listed}: (.*)$", page, re.MULTILINE)
    return names is not None and value in names[1].split(", ")


async def success(environment: Environment, tasks: Sequence[Task], budget: int) -> float:
    """Share of the tasks that are solved with so many calls."""
    played = [await Searcher(environment.fresh(), task, budget).play() for task in tasks]
    return sum(played) / len(played)


def main() -> None:
    environment = make_environment("deep_research", {"result_tokens": 64, "page_tokens": 2000})
    tasks = all_tasks(environment)
    print(f"{len(tasks)} tasks")
    for budget in BUDGETS:
        share = asyncio.run(success(environment, tasks, budget))
        print(f"{budget:4d} calls: {share:.3f}", flush=True)


if __name__ == "__main__":
    main()
