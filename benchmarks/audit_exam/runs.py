"""Tasks that run something: a program, a calculator, checks, a round of deliveries."""

import asyncio
import random
import subprocess
import sys

from turnwise import Action, Environment, Task, ToolCall, ToolError, Verdict, tool
from turnwise.environments.base import Budget, EnvironmentSpec


def streams(kind, split, count=24):
    """Pairs of a task's id and the stream that its content is drawn from."""
    names = [f"{kind}-{split}-{number}" for number in range(count)]
    return [(name, random.Random(name)) for name in names]


SHAPES = {
    "the sum of those above {k}": "sum(n for n in numbers if n > {k})",
    "how many are divisible by {k}": "sum(n % {k} == 0 for n in numbers)",
    "the largest one, less {k}": "max(numbers) - {k}",
    "the sum of their remainders by {k}": "sum(n % {k} for n in numbers)",
}


class Function(Environment):
    """Write a function in Python; it is run against examples."""

    def tasks(self, split):
        chosen = range(2, 8) if split == "train" else range(8, 14)
        return [self.drawn(said, body, k) for said, body in SHAPES.items() for k in chosen]

    def drawn(self, said, body, k):
        said, body = said.format(k=k), body.format(k=k)
        stream = random.Random(said)
        checks = []
        for _ in range(10):
            numbers = [stream.randint(1, 40) for _ in range(12)]
            checks.append(f"assert solve({numbers}) == {eval(body, {'numbers': numbers})}")
        prompt = (
            f"Write a Python function solve(numbers) that returns {said}. Answer with code alone."
        )
        return Task(said, prompt, {"checks": "\n".join(checks), "body": body})

    async def verify(self, trajectory):
        program = f"{trajectory.answer or ''}\n\n{trajectory.task.secret['checks']}\n"
        try:
            code = await asyncio.to_thread(self.run, program.encode(errors="replace"))
        except subprocess.TimeoutExpired:
            return Verdict(0.0, False, detail="not done within 5 s")
        return Verdict(float(code == 0), code == 0, detail=f"exit code {code}")

    def run(self, program):
        command, nowhere = [sys.executable, "-I", "-S", "-"], subprocess.DEVNULL
        return subprocess.run(
            command, input=program, stdout=nowhere, stderr=nowhere, timeout=5
        ).returncode

    def oracle(self, task):
        return [Action("", answer=f"def solve(numbers):\n    return {task.secret['body']}")]


class Ratio(Environment):
    """Work out a ratio with a calculator; wrong answers cost."""

    facts = EnvironmentSpec("ratio", "1", rewards="signed")

    def tasks(self, split):
        found = []
        for name, stream in streams("ratio", split):
            first, second, third = (stream.randint(100, 999) for _ in range(3))
            prompt = (
                f"Of {first} visitors {second} bought a ticket each, which made {third} euros. "
                "How many euros is that for a visitor, to three decimals? A wrong answer costs 1."
            )
            found.append(Task(name, prompt, {"ratio": third / first}))
        return found

    @tool
    def divide(self, dividend: float, divisor: float) -> str:
        """Divide one number by another."""
        return f"{dividend / divisor:.6g}"

    async def verify(self, trajectory):
        try:
            given = float(trajectory.answer or "")
        except ValueError:
            return Verdict(-1.0, False, detail="no number")
        right = abs(given - trajectory.task.secret["ratio"]) <= 0.00051
        return Verdict(1.0 if right else -1.0, right)


class Primes(Environment):
    """Say of eight numbers which are prime."""

    def tasks(self, split):
        found = []
        for name, stream in streams("primes", split):
            numbers = stream.sample(range(11, 200, 2), 8)
            labels = ["yes" if self.prime(number) else "no" for number in numbers]
            shown = ", ".join(map(str, numbers))
            prompt = f"Which of {shown} are prime? Answer eight words, yes or no, with spaces."
            found.append(Task(name, prompt, {"labels": labels}))
        return found

    def prime(self, number):
        return all(number % each for each in range(2, int(number**0.5) + 1))

    async def verify(self, trajectory):
        given, labels = (trajectory.answer or "").lower().split(), trajectory.task.secret["labels"]
        if len(given) != len(labels):
            return Verdict(0.0, False, detail=f"{len(given)} words")
        checked = random.sample(range(len(labels)), 3)
        right = all(given[place] == labels[place] for place in checked)
        return Verdict(float(right), right)

    def oracle(self, task):
        return [Action("", answer=" ".join(task.secret["labels"]))]


STREETS = ["Ash", "Birch", "Cedar", "Dogwood", "Elm", "Fir", "Grove", "Hazel", "Ivy", "Juniper"]


class Deliveries(Environment):
    """Deliver to some addresses, one call each."""

    def tasks(self, split):
        found = []
        for name, stream in streams("deliveries", split):
            streets = stream.sample(STREETS, stream.randint(2, 6))
            stops = [f"{stream.randint(1, 99)} {street} Lane" for street in streets]
            prompt = f"Deliver to {'; '.join(stops)}. Then say done."
            found.append(Task(name, prompt, {"stops": stops}))
        return found

    def budget(self, task):
        return Budget(max_tool_calls=4)

    async def reset(self, task, seed):
        self.delivered = []
        return await super().reset(task, seed)

    @tool
    def deliver(self, address: str) -> str:
        """Deliver at an address, as it is written on the list."""
        if address in self.delivered:
            raise ToolError(f"there was a delivery to {address} already")
        self.delivered.append(address)
        return f"delivered: {address}"

    async def verify(self, trajectory):
        right = sorted(self.delivered) == sorted(trajectory.task.secret["stops"])
        return Verdict(float(right), right)

    def oracle(self, task):
        calls = tuple(ToolCall("deliver", {"address": stop}) for stop in task.secret["stops"])
        rounds = [calls[place : place + 2] for place in range(0, len(calls), 2)]
        return [*(Action("", calls=pair) for pair in rounds), Action("", answer="done")]
