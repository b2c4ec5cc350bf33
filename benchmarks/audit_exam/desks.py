"""Tasks that are done with tools, and judged by the state that is left."""

import json
import random
from dataclasses import replace
from itertools import combinations

from turnwise import (
    Action,
    Environment,
    Observation,
    Source,
    Task,
    ToolCall,
    ToolError,
    Verdict,
    tool,
)
from turnwise.environments.base import EnvironmentSpec


def streams(kind, split, count=24):
    """Pairs of a task's id and the stream that its content is drawn from."""
    names = [f"{kind}-{split}-{number}" for number in range(count)]
    return [(name, random.Random(name)) for name in names]


ARTICLES = [
    f"{thing} {size}" for thing in ("bolt", "nut", "hinge", "bracket") for size in range(12)
]


class Warehouse(Environment):
    """Ship as many pieces of an article as leave a given number."""

    def __init__(self):
        self.stock = {article: 40 + 3 * n for n, article in enumerate(ARTICLES)}

    def tasks(self, split):
        chosen = ARTICLES[::2] if split == "train" else ARTICLES[1::2]
        drawn = zip(chosen, streams("warehouse", split), strict=True)
        return [self.drawn(article, stream) for article, (_, stream) in drawn]

    def drawn(self, article, stream):
        left, full = stream.randint(5, 30), 40 + 3 * ARTICLES.index(article)
        prompt = f"Ship pieces of '{article}' until {left} are left, then say done."
        return Task(article, prompt, {"ship": full - left, "left": left})

    @tool
    def count(self, article: str) -> str:
        """Count the pieces of an article."""
        return str(self.stock[self.known(article)])

    @tool
    def ship(self, article: str, pieces: int) -> str:
        """Ship so many pieces of an article."""
        if not 0 < pieces <= self.stock[self.known(article)]:
            raise ToolError(f"cannot ship {pieces}")
        self.stock[article] -= pieces
        return f"{pieces} shipped"

    def known(self, article):
        if article not in self.stock:
            raise ToolError(f"there is no article {article!r}")
        return article

    async def verify(self, trajectory):
        right = self.stock[trajectory.task.id] == trajectory.task.secret["left"]
        return Verdict(float(right), right)

    def oracle(self, task):
        ship = ToolCall("ship", {"article": task.id, "pieces": task.secret["ship"]})
        return [Action("", calls=(ship,)), Action("", answer="done")]


class Refunds(Environment):
    """Serve a customer by the shop's rule: refunds for unopened goods within thirty days."""

    def tasks(self, split):
        drawn = enumerate(streams("refunds", split))
        return [self.drawn(name, stream, place % 5 < 2) for place, (name, stream) in drawn]

    def drawn(self, name, stream, declined):
        number = str(stream.randint(10_000, 99_999))
        late = declined and stream.random() < 0.5
        days = stream.randint(31, 60) if late else stream.randint(1, 30)
        order = {"days": days, "opened": declined and not late}
        prompt = f"I want my money back for order {number}."
        rule = "Refund unopened goods bought at most 30 days ago; decline all other requests.\n"
        due = [] if declined else [number]
        return Task(
            name, f"{rule}Customer: {prompt}", {"refunded": due}, {"orders": {number: order}}
        )

    async def reset(self, task, seed):
        self.orders, self.refunded = task.data["orders"], []
        return await super().reset(task, seed)

    @tool
    def look_up(self, order: str) -> str:
        """Show an order: days since it was bought, and whether the goods are opened."""
        return json.dumps(self.found(order))

    @tool
    def refund(self, order: str) -> str:
        """Pay an order's price back."""
        self.found(order)
        self.refunded.append(order)
        return f"order {order} is refunded"

    def found(self, order):
        if order not in self.orders:
            raise ToolError(f"there is no order {order}")
        return self.orders[order]

    async def verify(self, trajectory):
        right = self.refunded == trajectory.task.secret["refunded"]
        return Verdict(float(right), right)


PANTRY = [
    "basil",
    "egg",
    "flour",
    "garlic",
    "honey",
    "lemon",
    "lime",
    "milk",
    "mustard",
    "oats",
    "oil",
    "onion",
    "tahini",
    "tomato",
]
RECIPES = random.Random("recipes").sample(list(combinations(PANTRY, 3)), 48)


class Kitchen(Environment):
    """Put three ingredients into a bowl; each right one is rewarded when it goes in."""

    facts = EnvironmentSpec("kitchen", "1", turn_rewards=True)

    def tasks(self, split):
        chosen = RECIPES[:24] if split == "train" else RECIPES[24:]
        ask = "Put {}, {} and {} into the bowl, nothing else; then say done."
        return [
            Task("-".join(recipe), ask.format(*recipe), data={"recipe": recipe})
            for recipe in chosen
        ]

    async def reset(self, task, seed):
        self.recipe, self.bowl, self.earned = task.data["recipe"], set(), 0.0
        return await super().reset(task, seed)

    @tool
    def add(self, ingredient: str) -> str:
        """Put an ingredient into the bowl."""
        if ingredient not in PANTRY:
            raise ToolError(f"there is no {ingredient!r}; there is {', '.join(PANTRY)}")
        self.bowl.add(ingredient)
        self.earned += 0.25 if ingredient in self.recipe else -0.25
        return f"In the bowl: {', '.join(sorted(self.bowl))}."

    async def step(self, action):
        before = self.earned
        return replace(await super().step(action), reward=self.earned - before)

    async def verify(self, trajectory):
        right = self.bowl == set(self.recipe)
        return Verdict(float(right), right)

    def oracle(self, task):
        adds = [ToolCall("add", {"ingredient": each}) for each in task.data["recipe"]]
        return [*(Action("", calls=(call,)) for call in adds), Action("", answer="done")]


GOODS = ("amber", "cloth", "dates", "ivory", "salt")


class Bazaar(Environment):
    """Earn coins: one good is cheaper in one quarter than in the other."""

    def tasks(self, split):
        return [self.drawn(name, stream) for name, stream in streams("bazaar", split)]

    def drawn(self, name, stream):
        east = {good: stream.randint(8, 20) for good in GOODS}
        bargain = stream.choice(GOODS)
        west = {good: price + (6 if good == bargain else -2) for good, price in east.items()}
        coins = 10 * stream.randint(6, 12)
        goal = coins + 6 * (coins // east[bargain])
        prompt = (
            f"You have {coins} coins. Trade in the quarters east and west until you have {goal}."
        )
        return Task(
            name,
            prompt,
            data={"prices": {"east": east, "west": west}, "coins": coins, "goal": goal},
        )

    async def reset(self, task, seed):
        self.prices, self.coins = task.data["prices"], task.data["coins"]
        self.goods = dict.fromkeys(GOODS, 0)
        return await super().reset(task, seed)

    @tool
    def look(self, quarter: str) -> str:
        """Ask for the prices in a quarter."""
        return json.dumps(self.listed(quarter))

    @tool
    def buy(self, quarter: str, good: str, pieces: int) -> str:
        """Buy some pieces of a good."""
        cost = self.priced(quarter, good) * pieces
        if cost > self.coins:
            raise ToolError(f"that costs {cost}, and you have {self.coins}")
        self.coins, self.goods[good] = self.coins - cost, self.goods[good] + pieces
        return f"You have {self.coins} coins and {self.goods[good]} {good}."

    @tool
    def sell(self, quarter: str, good: str, pieces: int) -> str:
        """Sell some pieces of a good that you have."""
        price = self.priced(quarter, good)
        if not 0 < pieces <= self.goods[good]:
            raise ToolError(f"you have {self.goods[good]} {good}")
        self.coins, self.goods[good] = self.coins + price * pieces, self.goods[good] - pieces
        return f"You have {self.coins} coins and {self.goods[good]} {good}."

    def listed(self, quarter):
        if quarter not in self.prices:
            raise ToolError("the quarters are east and west")
        return self.prices[quarter]

    def priced(self, quarter, good):
        if good not in GOODS:
            raise ToolError(f"goods: {', '.join(GOODS)}")
        return self.listed(quarter)[good]

    async def verify(self, trajectory):
        right = self.coins >= trajectory.task.data["goal"]
        return Verdict(float(right), right)


class Settings(Environment):
    """Correct a file of settings, and have the checks run."""

    def tasks(self, split):
        return [self.drawn(name, stream) for name, stream in streams("settings", split)]

    def drawn(self, name, stream):
        wanted = {
            "port": stream.randint(2000, 9000),
            "workers": stream.randint(2, 16),
            "timeout": stream.randint(5, 120),
        }
        told = ", ".join(f"{key} {value}" for key, value in wanted.items())
        prompt = f"settings.ini should say {told}. Correct it, run the checks, then say done."
        return Task(
            name, prompt, {"settings": wanted}, {"wanted": wanted, "port": stream.randint(1, 99)}
        )

    async def reset(self, task, seed):
        self.wanted = task.data["wanted"]
        self.files = {"settings.ini": f"port = {task.data['port']}\nworkers = 1\n"}
        return await super().reset(task, seed)

    @tool
    def read(self, path: str) -> str:
        """Read a file."""
        if path not in self.files:
            raise ToolError(f"no file {path}; files: {', '.join(self.files)}")
        return self.files[path]

    @tool
    def write(self, path: str, text: str) -> str:
        """Write a file."""
        self.files[path] = text
        return f"{path}: {len(text)} characters"

    @tool
    def check(self) -> str:
        """Run the checks, which write report.txt."""
        lines = (line.partition("=") for line in self.files["settings.ini"].splitlines())
        found = {key.strip(): value.strip() for key, _, value in lines}
        wrong = [key for key, value in self.wanted.items() if found.get(key) != str(value)]
        self.files["report.txt"] = f"FAIL {' '.join(wrong)}" if wrong else "PASS"
        return self.files["report.txt"]

    async def verify(self, trajectory):
        passed = self.files.get("report.txt", "").strip() == "PASS"
        return Verdict(float(passed), passed)

    def oracle(self, task):
        lines = [f"{key} = {value}" for key, value in task.secret["settings"].items()]
        write = ToolCall("write", {"path": "settings.ini", "text": "\n".join(lines)})
        check = ToolCall("check", {})
        return [Action("", calls=(write,)), Action("", calls=(check,)), Action("", answer="done")]


class Report(Environment):
    """Add up a table in a folder, a line for each kind, into a file."""

    def tasks(self, split):
        return [self.drawn(name, stream) for name, stream in streams("report", split)]

    def drawn(self, name, stream):
        kinds = stream.sample(["oak", "pine", "beech", "larch"], 3)
        rows = [(stream.choice(kinds), stream.randint(1, 40)) for _ in range(12)]
        sums = {kind: sum(count for one, count in rows if one == kind) for kind in sorted(kinds)}
        report = "\n".join(f"{kind} {total}" for kind, total in sums.items())
        table = "\n".join(f"{kind},{count}" for kind, count in [("kind", "count"), *rows])
        files = {
            "trees.csv": table,
            "kinds.txt": "\n".join(sorted(kinds)),
            "check/sums.txt": report,
        }
        prompt = (
            "Write report.txt: for each kind of kinds.txt a line with it and its sum in trees.csv."
        )
        return Task(name, prompt, {"report": report}, {"files": files, "table": table})

    async def reset(self, task, seed):
        self.files = dict(task.data["files"])
        prompt = f"{task.prompt}\n{task.data['table']}"
        return Observation(prompt, Source.USER)

    @tool
    def files_here(self) -> str:
        """List the files of the folder."""
        return "\n".join(sorted(self.files))

    @tool
    def read(self, path: str) -> str:
        """Read a file."""
        if path not in self.files:
            raise ToolError(f"there is no file {path}")
        return self.files[path]

    @tool
    def write(self, path: str, text: str) -> str:
        """Write a file."""
        self.files[path] = text
        return f"{path} is written"

    async def verify(self, trajectory):
        written = self.files.get("report.txt", "").strip()
        right = written == trajectory.task.secret["report"]
        return Verdict(float(right), right)

    def oracle(self, task):
        write = ToolCall("write", {"path": "report.txt", "text": task.secret["report"]})
        return [Action("", calls=(write,)), Action("", answer="done")]


class Padlock(Environment):
    """Open a padlock whose code follows from three hints."""

    def tasks(self, split):
        return [self.drawn(name, stream) for name, stream in streams("padlock", split)]

    def drawn(self, name, stream):
        high, low = stream.randint(21, 98), stream.randint(11, 98)
        hints = f"The first two are {high + low} less {low}, the last two {high * low} by {high}."
        prompt = f"A padlock has four digits. {hints} Open it."
        return Task(name, prompt, data={"code": f"{high}{low}"})

    async def reset(self, task, seed):
        self.code, self.open = task.data["code"], False
        return await super().reset(task, seed)

    @tool
    def dial(self, code: str) -> str:
        """Dial four digits."""
        if len(code) != 4 or not code.isdecimal():
            raise ToolError("dial four digits")
        if code != self.code:
            raise ToolError(f"code does not match: {code} != {self.code}")
        self.open = True
        return "It is open."

    async def verify(self, trajectory):
        return Verdict(float(self.open), self.open)
