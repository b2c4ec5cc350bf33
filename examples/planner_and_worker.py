"""Two roles in one episode, each with credit of its own: a planner asks, a worker looks up.

The planner has the question and no records; the worker has the records and one question at a time.
Both are the policy, under two names, and are trained on what they said themselves. Run with
`turnwise train examples/planner_and_worker.toml`.
"""

import json
import random

from turnwise import Action, Environment, Task, ToolCall, Verdict, tool

SYLLABLES = ("al", "bel", "cor", "da", "el", "fa", "ga", "in", "jo", "ka", "la", "mi", "na", "or")
WORDS = {"friend": "Who is the friend?", "town": "Where do they live?"}


class Team(Environment):
    """Where does somebody's friend live? A third of the training tasks are a worker's alone."""

    def __init__(self):
        stream = random.Random("team")
        names = sorted({"".join(stream.choices(SYLLABLES, k=2)).title() for _ in range(400)})
        stream.shuffle(names)
        towns = [names.pop() for _ in range(20)]
        self.friends = dict(zip(names, [*names[1:], names[0]], strict=True))
        self.towns = {name: stream.choice(towns) for name in names}

    def tasks(self, split):
        names = list(self.friends)
        if split != "train":
            return [self._task("team", name) for name in names[100:]]
        kinds = ("team", "team", "friend", "town")
        return [self._task(kind, name) for name in names[:100] for kind in dict.fromkeys(kinds)]

    def _task(self, kind, name):
        if kind == "team":
            town = self.towns[self.friends[name]]
            data = {"kind": kind, "records": self._records(name, self.friends[name])}
            prompt = f"Where does the friend of {name} live?"
            return Task(f"{kind}/{name}", prompt, {"answer": town, "name": name}, data)
        question = f"{kind} of {name}"
        data = {"kind": kind, "records": self._records(name)}
        secret = {"answer": self.truth(question), "name": name}
        return Task(f"{kind}/{name}", question, secret, data)

    def _records(self, *names):
        others = random.Random(names[0]).sample(sorted(self.friends), 6)
        return {
            one: f"friend {self.friends[one]}, town {self.towns[one]}"
            for one in dict.fromkeys([*names, *others])
        }

    def truth(self, question):
        """The answer to a worker's question; None for one that is none."""
        kind, _, name = question.strip().partition(" of ")
        return {"friend": self.friends, "town": self.towns}.get(kind, {}).get(name)

    async def reset(self, task, seed):
        self.records = task.data["records"]
        return await super().reset(task, seed)

    @tool
    def search(self, name: str) -> str:
        """Look a person up."""
        return search(self.records, name)

    @tool
    def ask(self, question: str) -> str:
        """Ask the worker."""
        return self.truth(question) or "Nobody knows."

    async def verify(self, trajectory):
        right = (trajectory.answer or "").strip() == trajectory.task.secret["answer"]
        asked = [
            (one.call.arguments["question"], one.content)
            for turn in trajectory.turns
            if turn.role == "planner" and turn.step is not None
            for one in turn.step.results
        ]
        known = [told == self.truth(question) for question, told in asked if self.truth(question)]
        worker = sum(known) / len(known) if known else 0.0
        if trajectory.task.data["kind"] != "team":
            worker = float(right)
        return Verdict(float(right), right, roles={"planner": float(right), "worker": worker})

    def oracle(self, task):
        kind, name, answer = task.data["kind"], task.secret["name"], task.secret["answer"]
        if kind != "team":
            look = ToolCall("search", {"name": name})
            return [Action("", WORDS[kind], (look,)), Action("", "This is it.", answer=answer)]
        asked = [f"friend of {name}", f"town of {self.friends[name]}"]
        calls = [ToolCall("ask", {"question": question}) for question in asked]
        return [Action("", "I ask.", (call,)) for call in calls] + [
            Action("", "This is it.", answer=answer)
        ]


def search(records, name):
    """The record of a person."""
    return records.get(name.strip(), "Nobody has this name.")


async def run(task, model):
    """The agent: who asks is the role, by the name of the model that it asks for."""

    async def worker(question):
        return await converse(model, "worker", question, "search", "name", look_up)

    async def look_up(name):
        return search(task.data["records"], name)

    if task.data["kind"] != "team":
        return await worker(task.prompt)
    return await converse(model, "planner", task.prompt, "ask", "question", worker)


async def converse(model, role, prompt, name, parameter, call):
    """A conversation of a role that has one tool, to its answer."""
    schema = {"type": "object", "properties": {parameter: {"type": "string"}}}
    function = {"name": name, "description": "", "parameters": schema}
    messages = [{"role": "user", "content": prompt}]
    for _ in range(3):
        reply = await model.chat(messages, [{"type": "function", "function": function}], role)
        message = reply["choices"][0]["message"]
        messages.append(message)
        if not message.get("tool_calls"):
            return message["content"]
        for asked in message["tool_calls"]:
            found = await call(json.loads(asked["function"]["arguments"])[parameter])
            messages.append({"role": "tool", "tool_call_id": asked["id"], "content": found})
    return "I give up."
