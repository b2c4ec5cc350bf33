"""The tools to act on web pages, for an environment to derive from.

    class Mine(BrowserTools, Environment):
        def __init__(self) -> None:
            self.browser = Browser(["docs.python.org"])     # the prototype's
        ...

After each call the agent gets the page as it is then. Pages of other people are in no snapshot: an
environment that makes its own pages can be restored (`web.py`).
"""

from typing import Any, Literal, Protocol

from turnwise.errors import InfrastructureError
from turnwise.tools.tool import tool
from turnwise_environments.tools.browser.chromium import Browser
from turnwise_environments.tools.browser.page import BrowserPage
from turnwise_environments.tools.browser.reading import HEIGHT, View


class Page(Protocol):
    """The interface that `StaticPage` and `BrowserPage` have in common."""

    @property
    def lost(self) -> bool: ...

    async def act(self, operation: str, *arguments: Any) -> None:
        """Do something on the page."""
        ...

    async def view(self) -> View:
        """The page as it is."""
        ...

    async def close(self) -> None:
        """Release it. Idempotent, bounded."""
        ...


class PageTools:
    """click, fill, select, press, back, scroll, read."""

    page: Page | None = None
    top: int = 0
    """The first line that is shown, counted from 0."""

    @tool
    async def click(self, element: int) -> str:
        """Click an element by its number."""
        return await self.acted("click", element)

    @tool
    async def fill(self, element: int, text: str) -> str:
        """Write text into a field, in place of what is there; a date as 2027-03-31."""
        return await self.acted("fill", element, text)

    @tool
    async def select(self, element: int, option: str) -> str:
        """Choose an option of a select, by its text."""
        return await self.acted("select", element, option)

    @tool
    async def press(self, element: int, key: str) -> str:
        """Press a key on an element, such as Enter."""
        return await self.acted("press", element, key)

    @tool
    async def back(self) -> str:
        """Go back to the page before."""
        return await self.acted("back")

    @tool
    async def scroll(self, direction: Literal["down", "up"]) -> str:
        """Show the next or the previous lines of a long page."""
        return await self.acted("scroll", direction)

    @tool
    async def read(self) -> str:
        """Show the page again, as it is now."""
        return await self.acted("read")

    async def acted(self, operation: str, *arguments: Any) -> str:
        """Do something, and show the page after it. Raises InfrastructureError without a page."""
        if self.page is None:
            raise InfrastructureError("browser: there is no page")
        before = (await self.page.view()).url
        await self.page.act(operation, *arguments)
        view = await self.page.view()
        if operation == "scroll":
            self.top = scrolled(self.top, len(view.lines), str(arguments[0]))
        elif view.url != before:
            self.top = 0
        return view.shown(self.top)


class BrowserTools(PageTools):
    """The page tools and `goto`: derive from this first, then from Environment; set `browser`."""

    browser: Browser
    page: BrowserPage | None = None

    @tool
    async def goto(self, url: str) -> str:
        """Go to an address."""
        return await self.acted("goto", url)

    async def reset(self, task: Any, seed: int) -> Any:
        await BrowserTools.close(self)
        self.page, self.top = await self.browser.open(), 0
        return await super().reset(task, seed)  # type: ignore[misc]

    async def close(self) -> None:
        page, self.page = self.page, None
        if page is not None:
            await page.close()


def scrolled(top: int, lines: int, direction: str) -> int:
    """The first line after scrolling by a screen, which keeps a little of what was shown."""
    step = HEIGHT - HEIGHT // 10
    last = max(lines - HEIGHT, 0)
    return min(top + step, last) if direction == "down" else max(top - step, 0)
