"""The shop environment, in WebShop's style (arXiv 2207.01206), as text: search, look, choose, buy.

Two tools, `search` and `click`. Buying ends the episode. Success is a purchase of what was asked
for, to the letter; WebShop's formula, which is looser, can be the reward. Products, words and pages
are made up: the catalogue is not WebShop's, and a page is a few lines.
"""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated

from turnwise.environments.base import Environment, EnvironmentSpec
from turnwise.environments.turn_parts import share
from turnwise.errors import ToolError
from turnwise.ranges import Count, Range
from turnwise.tools.bm25 import BM25Index
from turnwise.tools.tool import consequential, tool
from turnwise.types import Action, Observation, Step, Task, ToolCall, Trajectory, Verdict
from turnwise_environments.progress import changes_of, progress_part, replayed
from turnwise_environments.rewards.shopping import (
    NOTHING_BOUGHT,
    Bought,
    Wanted,
    is_as_wanted,
    share_as_wanted,
    webshop_reward,
)
from turnwise_environments.shop.tasks import (
    COUNT,
    PAGE,
    RANDOM_SCORE,
    Product,
    catalogue,
    made_tasks,
)

MOST_RESULTS = 50
Page = Annotated[int, Range(1, MOST_RESULTS)]
PARTS = {
    "webshop": share("WebShop's reward"),
    "type": share("how near the kind is, as WebShop has it"),
    "attributes": share("wanted attributes that what was bought has"),
    "options": share("wanted options that were chosen"),
    "price": share("whether the price is not too high"),
}
PROGRESS = progress_part("change of the share of the request that the product on the page meets")
BACK, NEXT, PREVIOUS, FEATURES, BUY = "Back to Search", "Next >", "< Prev", "Features", "Buy Now"


@dataclass
class Play:
    """The state of one episode, all of it."""

    results: list[int] = field(default_factory=list)
    """Places of products in the catalogue, as the last search ordered them."""
    page: int = 0
    product: int | None = None
    """The one that is looked at."""
    features: bool = False
    options: dict[str, str] = field(default_factory=dict)
    bought: bool = False


class Shop(Environment):
    """Tools: `search` and `click`."""

    facts = EnvironmentSpec("shop", "1", parts={**PARTS, "progress": PROGRESS})
    _play: Play

    def __init__(self, count: Count = COUNT, page: Page = PAGE) -> None:
        """`count` tasks in each split; `page` results on a page."""
        self._page = page
        self._products = catalogue()
        self._places = {product.id.lower(): place for place, product in enumerate(self._products)}
        self._index = BM25Index(
            [product.text for product in self._products],
            [product.kind for product in self._products],
        )
        self.task_set = made_tasks(count, self._products)
        if page == PAGE and count == COUNT:
            scores = {**self.task_set.reference_scores, "random": RANDOM_SCORE}
            self.task_set = replace(self.task_set, reference_scores=scores)

    async def reset(self, task: Task, seed: int) -> Observation:
        self._play = Play()
        return await super().reset(task, seed)

    @tool
    async def search(self, keywords: str) -> str:
        """Search the shop, where the page has a search."""
        if self._play.product is not None or self._play.results:
            raise ToolError(f"there is no search on this page: click {BACK}")
        if not keywords.strip():
            raise ToolError("the search is empty: write some words")
        self._play.results = self._index.search(keywords, MOST_RESULTS)
        if not self._play.results:
            return "No results. [Search]"
        return self._shown()

    @tool
    @consequential("buy")
    async def click(self, target: str) -> str:
        """Click what the page has in square brackets, by its text: a product, an option, a
        button."""
        wanted = target.strip().strip("[]").strip().lower()
        known = {name.lower(): name for name in self._clickable()}
        if wanted not in known:
            raise ToolError(f"there is no {target!r} on this page")
        self._clicked(known[wanted])
        return "Bought. Thank you." if self._play.bought else self._shown()

    async def step(self, action: Action) -> Step:
        """Buying ends the episode, and later calls are not run."""
        if action.answer is not None:
            return Step(done=True)
        results = [await self._run(call) for call in action.calls if not self._play.bought]
        text = "\n".join(result.content for result in results)
        return Step(Observation(text), tuple(results), done=self._play.bought)

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """Success when something was bought that has all that was wanted. A turn's `progress` is by
        how much more of the request the product on the page meets; what is not bought is lost with
        the last turn."""
        play, wanted = self._play, self._wanted(trajectory.task)
        product = self._products[play.product] if play.bought and play.product is not None else None
        verdict = self.judged(product, play.options, trajectory.task)
        twin = self.fresh()
        twin._play = Play()
        shares = await replayed(twin, trajectory, lambda: twin._share_as_wanted(wanted))
        if shares and product is None:
            shares[-1] = 0.0
        return replace(verdict, turn_parts={"progress": changes_of(shares)})

    def judged(self, product: Product | None, options: Mapping[str, str], task: Task) -> Verdict:
        """The verdict on a purchase; `product` is None without one."""
        if product is None:
            return Verdict(0.0, False, {"webshop": 0.0, **NOTHING_BOUGHT}, "nothing was bought")
        purchase, wanted = bought(product, options), self._wanted(task)
        score, parts = webshop_reward(purchase, wanted)
        success = is_as_wanted(purchase, wanted)
        return Verdict(float(success), success, {"webshop": score, **parts}, f"bought {product.id}")

    def product(self, name: str) -> Product:
        """Find a product by its id, in any case. Raises KeyError for an unknown one."""
        return self._products[self._places[name.lower()]]

    def found(self, keywords: str) -> list[Product]:
        return [self._products[place] for place in self._index.search(keywords, MOST_RESULTS)]

    def oracle(self, task: Task) -> Sequence[Action]:
        secret = task.secret
        place = self._places[secret["product"].lower()]
        product = self._products[place]
        keywords = f"{product.title} {' '.join(secret['attributes'])}"
        found = self._index.search(keywords, MOST_RESULTS)
        pages = [NEXT] * (found.index(place) // self._page)
        clicks = [*pages, product.id, *secret["options"].values(), BUY]
        first = Action("", "search", (ToolCall("search", {"keywords": keywords}),))
        return [first, *(Action("", "go on", (_click(target),)) for target in clicks)]

    def random_actions(self, task: Task, stream: random.Random) -> Sequence[Action]:
        """A search for the request's words, one of the first results, random options, and the
        purchase."""
        search = Action("", calls=(ToolCall("search", {"keywords": task.prompt}),))
        product = self._products[stream.choice(self._index.search(task.prompt, self._page))]
        values = [stream.choice(values) for values in product.options.values()]
        clicks = [product.id, *values, BUY]
        return [search, *(Action("", calls=(_click(target),)) for target in clicks)]

    def snapshot(self) -> bytes:
        return json.dumps(asdict(self._play), sort_keys=True).encode()

    def restore(self, state: bytes) -> None:
        self._play = Play(**json.loads(state))

    def _share_as_wanted(self, wanted: Wanted) -> float:
        play = self._play
        if play.product is None:
            return 0.0
        return share_as_wanted(bought(self._products[play.product], play.options), wanted)

    def _wanted(self, task: Task) -> Wanted:
        secret = task.secret
        kind = self.product(secret["product"]).about
        asked = tuple(secret["attributes"]), secret["options"], secret["highest_price"]
        return Wanted(*kind, *asked)

    def _clickable(self) -> list[str]:
        play = self._play
        if play.product is not None:
            product = self._products[play.product]
            values = [value for values in product.options.values() for value in values]
            return [BACK, PREVIOUS, *([] if play.features else [*values, FEATURES, BUY])]
        if not play.results:
            return []
        begin = play.page * self._page
        shown = [self._products[place].id for place in play.results[begin : begin + self._page]]
        more = [NEXT] if begin + self._page < len(play.results) else []
        return [BACK, *([PREVIOUS] if play.page else []), *more, *shown]

    def _clicked(self, target: str) -> None:
        play = self._play
        if target == BACK:
            self._play = Play()
        elif target == NEXT:
            play.page += 1
        elif target == PREVIOUS and play.features:
            play.features = False
        elif target == PREVIOUS and play.product is not None:
            play.product, play.options = None, {}
        elif target == PREVIOUS:
            play.page -= 1
        elif target == FEATURES:
            play.features = True
        elif target == BUY:
            play.bought = True
        elif play.product is None:
            play.product = self._places[target.lower()]
        else:
            options = self._products[play.product].options
            (name,) = (name for name, values in options.items() if target in values)
            play.options = {**play.options, name: target}

    def _shown(self) -> str:
        play = self._play
        if play.product is None:
            if not play.results:
                return "[Search]"
            begin = play.page * self._page
            lines = [f"Page {play.page + 1}, {len(play.results)} results"]
            for place in play.results[begin : begin + self._page]:
                product = self._products[place]
                lines.append(f"[{product.id}] {product.title} ${product.price:.2f}")
            buttons = [name for name in self._clickable() if name.lower() not in self._places]
            return "\n".join([*lines, " ".join(f"[{name}]" for name in buttons)])
        product = self._products[play.product]
        if play.features:
            return f"{product.features}\n[{BACK}] [{PREVIOUS}]"
        lines = [f"{product.title} ${product.price:.2f}"]
        for name, values in product.options.items():
            shown = " ".join(f"[{value}]" for value in values)
            chosen = f" (chosen: {play.options[name]})" if name in play.options else ""
            lines.append(f"{name}: {shown}{chosen}")
        return "\n".join([*lines, f"[{BACK}] [{PREVIOUS}] [{FEATURES}] [{BUY}]"])


def bought(product: Product, options: Mapping[str, str]) -> Bought:
    texts = (product.title, product.features)
    return Bought(*product.about, product.attributes, texts, product.price, dict(options))


def _click(target: str) -> ToolCall:
    return ToolCall("click", {"target": target})
