"""A page of the dashboard in a real Chromium, which notes everything that goes wrong in it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import axe_playwright_python
import pytest

from tests.small_runs import start
from turnwise.errors import ConfigError
from turnwise_environments.tools.browser.chromium import find_chromium

SECONDS = 60.0
AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js")
GRAVE = ("serious", "critical")


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser of Playwright; a skip where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs turnwise[browser]")
    try:
        program = find_chromium()
    except ConfigError as error:
        pytest.skip(str(error))
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, chromium_sandbox=False)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def dashboard(*runs: Path) -> Iterator[str]:
    """`turnwise view` in a process of its own; gives the address that it prints."""
    with start("view", *runs, "--port", "0") as server:
        try:
            lines = iter(server.stdout.readline, "")
            found = (re.search(r"http://\S+token=\S+", line) for line in lines)
            address = next((one[0] for one in found if one), "")
            assert address, "it ended before it served anything"
            yield address
        finally:
            server.terminate()
            server.communicate(timeout=SECONDS)


class DashboardPage:
    """One page, with what its console said, its mistakes, and all that it asked for."""

    def __init__(self, browser: Any, address: str, *, scheme: str = "light", width: int = 1280):
        """`address` is the one that the program prints, with its token."""
        self.root = address.split("?")[0]
        self.context = browser.new_context(
            viewport={"width": width, "height": 800},
            color_scheme=scheme,
            reduced_motion="reduce",
            accept_downloads=True,
        )
        self.context.set_default_timeout(1000 * SECONDS)
        self.page = self.context.new_page()
        self.faults: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda said: self.faults.append(f"{said.type}: {said.text}"))
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.context.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(address)
        self.settled()

    def open(self, link: str) -> Any:
        """Go to a permanent link, such as `#/r/0/curves`, as from outside; gives Playwright's
        page."""
        self.page.goto("about:blank")
        self.page.goto(self.root + link)
        self.settled()
        return self.page

    def settled(self) -> None:
        """Wait for a view to be shown."""
        self.page.wait_for_selector("main h1", state="attached")

    def elsewhere(self) -> list[str]:
        """Addresses asked for that are not the dashboard's own."""
        own = (self.root, "data:", "blob:", "about:")
        return [address for address in self.asked if not address.startswith(own)]

    def sideways(self) -> int:
        """Pixels by which the page is wider than the window."""
        wider: int = self.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        return max(0, wider)

    def accessibility_faults(self) -> list[str]:
        """What axe-core finds grave, one line each."""
        self.page.evaluate(AXE.read_text())  # as a debugger does: the page's policy allows it not
        found = self.page.evaluate("axe.run()")["violations"]
        return [
            f"{one['id']}: {node['html'][:120]} {node.get('failureSummary', '')}"
            for one in found
            if one["impact"] in GRAVE
            for node in one["nodes"][:2]
        ]
