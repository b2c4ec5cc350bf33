"""A kind of task: pages, what they do with forms, and the way that solves it.

What a site received is its `sent`; a task is solved when that is what was wanted.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

from turnwise.environments.base import Split
from turnwise.seeds import derive
from turnwise_environments.tools.browser.sites import Request, Response, page
from turnwise_environments.web import Intent, Look


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


FIRST_NAMES = _words(
    "Ada Arlo Bela Cara Dario Edda Emil Faye Gino Hana Hugo Ines Ivo Jana Joel Kira Lars Lena "
    "Luca Mara Milo Nadia Nico Olga Omar Petra Quinn Rosa Ruben Sara Silas Tara Theo Uma Vera "
    "Viktor Wanda Xenia Yara Zeno"
)
SURNAMES = _words(
    "Abel Adler Bauer Berg Blom Brandt Carter Castro Dahl Diaz Eklund Falk Fischer Gallo Garcia "
    "Haas Holm Ivanov Jansen Keller Kovacs Lang Lopez Meyer Moreau Nagy Novak Olsen Ortiz Peeters "
    "Perez Quist Rossi Sato Silva Tanaka Urban Vogel Weber Zhang"
)
CITIES = _words(
    "Aarhus Basel Bergen Bilbao Cadiz Cork Delft Dijon Exeter Faro Gdansk Genoa Graz Izmir Kassel "
    "Krakow Leeds Lyon Malmo Nantes Odense Oviedo Parma Pecs Porto Reims Riga Siena Split Tartu "
    "Trier Turin Umea Utrecht Verona Vigo Wells York Zadar Zwolle"
)
COLOURS = _words("amber black blue brown coral green grey ivory navy olive orange pink red teal")
GOODS = _words(
    "armchair basket blanket bookcase bowl bucket candle carpet clock curtain cushion desk drill "
    "fan frame hammer hanger jug kettle ladder lamp lantern mirror mug pan pillow plate pot rake "
    "saw scarf shelf sofa spoon stool table teapot towel vase wardrobe"
)
FOODS = _words(
    "apples beans bread butter carrots cheese cherries chicken coffee corn dates eggs figs fish "
    "garlic grapes honey jam leeks lemons lentils melon milk mint mustard nuts oats olives onions "
    "pears peas plums potatoes radishes rice salt soup spinach tea yoghurt"
)
VERBS = _words(
    "Accept Apply Archive Assign Begin Book Check Clear Close Compare Confirm Copy Discard "
    "Download Edit Export Finish Follow Freeze Hide Import Join Lock Merge Move Mute Open Pause "
    "Pin Print Publish Refresh Rename Renew Repeat Reset Share Sort Start Undo Upload Verify"
)
TOPICS = _words(
    "budget canteen choir contract delivery exhibition festival garden harvest holiday insurance "
    "inventory invoice keys lecture lunch meeting museum newsletter orchestra parking party "
    "picnic plumbing poster printer rehearsal rent repair report schedule seminar survey tickets "
    "timetable training trip visit warranty workshop"
)
SETTINGS = _words(
    "Backup Brightness Captions Comments Contrast Cookies Currency Dictation Downloads Font "
    "History Invitations Keyboard Language Location Login Maps Messages Mirroring Network "
    "Notes Password Playback Previews Privacy Profile Reminders Ringtone Scrolling Search "
    "Shortcuts Sounds Spelling Sync Themes Translation Updates Vibration Voice Zoom"
)
LEVELS = ("never", "sometimes", "daily", "always")


@dataclass(frozen=True)
class Words:
    """The words of one split; colours and levels belong to both."""

    first_names: tuple[str, ...]
    surnames: tuple[str, ...]
    cities: tuple[str, ...]
    goods: tuple[str, ...]
    foods: tuple[str, ...]
    verbs: tuple[str, ...]
    topics: tuple[str, ...]
    settings: tuple[str, ...]


@cache
def words_of(split: Split) -> Words:
    """Half of each list, the same in every process."""
    lists = (FIRST_NAMES, SURNAMES, CITIES, GOODS, FOODS, VERBS, TOPICS, SETTINGS)
    start = 0 if split == "train" else 1
    halves = (sorted(one, key=lambda word: derive("web forms", word))[start::2] for one in lists)
    return Words(*(tuple(half) for half in halves))


Way = Iterator[Intent]


@dataclass(frozen=True)
class Draft:
    """A task before it has a name: the request, what pages are made of, and what is to be sent."""

    prompt: str
    data: Mapping[str, Any]
    wanted: Any


class Kind:
    """One kind of task."""

    name: ClassVar[str]

    def make(self, words: Words, stream: random.Random) -> Draft:
        """Draw a task."""
        raise NotImplementedError

    def get(self, site: "FormSite", request: Request) -> tuple[str, str]:
        """Title and body of a page."""
        raise NotImplementedError

    def post(self, site: "FormSite", request: Request) -> str:
        """Take what a form sends; gives the path of the page after it."""
        site.send(dict(request.form))
        return "/done"

    def way(self, look: "Look", draft: Draft) -> Way:
        """The operations that solve the task."""
        raise NotImplementedError


class FormSite:
    def __init__(self, kind: Kind, data: Mapping[str, Any]) -> None:
        self.kind, self.data = kind, data
        self.user = ""
        """The user who has signed in."""
        self.sent: Any = None
        self.finished = False

    def send(self, what: Any) -> None:
        """Take what is judged, as plain data; the first time only."""
        if not self.finished:
            self.sent, self.finished = what, True

    def handle(self, request: Request) -> Response:
        """After the end there is only one page left."""
        if request.method == "POST":
            return Response(location="/done" if self.finished else self.kind.post(self, request))
        if self.finished:
            return Response(page("Done", "<p>Thank you. There is nothing left to do.</p>"))
        return Response(page(*self.kind.get(self, request)))
