"""A kind of task: pages, what they do with forms, and the way that solves it.

What a site received is its `sent`; a task is solved when that is what was wanted.
"""

import random
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from typing import Any, ClassVar

from turnwise.environments.base import Split
from turnwise.seeds import derive
from turnwise_environments.common import words_in
from turnwise_environments.tools.browser.sites import Request, Response, page
from turnwise_environments.web import Intent, Look

COLOURS = words_in("amber black blue brown coral green grey ivory navy olive orange pink red teal")
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
    lists = tomllib.loads(
        files("turnwise_environments.web_forms.kinds").joinpath("words.toml").read_text()
    )
    start = 0 if split == "train" else 1
    return Words(
        **{
            name: tuple(sorted(words.split(), key=partial(derive, "web forms"))[start::2])
            for name, words in lists.items()
        }
    )


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
