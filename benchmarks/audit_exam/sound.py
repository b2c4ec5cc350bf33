"""Environments that are right, and have a trait that often goes with one that is not."""

import random
import re
from dataclasses import replace
from math import isclose

from turnwise import (
    Action,
    Environment,
    Observation,
    Source,
    Step,
    Task,
    ToolCall,
    ToolError,
    Verdict,
    tool,
)
from turnwise.environments.base import EnvironmentSpec
from turnwise.environments.tasksets import TaskSet


def streams(kind, split, count=24):
    """Pairs of a task's id and the stream that its content is drawn from."""
    names = [f"{kind}-{split}-{number}" for number in range(count)]
    return [(name, random.Random(name)) for name in names]


class Divisible(Environment):
    """Say whether a number is divisible by another one: yes and no are as frequent."""

    def tasks(self, split):
        found = []
        for place, (name, stream) in enumerate(streams("divisible", split, 40)):
            by, yes = stream.choice([7, 9, 11, 13]), place % 2 == 0
            number = by * stream.randint(2000, 90_000) + (0 if yes else stream.randint(1, by - 1))
            prompt = f"Is {number} divisible by {by}? Answer yes or no."
            found.append(Task(name, prompt, {"label": "yes" if yes else "no"}))
        return found

    async def verify(self, trajectory):
        given = (trajectory.answer or "").strip().lower().rstrip(".")
        right = given == trajectory.task.secret["label"]
        return Verdict(float(right), right)

    def oracle(self, task):
        return [Action("", answer=task.secret["label"])]


ENDINGS = ["ach", "bek", "ded", "fen", "gar", "hus", "ith", "kell", "lon", "mar", "nau", "orn"]
RIVERS = [first + last for first in ("Al", "Bor", "Cer", "Dun") for last in ENDINGS]


class Almanac(Environment):
    """Look up the length of a river in an almanac."""

    def __init__(self):
        lengths = random.Random("almanac").sample(range(100, 999), len(RIVERS))
        self.lengths = dict(zip(RIVERS, lengths, strict=True))

    def tasks(self, split):
        chosen = RIVERS[::2] if split == "train" else RIVERS[1::2]
        ask = "How long is the river {}, in kilometres? Answer with the number."
        return [Task(name, ask.format(name), {"length": self.lengths[name]}) for name in chosen]

    @tool
    def search(self, name: str) -> str:
        """Search the almanac for a river."""
        found = [river for river in RIVERS if river.lower() == name.strip().lower()]
        if not found:
            return "No entry."
        return f"The {found[0]} rises in the hills and is {self.lengths[found[0]]} km long."

    async def verify(self, trajectory):
        given = re.sub(r"\s*km$", "", (trajectory.answer or "").strip())
        right = given == str(trajectory.task.secret["length"])
        return Verdict(float(right), right)

    def oracle(self, task):
        look = ToolCall("search", {"name": task.id})
        return [Action("", calls=(look,)), Action("", answer=str(task.secret["length"]))]


class Ranking(Environment):
    """Rank towns by the people that live there; the reward is the share of right places."""

    facts = EnvironmentSpec("ranking", "1", rewards="shares")
    towns = ("Arle", "Benk", "Coss", "Dray", "Elst", "Frome")

    def tasks(self, split):
        found = []
        for name, stream in streams("ranking", split):
            people = {town: stream.randint(500, 99_999) for town in stream.sample(self.towns, 5)}
            shown = ", ".join(f"{town} {count}" for town, count in people.items())
            prompt = f"People: {shown}. Rank the towns, largest first, with commas."
            ranked = sorted(people, key=people.get, reverse=True)
            found.append(Task(name, prompt, {"ranked": ranked}))
        return found

    async def verify(self, trajectory):
        given = [town.strip().lower() for town in (trajectory.answer or "").split(",")]
        ranked = [town.lower() for town in trajectory.task.secret["ranked"]]
        if len(given) != len(ranked):
            return Verdict(0.0, False)
        share = sum(map(str.__eq__, given, ranked)) / len(ranked)
        return Verdict(share, share == 1)

    def oracle(self, task):
        return [Action("", answer=", ".join(task.secret["ranked"]))]


class Sowing(Environment):
    """Sow a crop in the field that suits it: it comes up with a chance of 0.8, elsewhere of 0.1."""

    chances = {True: 0.8, False: 0.1}
    needs = {"beans": "loam", "rye": "sand", "rice": "clay", "mint": "peat"}

    def __init__(self, count: int = 60):
        made = {split: self.drawn(split, count) for split in ("train", "heldout")}
        self.task_set = TaskSet.of(made, {"noop": 0.0, "oracle": 0.8, "elsewhere": 0.1})

    def drawn(self, split, count):
        found = []
        for name, stream in streams("sowing", split, count):
            crop = stream.choice(sorted(self.needs))
            soils = stream.sample(sorted(self.needs.values()), 4)
            numbers = stream.sample(range(10, 99), 4)
            fields = dict(zip(map(str, numbers), soils, strict=True))
            shown = ", ".join(f"field {number} is {soil}" for number, soil in fields.items())
            likes = "Beans like loam, rye sand, rice clay, mint peat."
            prompt = f"Sow {crop}, once. Of your fields {shown}. {likes}"
            found.append(Task(name, prompt, data={"crop": crop, "fields": fields}))
        return found

    async def reset(self, task, seed):
        self.data, self.up, self.sown = task.data, False, False
        self.luck = random.Random(seed)
        return await super().reset(task, seed)

    @tool
    def sow(self, field: str) -> str:
        """Sow the crop in a field, once, by its number."""
        if self.sown or field not in self.data["fields"]:
            raise ToolError("you have sown" if self.sown else "there is no such field")
        self.sown = True
        fits = self.data["fields"][field] == self.needs[self.data["crop"]]
        self.up = self.luck.random() < self.chances[fits]
        return "It came up." if self.up else "Nothing came up."

    async def verify(self, trajectory):
        return Verdict(float(self.up), self.up)

    def oracle(self, task):
        soil = self.needs[task.data["crop"]]
        field = next(number for number, each in task.data["fields"].items() if each == soil)
        return [Action("", calls=(ToolCall("sow", {"field": field}),)), Action("", answer="done")]


class Largest(Environment):
    """Name the largest of nine numbers."""

    def tasks(self, split):
        found = []
        for name, stream in streams("largest", split):
            numbers = stream.sample(range(1000, 99_999), 9)
            prompt = (
                f"Which is the largest of {', '.join(map(str, numbers))}? Answer with it alone."
            )
            found.append(Task(name, prompt, {"largest": str(max(numbers))}))
        return found

    async def verify(self, trajectory):
        given = (trajectory.answer or "").strip().replace(",", "")
        right = given == trajectory.task.secret["largest"]
        return Verdict(float(right), right)


class Boiler(Environment):
    """Bring a boiler to its pressure; one in eight has it already, and is best left alone."""

    def __init__(self):
        made = {split: self.drawn(split) for split in ("train", "heldout")}
        self.task_set = TaskSet.of(made, {"noop": 0.125, "oracle": 1.0})

    def drawn(self, split):
        found = []
        for place, (name, stream) in enumerate(streams("boiler", split)):
            wanted, off = stream.randint(30, 90), stream.choice([-3, -2, -1, 1, 2, 3])
            now = wanted + (0 if place % 8 == 0 else off)
            prompt = f"A boiler is at {now} bar and should be at {wanted}. Then say done."
            found.append(Task(name, prompt, data={"now": now, "wanted": wanted}))
        return found

    async def reset(self, task, seed):
        self.bar = task.data["now"]
        return await super().reset(task, seed)

    @tool
    def turn(self, bars: int) -> str:
        """Turn the valve by 1 to 3 bars up, or -1 to -3 down."""
        if not -3 <= bars <= 3:
            raise ToolError("the valve turns by 3 bars at most")
        self.bar += bars
        return f"It is at {self.bar} bar."

    async def verify(self, trajectory):
        right = self.bar == trajectory.task.data["wanted"]
        return Verdict(float(right), right)

    def oracle(self, task):
        off = task.data["wanted"] - task.data["now"]
        turns = [Action("", calls=(ToolCall("turn", {"bars": off}),))] if off else []
        return [*turns, Action("", answer="done")]


class Product(Environment):
    """Multiply in the head: 1 for the right number, -1 for a wrong one, 0 for 'unknown'."""

    facts = EnvironmentSpec("product", "1", rewards="signed")

    def tasks(self, split):
        found = []
        for name, stream in streams("product", split):
            one, other = stream.randint(101, 999), stream.randint(101, 999)
            prompt = f"What is {one} times {other}? A wrong answer costs; you may say unknown."
            found.append(Task(name, prompt, {"product": one * other}))
        return found

    async def verify(self, trajectory):
        given = (trajectory.answer or "").strip().lower()
        if given in ("", "unknown"):
            return Verdict(0.0, False, detail="abstained")
        right = given == str(trajectory.task.secret["product"])
        return Verdict(1.0 if right else -1.0, right)


class HigherLower(Environment):
    """Guess a number from 1 to 31 in five guesses; each says on which side it lies."""

    def tasks(self, split):
        prompt = "I think of a number from 1 to 31. You have five guesses."
        numbers = range(1, 32, 2) if split == "train" else range(2, 32, 2)
        return [Task(f"number-{number}", prompt, data={"number": number}) for number in numbers]

    async def reset(self, task, seed):
        self.number, self.left, self.found = task.data["number"], 5, False
        return await super().reset(task, seed)

    @tool
    def guess(self, number: int) -> str:
        """Guess the number."""
        if self.found or self.left == 0:
            raise ToolError("the game is over")
        self.left -= 1
        self.found = number == self.number
        said = "right" if self.found else "too low" if number < self.number else "too high"
        return f"{number} is {said}; {self.left} guesses left."

    async def step(self, action):
        step = await super().step(action)
        return replace(step, done=step.done or self.found or self.left == 0)

    async def verify(self, trajectory):
        return Verdict(float(self.found), self.found)

    def oracle(self, task):
        return [Action("", calls=(ToolCall("guess", {"number": task.data["number"]}),))]


class Rule(Environment):
    """Find the two numbers of a rule y = a x + b by asking for values."""

    def __init__(self):
        pairs = [(a, b) for a in range(2, 12) for b in range(3, 90, 7)]
        random.Random("rules").shuffle(pairs)
        self.pairs = {f"M{number}": pair for number, pair in enumerate(pairs[:80])}

    def tasks(self, split):
        chosen = list(self.pairs)[:40] if split == "train" else list(self.pairs)[40:]
        ask = "Machine {} computes y = a x + b. Find a and b, whole numbers; answer as 'a, b'."
        return [Task(name, ask.format(name), {"pair": self.pairs[name]}) for name in chosen]

    async def reset(self, task, seed):
        self.pair = self.pairs[task.id]
        return await super().reset(task, seed)

    @tool
    def compute(self, x: int) -> str:
        """Have the machine compute y for an x from 1 to 9."""
        if not 1 <= x <= 9:
            raise ToolError("x is from 1 to 9")
        return f"x = {x}, y = {self.pair[0] * x + self.pair[1]}"

    async def verify(self, trajectory):
        given = re.fullmatch(r"\s*(\d{1,9})\s*,\s*(\d{1,9})\s*", trajectory.answer or "")
        found = given and tuple(map(int, given.groups()))
        right = found == trajectory.task.secret["pair"]
        return Verdict(float(right), right)

    def oracle(self, task):
        asks = [Action("", calls=(ToolCall("compute", {"x": x}),)) for x in (1, 2)]
        return [*asks, Action("", answer="{}, {}".format(*task.secret["pair"]))]


class Estimate(Environment):
    """Estimate a product within a tenth; products lie between a thousand and ten billions."""

    def tasks(self, split):
        found = []
        for name, stream in streams("estimate", split):
            one, other = (round(10 ** stream.uniform(1.5, 5)) for _ in range(2))
            prompt = f"About how much is {one} times {other}? A number within 10% is right."
            found.append(Task(name, prompt, {"product": one * other}))
        return found

    async def verify(self, trajectory):
        given = re.fullmatch(r"\s*(\d[\d,]{0,15})\s*", trajectory.answer or "")
        wanted = trajectory.task.secret["product"]
        right = given is not None and isclose(int(given[1].replace(",", "")), wanted, rel_tol=0.1)
        return Verdict(float(right), right)


class Shelf(Environment):
    """Put the wanted books on a shelf; a step is rewarded by how much nearer the shelf is to it."""

    facts = EnvironmentSpec("shelf", "1", turn_rewards=True)
    books = ("atlas", "bible", "comic", "diary", "essay", "fable", "guide", "hymnal", "index")

    def tasks(self, split):
        every = [(a, b, c) for a in self.books for b in self.books for c in self.books if a < b < c]
        random.Random("shelf").shuffle(every)
        chosen = every[:40] if split == "train" else every[40:80]
        ask = "Put {}, {} and {} on the empty shelf, nothing else; then say done."
        return [
            Task(" ".join(three), ask.format(*three), data={"wanted": three}) for three in chosen
        ]

    async def reset(self, task, seed):
        self.wanted, self.shelf = set(task.data["wanted"]), set()
        return Observation(task.prompt, Source.USER)

    @tool
    def put(self, book: str) -> str:
        """Put a book on the shelf."""
        if book not in self.books or book in self.shelf:
            raise ToolError(f"{book!r} is not at hand")
        self.shelf.add(book)
        return f"On the shelf: {', '.join(sorted(self.shelf))}."

    @tool
    def take(self, book: str) -> str:
        """Take a book off the shelf."""
        if book not in self.shelf:
            raise ToolError(f"{book!r} is not on the shelf")
        self.shelf.remove(book)
        return f"On the shelf: {', '.join(sorted(self.shelf)) or 'nothing'}."

    def distance(self):
        return len(self.wanted ^ self.shelf)

    async def step(self, action) -> Step:
        before = self.distance()
        step = await super().step(action)
        return replace(step, reward=0.1 * (before - self.distance()))

    async def verify(self, trajectory):
        right = self.distance() == 0
        return Verdict(float(right), right)

    def oracle(self, task):
        puts = [ToolCall("put", {"book": book}) for book in task.data["wanted"]]
        return [*(Action("", calls=(put,)) for put in puts), Action("", answer="done")]


class Change(Environment):
    """Pay a sum with exactly so many coins; there are several ways, and each is right."""

    coins = (1, 2, 5, 10, 20, 50)

    def tasks(self, split):
        found = []
        for name, stream in streams("change", split):
            paid = [stream.choice(self.coins) for _ in range(stream.randint(5, 8))]
            prompt = (
                f"Pay {sum(paid)} cents with exactly {len(paid)} coins of 1, 2, 5, 10, 20 or 50. "
                "Answer with the coins and commas between."
            )
            found.append(Task(name, prompt, {"sum": sum(paid), "count": len(paid)}))
        return found

    async def verify(self, trajectory):
        given = [one.strip() for one in (trajectory.answer or "").split(",")]
        secret = trajectory.task.secret
        if len(given) != secret["count"] or not all(one in map(str, self.coins) for one in given):
            return Verdict(0.0, False)
        right = sum(map(int, given)) == secret["sum"]
        return Verdict(float(right), right)
