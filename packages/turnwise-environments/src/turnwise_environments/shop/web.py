"""The shop as web pages: the same products, requests and verdicts, acted on by element numbers.

A search, results over pages, a page for each product with its options as radio buttons, one with
its features, and a button to buy, which ends the episode.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any
from urllib.parse import urlencode

from turnwise.environments.base import EnvironmentSpec
from turnwise.ranges import Count
from turnwise.types import Action, Task, Trajectory, Verdict
from turnwise_environments.shop.environment import PARTS, Page, Shop
from turnwise_environments.shop.tasks import COUNT, PAGE, Product
from turnwise_environments.tools.browser.sites import Request, Response, page
from turnwise_environments.web import EpisodeSite, Intent, Look, Observations, Pages, WebEnvironment
from turnwise_environments.web_forms import html


class ShopSite:
    def __init__(self, shop: Shop, size: int) -> None:
        """`size` results are on a page."""
        self._shop, self._size = shop, size
        self.bought: Product | None = None
        self.options: dict[str, str] = {}

    @property
    def finished(self) -> bool:
        return self.bought is not None

    def handle(self, request: Request) -> Response:
        """The page of a path; buying is done once."""
        if request.method == "POST":
            self._buy(dict(request.form))
            return Response(location="/bought")
        if self.bought is not None:
            return Response(page("Bought", "<p>Thank you.</p>"))
        pages = {"/results": self._results, "/product": self._product, "/features": self._features}
        return pages.get(request.path, self._home)(request.query)

    def _buy(self, form: Mapping[str, str]) -> None:
        if self.bought is None:
            product = self._shop.product(form["id"])
            self.options = {name: form[name] for name in product.options if name in form}
            self.bought = product

    def _home(self, query: Mapping[str, str]) -> Response:
        return Response(page("Shop", _search(query.get("words", ""))))

    def _results(self, query: Mapping[str, str]) -> Response:
        words, number = query.get("words", ""), int(query.get("page", "0"))
        found = self._shop.found(words)
        begin = number * self._size
        rows = [
            [
                html.link(one.id, _path("product", words, number, one)),
                escape(one.title),
                f"${one.price:.2f}",
            ]
            for one in found[begin : begin + self._size]
        ]
        moves = [("< Prev", number - 1)] if number else []
        moves += [("Next >", number + 1)] if begin + self._size < len(found) else []
        links = [html.link(name, _path("results", words, at)) for name, at in moves]
        head = f"<p>Page {number + 1}, {len(found)} results</p>"
        table = html.table(["Product", "Title", "Price"], rows)
        nav = f"<nav>{' '.join([html.link('Back to Search', '/'), *links])}</nav>"
        return Response(page("Results", head + table + nav))

    def _product(self, query: Mapping[str, str]) -> Response:
        product, words, number = self._known(query)
        choices = [html.radios(name, name, values) for name, values in product.options.items()]
        buy = html.form("/buy", html.hidden("id", product.id), *choices, html.button("Buy Now"))
        links = [
            html.link("Back to Search", "/"),
            html.link("< Prev", _path("results", words, number)),
            html.link("Features", _path("features", words, number, product)),
        ]
        body = f"<p>Price: ${product.price:.2f}</p>{buy}<nav>{' '.join(links)}</nav>"
        return Response(page(product.title, body))

    def _features(self, query: Mapping[str, str]) -> Response:
        product, words, number = self._known(query)
        links = [
            html.link("Back to Search", "/"),
            html.link("< Prev", _path("product", words, number, product)),
        ]
        features = html.listed(map(escape, product.attributes))
        return Response(page(product.title, f"{features}<nav>{' '.join(links)}</nav>"))

    def _known(self, query: Mapping[str, str]) -> tuple[Product, str, int]:
        return self._shop.product(query["id"]), query["words"], int(query["page"])


class ShopWeb(WebEnvironment):
    """Tools: click, fill, select, press, back, scroll, read."""

    facts = EnvironmentSpec("shop_web", "1", parts=PARTS)
    host = "shop.test"

    def __init__(
        self,
        count: Count = COUNT,
        page: Page = PAGE,
        pages: Pages = "text",
        observations: Observations = "text",
    ) -> None:
        """`count` and `page` as in `Shop`. The agent is shown words, or images of the screen with
        the elements' numbers on it."""
        super().__init__(pages, observations)
        self._shop, self._size = Shop(count, page), page
        self.task_set = self._shop.task_set

    def site(self, data: Mapping[str, Any]) -> ShopSite:
        del data
        return ShopSite(self._shop, self._size)

    def judged(self, site: EpisodeSite, trajectory: Trajectory) -> Verdict:
        assert isinstance(site, ShopSite)
        return self._shop.judged(site.bought, site.options, trajectory.task)

    def oracle(self, task: Task) -> Sequence[Action]:
        product = self._shop.product(task.secret["product"])
        keywords = f"{product.title} {' '.join(task.secret['attributes'])}"
        place = self._shop.found(keywords).index(product)
        values = task.secret["options"].values()
        return self.scripted(task, lambda look: self._way(look, keywords, place, values))

    def random_actions(self, task: Task, stream: random.Random) -> Sequence[Action]:
        found = self._shop.found(task.prompt)[: self._size]
        product = stream.choice(found)
        values = [stream.choice(values) for values in product.options.values()]
        place = found.index(product)
        return self.scripted(task, lambda look: self._way(look, task.prompt, place, values))

    def _way(
        self, look: Look, keywords: str, place: int, values: Iterable[str]
    ) -> Iterator[Intent]:
        yield "fill", look("textbox", "Words"), keywords
        yield "click", look("button", "Search")
        for _ in range(place // self._size):
            yield "click", look("link", "Next >")
        yield "click", look("link", self._shop.found(keywords)[place].id)
        for value in values:
            yield "click", look("radio", value)
        yield "click", look("button", "Buy Now")


def _search(words: str) -> str:
    field = html.field("Words", "words", value=words)
    return html.form("/results", field, html.button("Search"), method="get")


def _path(name: str, words: str, number: int, product: Product | None = None) -> str:
    given = {"words": words, "page": number} | ({"id": product.id} if product else {})
    return f"/{name}?{urlencode(given)}"
