"""Questions about people that take two look-ups: the environment of the agents in this folder.

Each agent brings the tool `search` of its own and finds what it returns in the task's data; the
environment's own `search`, for turnwise's loop, returns the same.
"""

import random

from turnwise import Action, Environment, Task, ToolCall, Verdict, tool

SYLLABLES = [
    *("al", "an", "bel", "bo", "cor", "da", "di", "el", "fa", "ga", "hal", "in", "jo"),
    *("ka", "la", "mi", "na", "or", "pa", "ri", "sa", "ti", "vo", "wen", "yo"),
]
RECORDS = 12
"""People that a task's data describes."""


class People(Environment):
    def __init__(self):
        stream = random.Random("people")
        names = sorted({"".join(stream.choices(SYLLABLES, k=3)).title() for _ in range(900)})
        stream.shuffle(names)
        towns = [names.pop() for _ in range(60)]
        friends = dict(zip(names, [*names[1:], names[0]], strict=True))
        self.records = {
            name: f"{name} is a friend of {friends[name]} and lives in {stream.choice(towns)}."
            for name in names
        }
        self.friends = friends

    def tasks(self, split):
        names = list(self.records)
        return [self._task(name) for name in (names[:500] if split == "train" else names[500:800])]

    def _task(self, name):
        friend = self.friends[name]
        others = random.Random(name).sample(sorted(self.records), RECORDS)
        shown = {one: self.records[one] for one in dict.fromkeys([name, friend, *others])}
        prompt = f"Where does the friend of {name} live?"
        return Task(name, prompt, {"town": self._town(friend)}, {"records": shown})

    def _town(self, name):
        return self.records[name].removesuffix(".").rpartition(" ")[2]

    async def reset(self, task, seed):
        self.found = task.data["records"]
        return await super().reset(task, seed)

    @tool
    def search(self, name: str) -> str:
        """Look a person up."""
        return search(self.found, name)

    async def verify(self, trajectory):
        right = (trajectory.answer or "").strip().rstrip(".") == trajectory.task.secret["town"]
        return Verdict(reward=float(right), success=right)

    def oracle(self, task):
        friend = self.friends[task.id]
        looked_up = [
            Action(
                "", f"Who is the friend of {task.id}?", (ToolCall("search", {"name": task.id}),)
            ),
            Action("", f"Where does {friend} live?", (ToolCall("search", {"name": friend}),)),
        ]
        return [*looked_up, Action("", "This is it.", answer=task.secret["town"])]


class Handing(People):
    """The same for two agents: the first one finds the friend and hands over to the second."""

    @tool
    def transfer_to_towns(self) -> str:
        """Handoff to the towns agent to handle the request."""
        return '{"assistant": "towns"}'

    def oracle(self, task):
        first, *rest = super().oracle(task)
        hand_over = Action("", "Who lives there?", (ToolCall("transfer_to_towns", {}),))
        return [first, hand_over, *rest]


class Concluding(People):
    """The same for an agent that calls a tool for its answer."""

    @tool
    def final_answer(self, answer: str) -> str:
        """Provides a final answer to the given problem."""
        return answer

    def oracle(self, task):
        *before, last = super().oracle(task)
        call = ToolCall("final_answer", {"answer": last.answer})
        return [*before, Action("", last.thought, (call,))]


def search(records, name):
    """The record of a person."""
    return records.get(name.strip(), "Nobody has this name.")
