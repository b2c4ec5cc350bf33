"""Questions that are drawn, or come from tables."""

import datetime
import random

from turnwise import Action, Environment, Task, ToolCall, ToolError, Verdict, tool


def streams(kind, split, count=24):
    """Pairs of a task's id and the stream that its content is drawn from."""
    names = [f"{kind}-{split}-{number}" for number in range(count)]
    return [(name, random.Random(name)) for name in names]


class Discount(Environment):
    """Choose the right one of four prices."""

    def tasks(self, split):
        return [self.drawn(name, stream) for name, stream in streams("discount", split)]

    def drawn(self, name, stream):
        price, percent = 20 * stream.randint(5, 60), stream.choice([5, 10, 15, 20, 25, 30, 35, 40])
        right = price * (100 - percent) // 100
        options = [right, *stream.sample(sorted({right - 20, right - 5, right + 5, right + 10}), 3)]
        stream.shuffle(options[:])
        letters = dict(zip("ABCD", options, strict=True))
        shown = "  ".join(f"{letter}) {option}" for letter, option in letters.items())
        prompt = f"A coat costs {price}, less {percent}%. What is to be paid? {shown}"
        key = next(letter for letter, option in letters.items() if option == right)
        return Task(name, f"{prompt}\nAnswer with a letter.", {"letter": key})

    async def verify(self, trajectory):
        right = (trajectory.answer or "").strip().upper() == trajectory.task.secret["letter"]
        return Verdict(float(right), right)


class Hours(Environment):
    """Add up a sheet of working hours, in halves, that come to a whole number."""

    def tasks(self, split):
        return [self.drawn(name, stream) for name, stream in streams("hours", split)]

    def drawn(self, name, stream):
        hours = [stream.randint(4, 20) / 2 for _ in range(4)]
        hours.append(stream.randint(5, 9) + sum(hours) % 1)
        days = zip(("Mon", "Tue", "Wed", "Thu", "Fri"), hours, strict=True)
        sheet = ", ".join(f"{day} {count}" for day, count in days)
        prompt = f"Hours worked: {sheet}. How many hours in all? Answer with a whole number alone."
        return Task(name, prompt, {"total": str(sum(hours))})

    async def verify(self, trajectory):
        right = (trajectory.answer or "").strip() == trajectory.task.secret["total"]
        return Verdict(float(right), right, detail=f"{trajectory.answer}")

    def oracle(self, task):
        return [Action("", answer=task.secret["total"])]


class Weekday(Environment):
    """Name the day of the week of a date."""

    seeds = {"train": 100, "heldout": 110}

    def __init__(self, count: int = 24):
        self.count = count

    def tasks(self, split):
        found = []
        for number in range(self.count):
            stream = random.Random(self.seeds[split] + number)
            day = datetime.date.fromordinal(stream.randint(693_600, 737_000))
            prompt = f"Which day of the week was {day:%Y-%m-%d}? Answer with its English name."
            found.append(Task(f"{split}-{number}", prompt, {"day": f"{day:%A}"}))
        return found

    async def verify(self, trajectory):
        right = (trajectory.answer or "").strip().lower() == trajectory.task.secret["day"].lower()
        return Verdict(float(right), right)

    def oracle(self, task):
        return [Action("", answer=task.secret["day"])]


FIRST = ["Ada", "Bo", "Cy", "Dee", "Eli", "Fay", "Gus", "Hal", "Ivy", "Jo", "Kit", "Lou"]
LAST = ["Abel", "Brandt", "Conti", "Dube"]
FLOORS = ("ground floor", "first floor", "second floor", "third floor", "attic")


class Seating(Environment):
    """Look up the floor on which a colleague sits."""

    def __init__(self):
        people = [f"{first} {last}" for last in LAST for first in FIRST]
        self.floors = {name: FLOORS[hash(name) % len(FLOORS)] for name in people}

    def tasks(self, split):
        chosen = [name for n, name in enumerate(self.floors) if (n % 2 == 0) == (split == "train")]
        ask = "On which floor does {} sit? Answer as the directory says it."
        return [Task(name, ask.format(name), {"floor": self.floors[name]}) for name in chosen]

    @tool
    def directory(self, name: str) -> str:
        """Look a colleague up by first and last name."""
        if name not in self.floors:
            raise ToolError(f"no colleague is called {name!r}")
        return f"{name}: {self.floors[name]}"

    async def verify(self, trajectory):
        right = (trajectory.answer or "").strip().lower() == trajectory.task.secret["floor"]
        return Verdict(float(right), right)

    def oracle(self, task):
        look = ToolCall("directory", {"name": task.id})
        return [Action("", calls=(look,)), Action("", answer=task.secret["floor"])]
