"""One form on one page: a button, fields, choices, boxes to tick, a date."""

import random
from datetime import date, timedelta

from turnwise_environments.common import words_in
from turnwise_environments.tools.browser.sites import Request
from turnwise_environments.web import Look
from turnwise_environments.web_forms import html
from turnwise_environments.web_forms.kinds.base import Draft, FormSite, Kind, Way, Words

MONTHS = words_in(
    "January February March April May June July August September October November December"
)
FIRST_DAY = date(2027, 1, 1)


class Button(Kind):
    """Press the named button."""

    name = "button"

    def make(self, words: Words, stream: random.Random) -> Draft:
        labels = stream.sample(words.verbs, stream.randint(5, 9))
        wanted = stream.choice(labels)
        said = stream.choice(['Press the button "{}".', 'Click "{}".', "Find {} and press it."])
        return Draft(said.format(wanted), {"labels": labels}, {"pressed": wanted})

    def get(self, site: FormSite, request: Request) -> tuple[str, str]:
        buttons = [html.button(label, "pressed", label) for label in site.data["labels"]]
        return "Buttons", html.form("/press", *buttons)

    def way(self, look: Look, draft: Draft) -> Way:
        yield "click", look("button", draft.wanted["pressed"])


class Fields(Kind):
    """Fill in a form; fields that are not named stay empty."""

    name = "fields"

    def make(self, words: Words, stream: random.Random) -> Draft:
        first, last = stream.choice(words.first_names), stream.choice(words.surnames)
        values = {
            "First name": first,
            "Surname": last,
            "E-mail": f"{first}.{last}@example.org".lower(),
            "City": stream.choice(words.cities),
            "Street": f"{stream.choice(words.goods).title()} Street {stream.randint(1, 99)}",
            "Telephone": f"0{stream.randint(10, 99)} {stream.randint(10000, 99999)}",
            "Member number": str(stream.randint(10000, 99999)),
        }
        shown = stream.sample(list(values), stream.randint(3, 6))
        filled = stream.sample(shown, stream.randint(2, len(shown)))
        said = "; ".join(f"{label}: {values[label]}" for label in filled)
        prompt = stream.choice(
            ["Fill in the form and send it. {}", "Send the form with this, and nothing else: {}"]
        )
        wanted = {label: values[label] if label in filled else "" for label in shown}
        return Draft(prompt.format(said), {"fields": shown}, wanted)

    def get(self, site: FormSite, request: Request) -> tuple[str, str]:
        fields = [html.field(label, label) for label in site.data["fields"]]
        return "Form", html.form("/send", *fields, html.button("Send"))

    def way(self, look: Look, draft: Draft) -> Way:
        for label, value in draft.wanted.items():
            if value:
                yield "fill", look("textbox", label), value
        yield "click", look("button", "Send")


class Choices(Kind):
    """Order a drink or the like: a list and one or two groups of radio buttons."""

    name = "choices"

    def make(self, words: Words, stream: random.Random) -> Draft:
        foods = stream.sample(words.foods, stream.randint(4, 8))
        cities = stream.sample(words.cities, 3)
        wanted = {
            "Food": stream.choice(foods),
            "Colour": stream.choice(["brown", "white", "green"]),
            "Deliver to": stream.choice(cities),
        }
        prompt = "Order {Food} in a {Colour} bag, delivered to {Deliver to}."
        return Draft(prompt.format(**wanted), {"foods": foods, "cities": cities}, wanted)

    def get(self, site: FormSite, request: Request) -> tuple[str, str]:
        return "Order", html.form(
            "/order",
            html.select("Food", "Food", ["(none)", *site.data["foods"]]),
            html.radios("Colour of the bag", "Colour", ["brown", "white", "green"]),
            html.radios("Deliver to", "Deliver to", site.data["cities"]),
            html.button("Order"),
        )

    def way(self, look: Look, draft: Draft) -> Way:
        yield "select", look("select", "Food"), draft.wanted["Food"]
        yield "click", look("radio", draft.wanted["Colour"])
        yield "click", look("radio", draft.wanted["Deliver to"])
        yield "click", look("button", "Order")


class Boxes(Kind):
    """Tick what is named and nothing else; some boxes are ticked already."""

    name = "boxes"

    def make(self, words: Words, stream: random.Random) -> Draft:
        shown = stream.sample(words.foods, stream.randint(5, 9))
        ticked = sorted(stream.sample(shown, stream.randint(1, 2)))
        wanted = sorted(stream.sample(shown, stream.randint(2, 4)))
        prompt = f"Have these on the list, and only these: {', '.join(wanted)}. Then save it."
        return Draft(prompt, {"shown": shown, "ticked": ticked}, wanted)

    def get(self, site: FormSite, request: Request) -> tuple[str, str]:
        ticked = site.data["ticked"]
        boxes = [html.checkbox(food, "food", checked=food in ticked) for food in site.data["shown"]]
        return "Shopping list", html.form("/save", *boxes, html.button("Save"))

    def post(self, site: FormSite, request: Request) -> str:
        site.send(sorted(value for _, value in request.form))
        return "/done"

    def way(self, look: Look, draft: Draft) -> Way:
        for food in draft.data["shown"]:
            if (food in draft.data["ticked"]) != (food in draft.wanted):
                yield "click", look("checkbox", food)
        yield "click", look("button", "Save")


class Day(Kind):
    """Enter a date that is given in words."""

    name = "day"

    def make(self, words: Words, stream: random.Random) -> Draft:
        day = FIRST_DAY + timedelta(days=stream.randrange(3 * 365))
        topic, city = stream.choice(words.topics), stream.choice(words.cities)
        said = f"{day.day} {MONTHS[day.month - 1]} {day.year}"
        prompt = f"Enter the {topic} in {city} for {said}. Leave the notes empty."
        wanted = {"What": topic, "Where": city, "Day": day.isoformat(), "Notes": ""}
        return Draft(prompt, {}, wanted)

    def get(self, site: FormSite, request: Request) -> tuple[str, str]:
        return "New entry", html.form(
            "/enter",
            html.field("What", "What"),
            html.field("Where", "Where"),
            html.field("Day", "Day", "date"),
            html.area("Notes", "Notes"),
            html.button("Enter"),
        )

    def way(self, look: Look, draft: Draft) -> Way:
        yield "fill", look("date", "Day"), draft.wanted["Day"]
        yield "fill", look("textbox", "Where"), draft.wanted["Where"]
        yield "fill", look("textbox", "What"), draft.wanted["What"]
        yield "press", look("textbox", "What"), "Enter"
