"""A journey to book over four pages: search, choice, traveller, confirmation."""

import random
from collections.abc import Mapping, Sequence
from datetime import timedelta
from html import escape
from typing import Any
from urllib.parse import urlencode

from turnwise_environments.tools.browser.sites import Request
from turnwise_environments.web import Look
from turnwise_environments.web_forms import html
from turnwise_environments.web_forms.kinds.base import Draft, FormSite, Kind, Way, Words
from turnwise_environments.web_forms.kinds.fields import FIRST_DAY, MONTHS

BEST = {"cheapest": 2, "first": 0, "quickest": 1}
"""Requests for the best train, and the column that decides each."""
PARTS = ("from", "to", "day")


class Booking(Kind):
    """Book the cheapest, first or quickest train of a day for a passenger, with a seat."""

    name = "booking"

    def make(self, words: Words, stream: random.Random) -> Draft:
        cities = sorted(stream.sample(words.cities, 4))
        start, end = stream.sample(cities, 2)
        day = FIRST_DAY + timedelta(days=stream.randrange(3 * 365))
        count = stream.randint(3, 5)
        leaves = sorted(stream.sample(range(6 * 60, 22 * 60, 5), count))
        minutes = stream.sample(range(50, 300, 5), count)
        prices = stream.sample(range(20, 200), count)
        trains = [list(row) for row in zip(leaves, minutes, prices, strict=True)]
        best = stream.choice(list(BEST))
        number = min(range(count), key=lambda at: trains[at][BEST[best]])
        first, last = stream.choice(words.first_names), stream.choice(words.surnames)
        seat = stream.choice(["window", "aisle"])
        prompt = (
            f"Book the {best} train from {start} to {end} on {day.day} {MONTHS[day.month - 1]} "
            f"{day.year} for {first} {last}, with a seat at the {seat}."
        )
        journey = {"from": start, "to": end, "day": day.isoformat(), "train": str(number)}
        wanted = {**journey, "first": first, "last": last, "seat": seat}
        return Draft(prompt, {"cities": cities, "trains": trains}, wanted)

    def get(self, site: FormSite, request: Request) -> tuple[str, str]:
        query = request.query
        if request.path == "/trains":
            return "Trains", _trains(site.data["trains"], query)
        if request.path == "/traveller":
            return "Traveller", _traveller(query)
        if request.path == "/confirm":
            rows = [[escape(name), escape(value)] for name, value in query.items()]
            kept = [html.hidden(name, value) for name, value in query.items()]
            table = html.table(["What", "Chosen"], rows)
            return "Confirm", table + html.form("/book", *kept, html.button("Book"))
        cities = site.data["cities"]
        return "Journey", html.form(
            "/trains",
            html.select("From", "from", cities),
            html.select("To", "to", cities),
            html.field("Day", "day", "date"),
            html.button("Search"),
            method="get",
        )

    def way(self, look: Look, draft: Draft) -> Way:
        wanted = draft.wanted
        yield "select", look("select", "From"), wanted["from"]
        yield "select", look("select", "To"), wanted["to"]
        yield "fill", look("date", "Day"), wanted["day"]
        yield "click", look("button", "Search")
        yield "click", look("link", "Choose", int(wanted["train"]))
        yield "fill", look("textbox", "First name"), wanted["first"]
        yield "fill", look("textbox", "Surname"), wanted["last"]
        yield "click", look("radio", wanted["seat"])
        yield "click", look("button", "Go on")
        yield "click", look("button", "Book")


def _trains(trains: Sequence[Sequence[int]], query: Mapping[str, str]) -> str:
    if not query.get("day") or query.get("from") == query.get("to"):
        return f"<p>Give a day and two cities.</p><p>{html.link('Search again', '/')}</p>"
    kept = {name: query.get(name, "") for name in PARTS}
    rows: list[list[Any]] = [
        [
            f"{leaves // 60:02d}:{leaves % 60:02d}",
            f"{minutes // 60} h {minutes % 60:02d}",
            str(price),
            html.link("Choose", f"/traveller?{urlencode({**kept, 'train': at})}"),
        ]
        for at, (leaves, minutes, price) in enumerate(trains)
    ]
    heading = f"<p>{escape(kept['from'])} to {escape(kept['to'])}, {kept['day']}</p>"
    return heading + html.table(["Leaves", "Takes", "Price", ""], rows)


def _traveller(query: Mapping[str, str]) -> str:
    kept = [html.hidden(name, query[name]) for name in (*PARTS, "train")]
    return html.form(
        "/confirm",
        *kept,
        html.field("First name", "first"),
        html.field("Surname", "last"),
        html.radios("Seat", "seat", ["window", "aisle"]),
        html.button("Go on"),
        method="get",
    )
