"""One page in Chromium: what can be done on it, what it says, and an image of it.

Elements have numbers (`reading.py`) and are acted on by mouse and keyboard. The agent is shown at
once what is in the way of a click; what does not end in time, and a browser that died, is
infrastructure. A page that opens another goes on in that one. Dialogs are dismissed.
"""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Coroutine
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar
from urllib.parse import urlsplit

from turnwise.errors import InfrastructureError, ToolError, first_line
from turnwise_environments.tools.browser.chromium import CLOSE_SECONDS, ChromiumProcess
from turnwise_environments.tools.browser.egress_proxy import EgressProxy
from turnwise_environments.tools.browser.reading import (
    View,
    check_typed,
    options_of,
    role_of,
    tree_of,
    typed,
    view_of,
)
from turnwise_environments.tools.browser.static_page import chosen_option

Result = TypeVar("Result")

LOAD_SECONDS = 3.0
"""Waited for images and scripts once the page itself is there."""
IN_THE_WAY = """(element) => {
  element.scrollIntoView({block: "center", inline: "center"});
  if (!element.isConnected) return "gone";
  const box = element.getBoundingClientRect();
  const hit = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
  if (box.width === 0 || box.height === 0 || hit === null) return "hidden";
  const label = hit.closest("label");
  if (element.contains(hit) || hit.contains(element) || label?.control === element) return "";
  return element.getClientRects().length > 1 || element.getRootNode() !== document ? "" : "covered";
}"""
LOADED = """(milliseconds) => new Promise((resolve) => {
  const resolved = () => resolve();
  if (document.readyState === "complete") resolved();
  else if (document.readyState === "interactive") setTimeout(resolved, milliseconds);
  else addEventListener("DOMContentLoaded", () => setTimeout(resolved, milliseconds));
  addEventListener("load", resolved);
})"""
AS_TEXT = "(page) => JSON.stringify([page.title, page.url, page.tree])"
"""A text, since the browser gives no data of more than some hundred levels."""
UNOPENED = {
    "ERR_UNSAFE_PORT": "has a port that browsers refuse",
    "Download is starting": "is a file to download, and no page",
    "ERR_ABORTED": "has no page",
}
"""Chromium's messages on addresses that it cannot show, and the agent's observation for each."""
REASONS = {
    "gone": "is gone: read the page again",
    "hidden": "has no place on the page",
    "covered": "is covered by something else",
}


class BrowserPage:
    """An episode's page; made by `Browser.open`."""

    def __init__(
        self,
        process: ChromiumProcess,
        number: int,
        context: Any,
        proxy: EgressProxy,
        seconds: float,
        height: int,
    ) -> None:
        """`number` is the Chromium's that has the `context`; `height` the screen's, in pixels."""
        self._process, self._number = process, number
        self._context, self._proxy = context, proxy
        self._seconds, self._height = seconds, height
        self._handle: Any = None
        self._view: View | None = None
        self._failed = ""
        self._crashed = self._closed = False

    @property
    def lost(self) -> bool:
        """Whether the browser is gone, or this page's part of it."""
        return self._crashed or self._closed or not self._process.alive(self._number)

    async def begin(self) -> None:
        self._context.on("page", lambda page: page.on("crash", self._crash))
        self._context.on("requestfailed", self._fail)

        async def new() -> None:
            await self._context.new_page()

        await self._run(new)

    async def act(self, operation: str, *arguments: Any) -> None:
        """goto(url), click(number), fill(number, text), select(number, option), press(number, key),
        back(), scroll(direction), read(). Raises ToolError for what cannot be done on this page,
        InfrastructureError for a page that does not answer in time or is gone."""
        operations: dict[str, Callable[..., Coroutine[Any, Any, None]]] = {
            "goto": self._goto,
            "click": self._click,
            "fill": self._fill,
            "select": self._select,
            "press": self._press,
            "back": self._back,
            "scroll": self._scroll,
            "read": self._read,
        }

        async def work() -> None:
            await operations[operation](*arguments)
            await self._look()
            if self._view is not None and self._view.url.startswith("chrome-error:"):
                await self._return_if_refused()
                raise InfrastructureError("browser: the page could not be loaded")

        await self._run(work)

    async def view(self) -> View:
        """The page as it was after the last operation."""
        if self._view is None:
            await self._run(self._look)
        assert self._view is not None
        return self._view

    async def screenshot(self, *, marks: bool = False) -> bytes:
        """The screen as PNG; with `marks`, the elements' numbers are drawn on it."""
        view = await self.view()
        places = [element.node.place for element in view.elements] if marks else []

        async def work() -> bytes:
            if places:
                await self._handle.evaluate(script("marks.js"), places)
            image: bytes = await self._page.screenshot(animations="disabled", caret="hide")
            if places:
                await self._handle.evaluate(script("marks.js"), [])
            return image

        return await self._run(work)

    async def close(self) -> None:
        """Release the page. Idempotent, bounded; a browser that hangs is ended."""
        if self._closed:
            return
        self._closed = True

        async def work() -> None:
            from playwright.async_api import Error

            await self._proxy.close()
            if self._process.alive(self._number):
                with contextlib.suppress(Error):
                    await self._context.close()

        try:
            await self._process.run(work(), CLOSE_SECONDS)
        except InfrastructureError:
            await self._process.run(self._process.discard(self._number), 2 * CLOSE_SECONDS)

    @property
    def _page(self) -> Any:
        pages = self._context.pages
        if not pages:
            raise InfrastructureError("browser: the page was closed")
        return pages[-1]

    async def _run(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Do it in the browser's thread; sort what goes wrong."""

        async def sorted_out() -> Result:
            from playwright.async_api import Error

            try:
                return await work()
            except Error as error:
                if "not attached to the DOM" in str(error):
                    raise ToolError("the element is gone: read the page again") from None
                raise InfrastructureError(f"browser: {first_line(error)}") from None

        if self.lost:
            raise InfrastructureError("browser: it is gone, or this page crashed")
        result = await self._process.run(sorted_out(), self._seconds)
        if self._proxy.problem is not None:
            raise self._proxy.problem
        return result

    def _crash(self, page: Any) -> None:
        del page
        self._crashed = True

    def _fail(self, request: Any) -> None:
        if request.is_navigation_request():
            self._failed = request.url

    async def _goto(self, url: str) -> None:
        from playwright.async_api import Error

        if not url.startswith(("http://", "https://")):
            raise ToolError(f"{url!r} is no address: write https://host/path")
        try:
            await self._page.goto(url, wait_until="domcontentloaded")
        except Error as error:
            if "invalid URL" in str(error):
                raise ToolError(f"{url!r} is no address: write https://host/path") from None
            for word, reason in UNOPENED.items():
                if word in str(error):
                    raise ToolError(f"{url!r} {reason}") from None
            await self._return_if_refused()
            raise

    async def _click(self, number: int) -> None:
        element = await self._element(number)
        await self._reach(element, number)
        await element.click()

    async def _fill(self, number: int, text: str) -> None:
        from playwright.async_api import Error

        node = self._known().element(number).node
        check_typed(role_of(node), number, text)
        if "readonly" in node.attributes:
            raise ToolError(f"nothing can be typed into element {number}")
        element = await self._element(number)
        try:
            await element.fill(typed(node, text))
        except Error as error:
            if "Malformed value" in str(error) or "Cannot type text" in str(error):
                raise ToolError(f"{text!r} cannot be typed into element {number}") from None
            if "not an <input>" in str(error) or "not editable" in str(error):
                raise ToolError(f"nothing can be typed into element {number}") from None
            raise

    async def _select(self, number: int, option: str) -> None:
        element = await self._element(number)
        node = self._known().element(number).node
        chosen = chosen_option(node, number, option)
        if "disabled" in options_of(node)[chosen].attributes:
            raise ToolError(f"option {option!r} is disabled")
        await element.select_option(index=chosen)

    async def _press(self, number: int, key: str) -> None:
        from playwright.async_api import Error

        element = await self._element(number)
        try:
            await element.press(key)
        except Error as error:
            if "Unknown key" in str(error):
                raise ToolError(f"there is no key {key!r}; write Enter, Escape, Tab, a") from None
            raise

    async def _back(self) -> None:
        if await self._can_go_back():
            await self._page.go_back(wait_until="domcontentloaded")
        elif len(self._context.pages) > 1:
            await self._page.close()
        else:
            raise ToolError("there is no page before this one")

    async def _can_go_back(self) -> bool:
        """Whether a page stands before this one, of this host or another: `navigation.canGoBack`
        knows of the same only. The empty page that comes first does not count."""
        session = await self._context.new_cdp_session(self._page)
        history = await session.send("Page.getNavigationHistory")
        await session.detach()
        current = history["currentIndex"]
        return bool(current > 0 and history["entries"][current - 1]["url"] != "about:blank")

    async def _scroll(self, direction: str) -> None:
        sign = {"down": 1, "up": -1}[direction]
        await self._page.evaluate("(far) => window.scrollBy(0, far)", sign * self._height * 0.8)

    async def _return_if_refused(self) -> None:
        """Leave the error page, and raise what the agent reads about the refusal."""
        reason = self._proxy.refused.get(urlsplit(self._failed).netloc.rpartition("@")[2])
        if reason is None:
            return
        while not await self._is_error_page():  # it comes a moment after the failure
            await asyncio.sleep(0.05)
        await self._page.go_back(wait_until="domcontentloaded")
        if len(self._context.pages) > 1 and await self._is_error_page():
            await self._page.close()  # one that was opened for it: there is none before it
        await self._look()
        raise ToolError(reason)

    async def _is_error_page(self) -> bool:
        from playwright.async_api import Error

        try:
            address: str = await self._page.evaluate("location.href")
        except Error as error:
            if "context was destroyed" not in str(error):
                raise
            return False
        return address.startswith("chrome-error:")

    async def _read(self) -> None:
        """Nothing but what is done after each operation."""

    async def _look(self) -> None:
        """Wait until the page is there, and a little for what comes later; then read it."""
        from playwright.async_api import Error

        if self._handle is not None:
            await self._handle.dispose()
        while True:
            try:
                await self._page.evaluate(LOADED, 1000 * LOAD_SECONDS)
                self._handle = await self._page.evaluate_handle(script("walk.js"))
                text = await self._handle.evaluate(AS_TEXT)
                break
            except Error as error:
                if "context was destroyed" not in str(error):  # it went on to another page
                    raise
        title, url, tree = json.loads(text)
        self._view = view_of(title, url, tree_of(tree))

    def _known(self) -> View:
        if self._view is None:
            raise ToolError("there is no page yet: open one")
        return self._view

    async def _element(self, number: int) -> Any:
        node = self._known().element(number).node
        if "disabled" in node.attributes:
            raise ToolError(f"element {number} is disabled")
        handle = await self._handle.evaluate_handle("(page, at) => page.elements[at]", node.place)
        return handle.as_element()

    async def _reach(self, element: Any, number: int) -> None:
        reason = await element.evaluate(IN_THE_WAY)
        if reason:
            raise ToolError(f"element {number} {REASONS[reason]}")


@cache
def script(name: str) -> str:
    """A script of this package. Only its comments stand before the function."""
    return files("turnwise_environments.tools.browser").joinpath(name).read_text()
