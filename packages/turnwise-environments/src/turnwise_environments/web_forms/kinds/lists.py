"""Finding something: in menus, in a table, in a list over several pages."""

import random
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from turnwise_environments.tools.browser.sites import Request
from turnwise_environments.web import Look
from turnwise_environments.web_forms import html
from turnwise_environments.web_forms.kinds.base import COLOURS, Draft, FormSite, Kind, Way, Words

PAGE = 6
"""Things on one page of a list."""


class Menu(Kind):
    """Press an entry of a menu inside a menu."""

    name = "menu"

    def make(self, words: Words, stream: random.Random) -> Draft:
        outer = stream.sample(words.topics, stream.randint(2, 3))
        inner = stream.sample(words.goods, 4)
        entries = stream.sample(words.verbs, 6)
        menus = {
            menu: {
                part: stream.sample(entries, 3)
                for part in stream.sample(inner, stream.randint(2, 3))
            }
            for menu in outer
        }
        menu = stream.choice(outer)
        part = stream.choice(list(menus[menu]))
        entry = stream.choice(menus[menu][part])
        path = f"{menu.title()} > {part.title()} > {entry}"
        return Draft(f"Choose {path} in the menu.", {"menus": menus}, {"chosen": path})

    def get(self, site: FormSite, request: Request) -> tuple[str, str]:
        body = ""
        for menu, parts in site.data["menus"].items():
            inside = ""
            for part, entries in parts.items():
                path = f"{menu.title()} > {part.title()} > "
                buttons = [html.button(entry, "chosen", path + entry) for entry in entries]
                inside += html.section(part.title(), "".join(buttons))
            body += html.section(menu.title(), inside)
        return "Menu", html.form("/choose", body)

    def way(self, look: Look, draft: Draft) -> Way:
        menu, part, _ = draft.wanted["chosen"].split(" > ")
        yield "click", look("section", menu)
        yield "click", look("section", part)
        yield "click", look.valued(draft.wanted["chosen"])


class Rows(Kind):
    """Press a button of one row of a table, found by two columns."""

    name = "rows"

    def make(self, words: Words, stream: random.Random) -> Draft:
        people, cities = stream.sample(words.first_names, 4), stream.sample(words.cities, 3)
        pairs = [(person, city) for person in people for city in cities]
        shown = stream.sample(pairs, stream.randint(5, 8))
        rows = [[*pair, f"{stream.randint(5, 300)}.{stream.randint(0, 99):02d}"] for pair in shown]
        number = stream.randrange(len(rows))
        action = stream.choice(["Pay", "Refuse"])
        person, city, amount = rows[number]
        said = stream.choice(
            [f"{action} the bill of {person} from {city}.", f"{action} the bill of {amount}."]
        )
        alone = sum(row[2] == amount for row in rows) == 1
        prompt = said if alone else f"{action} the bill of {person} from {city}."
        return Draft(prompt, {"rows": rows}, {action: str(number)})

    def get(self, site: FormSite, request: Request) -> tuple[str, str]:
        rows = [
            [*row, html.button("Pay", "Pay", str(at)) + html.button("Refuse", "Refuse", str(at))]
            for at, row in enumerate(site.data["rows"])
        ]
        table = html.table(["Name", "City", "Amount", "What to do"], rows)
        return "Bills", html.form("/bill", table)

    def way(self, look: Look, draft: Draft) -> Way:
        ((action, number),) = draft.wanted.items()
        yield "click", look("button", action, int(number))


class Search(Kind):
    """Find a thing in a list over several pages, with or without the search, and take it."""

    name = "search"

    def make(self, words: Words, stream: random.Random) -> Draft:
        things = _things(words, stream)
        colour, good, city, _ = stream.choice(things)
        number = next(at for at, one in enumerate(things) if one[:3] == [colour, good, city])
        prompt = stream.choice(
            ["Take the {} {} from {}.", "Find the {} {} that is in {} and take it."]
        )
        return Draft(prompt.format(colour, good, city), {"things": things}, {"taken": str(number)})

    def get(self, site: FormSite, request: Request) -> tuple[str, str]:
        if request.path == "/thing":
            number = request.query["number"]
            return _thing_page(site.data["things"][int(number)], self._button(number))
        return "Things", _listed(site.data["things"], request.query)

    def _button(self, number: str) -> str:
        return html.form("/take", html.button("Take", "taken", number))

    def way(self, look: Look, draft: Draft) -> Way:
        number = int(draft.wanted["taken"])
        _, good, _, _ = draft.data["things"][number]
        yield from _to_thing(look, draft.data["things"], good, number)
        yield "click", look("button", "Take")


class Lookup(Search):
    """Find a thing and answer what it costs."""

    name = "lookup"

    def make(self, words: Words, stream: random.Random) -> Draft:
        things = _things(words, stream)
        colour, good, city, price = stream.choice(things)
        prompt = f"What does the {colour} {good} from {city} cost? Answer with the number alone."
        return Draft(prompt, {"things": things}, {"answer": price})

    def _button(self, number: str) -> str:
        return ""

    def way(self, look: Look, draft: Draft) -> Way:
        things = draft.data["things"]
        number = next(at for at, one in enumerate(things) if one[3] == draft.wanted["answer"])
        yield from _to_thing(look, things, things[number][1], number)


def _things(words: Words, stream: random.Random) -> list[list[str]]:
    """Colour, name, city and price; no two have the first three in common, none the price."""
    goods, cities = stream.sample(words.goods, 6), stream.sample(words.cities, 3)
    colours = stream.sample(COLOURS, 4)
    triples = [[colour, good, city] for colour in colours for good in goods for city in cities]
    shown = stream.sample(triples, stream.randint(12, 30))
    prices = stream.sample(range(11, 999), len(shown))
    return [[*triple, str(price)] for triple, price in zip(shown, prices, strict=True)]


def _found(things: Sequence[Sequence[str]], words: str) -> list[int]:
    """Places of the things that have all of these words, in any case."""
    wanted = set(words.lower().split())
    return [at for at, one in enumerate(things) if wanted <= {*map(str.lower, one[:3])}]


def _listed(things: Sequence[Sequence[str]], query: Mapping[str, str]) -> str:
    words, first = query.get("words", ""), int(query.get("from", "0"))
    found = _found(things, words)
    rows = [
        html.link(f"{colour} {good}", f"/thing?number={at}") + f" in {city}"
        for at in found[first : first + PAGE]
        for colour, good, city, _ in [things[at]]
    ]
    moves = [("Previous", first - PAGE)] if first else []
    moves += [("Next", first + PAGE)] if first + PAGE < len(found) else []
    links = " ".join(
        html.link(name, f"/list?{urlencode({'words': words, 'from': at})}") for name, at in moves
    )
    search = html.form(
        "/list", html.field("Words", "words", value=words), html.button("Search"), method="get"
    )
    count = f"<p>{len(found)} things</p>"
    return f"{search}{count}{html.listed(rows)}<nav>{links}</nav>"


def _thing_page(thing: Sequence[str], button: str) -> tuple[str, str]:
    colour, good, city, price = thing
    table = html.table(["Colour", "City", "Price"], [[colour, city, price]])
    return f"{colour} {good}", f"{table}{button}<p>{html.link('All things', '/list')}</p>"


def _to_thing(look: Look, things: Sequence[Sequence[Any]], words: str, number: int) -> Way:
    yield "fill", look("textbox", "Words"), words
    yield "press", look("textbox", "Words"), "Enter"
    for _ in range(_found(things, words).index(number) // PAGE):
        yield "click", look("link", "Next")
    yield "click", look.valued(f"/thing?number={number}")
