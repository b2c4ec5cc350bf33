"""A real Chromium: what it may reach, deadlines, crashes, and that nothing of it is left."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from browser_sites import HOST, START, Everything, opened
from environment_playing import calling, played
from serving_running import http_server
from turnwise.environments.base import Environment
from turnwise.errors import ConfigError, InfrastructureError, ToolError
from turnwise.types import Task, Trajectory, Verdict
from turnwise_environments.tools.browser.chromium import Browser, find_chromium, marked
from turnwise_environments.tools.browser.page import BrowserPage
from turnwise_environments.tools.browser.sites import Request, Response
from turnwise_environments.tools.browser.tools import BrowserTools

WITH_SCRIPT = """<!doctype html><title>Scripts</title><div id="cover" style="position:fixed;inset:0"
></div><button>Under</button>"""


@contextmanager
def served(pages: dict[str, str]) -> Iterator[tuple[str, list[str]]]:
    """A web server; gives host:port, and the paths that it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            text = pages.get(self.path, "")
            self.send_response(302 if text.startswith("http") else 200)
            if text.startswith("http"):
                self.send_header("Location", text)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *args: Any) -> None:
            """Quiet."""

    with http_server(Handler) as place:
        yield place, asked


def on_page(browser: Browser, work: Callable[[BrowserPage], Any], **sites: Any) -> None:
    async def run() -> None:
        page = await browser.open({name.replace("_", "."): site for name, site in sites.items()})
        try:
            await work(page)
        finally:
            await page.close()

    asyncio.run(run())


def kill(browser: Browser) -> None:
    for pid in marked(browser._process.marker):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with opened() as found:
        yield found


def eventually(done: Callable[[], bool]) -> bool:
    end = time.monotonic() + 60
    while not done() and time.monotonic() < end:
        time.sleep(0.05)
    return done()


@pytest.mark.slow
def test_only_listed_hosts_are_reached() -> None:
    with served({"/": "secret"}) as (other, stolen), served({}) as (host, asked):
        pages = {
            "/": f"<p>Hello<img src='http://{other}/i.png'><a href='http://{other}/'>Out</a>",
            "/there": f"http://{other}/",
        }

        async def work(page: BrowserPage) -> None:
            with served(pages) as (own, asked_of_own):
                browser_page = await browser.open()
                with pytest.raises(ToolError, match=f"{own} is not allowed; allowed: {host}"):
                    await browser_page.act("goto", f"http://{own}/")
                assert asked_of_own == []
                await browser_page.close()
            await page.act("goto", f"http://{host}/")
            assert asked[0] == "/"

        with opened(allowed=[host], allow_private=True) as browser:
            on_page(browser, work)
        with served(pages) as (own, _), opened(allowed=[own], allow_private=True) as browser:

            async def wander(page: BrowserPage) -> None:
                await page.act("goto", f"http://{own}/")
                shown = (await page.view()).shown()
                assert "Hello" in shown
                for action in [("click", 1), ("goto", f"http://{own}/there")]:
                    with pytest.raises(ToolError, match=f"{other} is not allowed"):
                        await page.act(*action)
                    assert (await page.view()).shown() == shown, "back where it was"
                with pytest.raises(ToolError, match="no page before this one"):
                    await page.act("back")
                for url in ("file:///etc/passwd", "chrome://version", "x", "http://"):
                    with pytest.raises(ToolError, match="is no address"):
                        await page.act("goto", url)

            on_page(browser, wander)
        with (
            served({"/": "Another"}) as (own, _),
            opened(allowed=[own, host], allow_private=True) as browser,
        ):

            async def return_to_another(page: BrowserPage) -> None:
                for there in (own, host):
                    await page.act("goto", f"http://{there}/")
                await page.act("back")
                assert "Another" in (await page.view()).shown()
                with pytest.raises(ToolError, match="no page before this one"):
                    await page.act("back")

            on_page(browser, return_to_another)
        with opened(allowed=[host]) as browser:

            async def private(page: BrowserPage) -> None:
                with pytest.raises(ToolError, match=r"127.0.0.1 is not at a public address"):
                    await page.act("goto", f"http://{host}/")

            on_page(browser, private)
    assert stolen == []


@pytest.mark.long
def test_what_is_in_the_way_and_images(browser: Browser) -> None:
    class Covered:
        def handle(self, request: Request) -> Response:
            return Response(WITH_SCRIPT)

    async def work(page: BrowserPage) -> None:
        await page.act("goto", START)
        with pytest.raises(ToolError, match="element 1 is covered by something else"):
            await page.act("click", 1)
        plain = await page.screenshot()
        drawn = await page.screenshot(marks=True)
        assert plain.startswith(b"\x89PNG")
        assert drawn != plain == await page.screenshot()
        with pytest.raises(ToolError, match="no key 'Entr'"):
            await page.act("press", 1, "Entr")

    on_page(browser, work, forms_test=Covered())


@pytest.mark.long
def test_a_page_that_is_nested_deeply_is_read(browser: Browser) -> None:
    class Deep:
        def handle(self, request: Request) -> Response:
            return Response(f"<!doctype html><title>x</title>{'<div>' * 600}<button>Go</button>")

    async def work(page: BrowserPage) -> None:
        await page.act("goto", START)
        assert '[1] button "Go"' in (await page.view()).shown()

    on_page(browser, work, forms_test=Deep())


@pytest.mark.slow
def test_a_page_that_hangs_is_infrastructure() -> None:
    class Hanging:
        def handle(self, request: Request) -> Response:
            if request.path == "/hang":
                return Response("<!doctype html><title>x</title><script>for (;;);</script>")
            return Everything().handle(request)

    async def work(page: BrowserPage) -> None:
        start = time.monotonic()
        with pytest.raises(InfrastructureError, match="browser: not done within 4 s"):
            await page.act("goto", f"{START}hang")
        assert time.monotonic() - start < 60
        await page.close()

    with opened(seconds=4.0) as browser:
        on_page(browser, work, forms_test=Hanging())
        browser.seconds = 120.0
        on_page(browser, lambda page: page.act("goto", START), forms_test=Everything())


@pytest.mark.long
def test_a_bug_of_a_site_is_told(browser: Browser) -> None:
    class Broken:
        def handle(self, request: Request) -> Response:
            raise KeyError("a bug")

    async def work(page: BrowserPage) -> None:
        with pytest.raises(KeyError, match="a bug"):
            await page.act("goto", START)

    on_page(browser, work, forms_test=Broken())


@pytest.mark.slow
def test_a_killed_browser_is_infrastructure_and_the_next_page_has_a_new_one() -> None:
    class Deadly(Everything):
        def handle(self, request: Request) -> Response:
            if request.path == "/t":
                kill(browser)
            return super().handle(request)

    async def work() -> None:
        page, other = [await browser.open({HOST: Deadly()}) for _ in range(2)]
        await page.act("goto", START)
        await other.act("goto", START)
        before = marked(browser._process.marker)
        assert len(before) == 1, "one process for all pages"
        assert not page.lost
        with pytest.raises(InfrastructureError, match="browser: "):
            await page.act("click", 17)
        third = await browser.open({HOST: Deadly()})
        assert page.lost
        assert other.lost
        with pytest.raises(InfrastructureError, match="it is gone"):
            await other.act("read")
        await third.act("goto", START)
        assert marked(browser._process.marker) != before
        for one in (page, other, third):
            await one.close()
            await one.close()

    with opened() as browser:
        asyncio.run(work())
        browser.close()
        assert marked(browser._process.marker) == []
        on_page(browser, lambda page: page.act("goto", START), forms_test=Everything())


@pytest.mark.long
@pytest.mark.parametrize(
    "ending",
    [
        "os.kill(os.getpid(), 9)",
        *(pytest.param(one, marks=pytest.mark.slow) for one in ("pass", "raise SystemExit(3)")),
    ],
)
def test_nothing_is_left_when_the_program_ends(ending: str) -> None:
    with opened():
        pass
    program = f"""
import asyncio, os
from turnwise_environments.tools.browser.chromium import Browser
browser = Browser(seconds=120.0)
page = asyncio.run(browser.open())
print(browser._process.marker, flush=True)
{ending}
"""
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, timeout=120
    )
    assert done.stdout.startswith("--turnwise-browser=")
    assert eventually(lambda: marked(done.stdout.strip()) == [])


@pytest.mark.long
def test_tools_for_an_environment() -> None:
    class Reading(BrowserTools, Environment):
        def __init__(self, browser: Browser) -> None:
            self.browser = browser

        async def verify(self, trajectory: Trajectory) -> Verdict:
            return Verdict(0.0, False)

    lines = "".join(f"<p>line {number}</p>" for number in range(100))
    with served({"/": f"<title>Long</title>{lines}"}) as (host, _):
        script = [
            calling("goto", url=f"http://{host}/"),
            calling("scroll", direction="down"),
            calling("goto", url="https://elsewhere.test/"),
        ]
        with opened(allowed=[host], allow_private=True) as browser:
            play = played(Reading(browser), Task("t", "Read it."), *script)
    first, second, third = play.trajectory.observed
    assert first.startswith(f"Long (http://{host}/)\nline 0\nline 1\n")
    assert second.endswith("line 99\n[lines 41 to 100 of 100: scroll for others]")
    assert third == f"Error: elsewhere.test is not allowed; allowed: {host}"


def test_without_chromium(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"`playwright install chromium`, or `apt-get install"):
        find_chromium()
    with pytest.raises(ConfigError, match="no program 'brave'"):
        find_chromium("brave")
    own = tmp_path / "chromium-1200" / "chrome-linux64" / "chrome"
    own.parent.mkdir(parents=True)
    own.touch()
    assert find_chromium() == str(own)


def test_options_that_make_no_sense() -> None:
    pytest.importorskip("playwright", reason="needs turnwise[browser]")
    for options in ({"seconds": 0.0}, {"width": 10}, {"allowed": ["http://x"]}):
        with pytest.raises(ConfigError):
            Browser(**options)
