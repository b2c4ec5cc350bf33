"""Environments whose pages are a site of their own (`tools/browser/sites.py`), acted on by number.

    class Mine(WebEnvironment):
        host = "mine.test"
        def site(self, data): return MySite(data)
        def judged(self, site, trajectory): return Verdict(...)

With `pages = "text"` they are read without a browser, in less than a millisecond; with `"browser"`
they are in Chromium. Numbers, words and verdicts are the same. An episode consists of the site's
data and what was done: a snapshot has both, and restoring does it again. That is also how an
episode goes on that lost its browser between two actions. The verdict is of what the site received,
and of no text on a page.
"""

import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta
from typing import Any, ClassVar, Literal, Protocol

from turnwise.environments.base import Environment
from turnwise.errors import ConfigError, InfrastructureError, ToolError
from turnwise.tokens import Source
from turnwise.types import Action, Observation, Step, Task, ToolCall, Trajectory, Verdict
from turnwise_environments.tools.browser.chromium import Browser
from turnwise_environments.tools.browser.page import BrowserPage
from turnwise_environments.tools.browser.reading import TYPED, Element, options_of, text_of
from turnwise_environments.tools.browser.sites import Site
from turnwise_environments.tools.browser.static_page import StaticPage
from turnwise_environments.tools.browser.tools import Page, PageTools

Pages = Literal["text", "browser"]
Observations = Literal["text", "screenshot"]
Intent = tuple[Any, ...]
"""An operation of `StaticPage.do` with its arguments."""
ARGUMENTS = {
    "click": ("element",),
    "fill": ("element", "text"),
    "select": ("element", "option"),
    "press": ("element", "key"),
    "back": (),
    "scroll": ("direction",),
    "read": (),
}
ENTERED = ("input", "button", "a", "summary")
"""Roles of elements on which the key Enter does the same in every browser."""


class EpisodeSite(Site, Protocol):
    """A site that knows when its episode is over."""

    @property
    def finished(self) -> bool:
        """Whether something was done that ends the episode."""
        ...


class WebEnvironment(PageTools, Environment):
    """Tools: click, fill, select, press (Enter), back, scroll, read."""

    tool_deadline = 60.0
    """More than the browser's own, which says what was waited for."""

    host: ClassVar[str] = "site.test"

    _site: EpisodeSite
    _data: Mapping[str, Any]
    _log: list[list[Any]]
    _stale: bool = False
    """Whether the page is not yet what the log says."""

    def __init__(self, pages: Pages = "text", observations: Observations = "text") -> None:
        """Raises ConfigError for images of pages that are not in a browser, and as `Browser`."""
        if observations == "screenshot" and pages == "text":
            raise ConfigError('observations = "screenshot" needs a screen: set pages = "browser"')
        self.shows_images = observations == "screenshot"
        self._browser = Browser() if pages == "browser" else None

    def site(self, data: Mapping[str, Any]) -> EpisodeSite:
        raise NotImplementedError

    def judged(self, site: EpisodeSite, trajectory: Trajectory) -> Verdict:
        raise NotImplementedError

    async def reset(self, task: Task, seed: int) -> Observation:
        del seed
        self._data, self._log = dict(task.data), []
        await self._rebuild()
        assert self.page is not None
        shown = (await self.page.view()).shown()
        text = task.prompt if self.shows_images else f"{task.prompt}\n\n{shown}"
        return await self._with_image(Observation(text, Source.USER))

    async def acted(self, operation: str, *arguments: Any) -> str:
        await self._ready()
        if operation == "press":
            await self._check_key(*arguments)
        text = await PageTools.acted(self, operation, *arguments)
        self._log.append([operation, *arguments])
        return text.partition("\n")[0] if self.shows_images else text

    async def step(self, action: Action) -> Step:
        """A call that ends the episode is run once, and later calls are not."""
        if action.answer is not None:
            return Step(done=True)
        await self._ready()  # also for calls that touch no page
        results = [await self._run(call) for call in action.calls if not self._site.finished]
        seen = Observation("\n".join(result.content for result in results))
        done = self._site.finished
        return Step(seen if done else await self._with_image(seen), tuple(results), done=done)

    async def verify(self, trajectory: Trajectory) -> Verdict:
        if self._stale:
            await self._rebuild()
        return self.judged(self._site, trajectory)

    def scripted(self, task: Task, way: Callable[["Look"], Iterable[Intent]]) -> Sequence[Action]:
        """The actions that `way` gives, which looks at the page before each."""
        page = StaticPage(self.site(task.data), self._start)
        actions = []
        for operation, *arguments in way(Look(page)):
            page.do(operation, *arguments)
            actions.append(Action("", "go on", (_call(operation, *arguments),)))
        return actions

    def random_actions(self, task: Task, stream: random.Random) -> Sequence[Action]:
        """Up to 20 random things that the page offers, and a word of the request as the answer."""
        words = task.prompt.replace('"', " ").split()
        site = self.site(task.data)
        page = StaticPage(site, self._start)
        actions = []
        for _ in range(stream.randint(1, 20)):
            elements = page.look().elements
            if site.finished or not elements:
                break
            number = stream.randint(1, len(elements))
            operation, *arguments = _random_intent(elements[number - 1], number, words, stream)
            try:
                page.do(operation, *arguments)
            except ToolError:
                continue
            actions.append(Action("", calls=(_call(operation, *arguments),)))
        return [*actions, Action("", answer=stream.choice(words))]

    def snapshot(self) -> bytes:
        return json.dumps({"data": self._data, "log": self._log}).encode()

    def restore(self, state: bytes) -> None:
        found = json.loads(state)
        self._data, self._log, self._stale = found["data"], found["log"], True

    async def close(self) -> None:
        page, self.page = self.page, None
        if page is not None:
            await page.close()

    @property
    def _start(self) -> str:
        return f"http://{self.host}/"

    async def _ready(self) -> None:
        """Have the page that the log says."""
        if self._stale or self.page is None or self.page.lost:
            await self._rebuild()

    async def _rebuild(self) -> None:
        """A new site and page, on which all that was done is done again."""
        await self.close()
        self._site, self.top = self.site(self._data), 0
        self.page = await self._opened()
        try:
            for operation, *arguments in self._log:
                await PageTools.acted(self, operation, *arguments)
        except ToolError as error:
            raise InfrastructureError(f"an episode went another way than before: {error}") from None
        self._stale = False

    async def _opened(self) -> Page:
        if self._browser is None:
            return StaticPage(self._site, self._start)
        page = await self._browser.open({self.host: self._site})
        self.page = page  # closed with the episode if the site cannot be opened
        await page.act("goto", self._start)
        return page

    async def _check_key(self, number: int, key: str) -> None:
        assert self.page is not None
        tag = (await self.page.view()).element(number).node.tag
        if key != "Enter" or tag not in ENTERED:
            raise ToolError("on these pages there is only the key Enter, on fields, buttons, links")

    async def _with_image(self, observation: Observation) -> Observation:
        if not self.shows_images:
            return observation
        assert isinstance(self.page, BrowserPage)
        return replace(observation, images=(await self.page.screenshot(marks=True),))


class Look:
    """Numbers of elements on the open page, for a scripted `way`."""

    def __init__(self, page: StaticPage) -> None:
        self._page = page

    def __call__(self, role: str, name: str, nth: int = 0) -> int:
        """The number of the nth element of this role and name, from 0. Raises LookupError."""
        elements = enumerate(self._page.look().elements, start=1)
        found = [place for place, one in elements if (one.role, one.name) == (role, name)]
        if nth >= len(found):
            raise LookupError(f"there is no {role} {name!r}: {self._page.look().shown()}")
        return found[nth]

    def valued(self, value: str) -> int:
        """The number of the button or link that sends or leads to this value."""
        for number, element in enumerate(self._page.look().elements, start=1):
            given = element.node.attributes
            if value in (given.get("value"), given.get("href")):
                return number
        raise LookupError(f"nothing has the value {value!r}: {self._page.look().shown()}")


def _call(operation: str, *arguments: Any) -> ToolCall:
    return ToolCall(operation, dict(zip(ARGUMENTS[operation], arguments, strict=True)))


def _random_intent(
    element: Element, number: int, words: Sequence[str], stream: random.Random
) -> Intent:
    if stream.random() < 0.05:
        return ("back",)
    if element.role in TYPED:
        if element.role == "date":
            day = date(2027, 1, 1) + timedelta(days=stream.randrange(3 * 365))
            return ("fill", number, day.isoformat())
        return ("fill", number, stream.choice(words).strip(".,:"))
    if element.role == "select":
        return ("select", number, text_of(stream.choice(options_of(element.node))))
    return ("click", number)
