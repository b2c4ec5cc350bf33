"""One Chromium for all episodes, each with a context of its own; needs the extra `browser`.

    browser = Browser(["docs.python.org"])      # the prototype's; started by the first page
    page = await browser.open()
    await page.act("goto", "https://docs.python.org/3/")

Playwright and what it starts live in a thread with its own event loop, so that any loop can use
them, one after the other. A Chromium that died is replaced when the next page is opened; it ends
with the program, or with its last `Browser`.
"""

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import sys
import threading
import weakref
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from turnwise.errors import ConfigError, InfrastructureError, first_line
from turnwise_environments.common import check_installed
from turnwise_environments.tools.browser.egress_proxy import EgressProxy
from turnwise_environments.tools.browser.sites import Site
from turnwise_environments.tools.http import Fetcher

if TYPE_CHECKING:
    from turnwise_environments.tools.browser.page import BrowserPage

Result = TypeVar("Result")

START_SECONDS, CLOSE_SECONDS = 60.0, 20.0
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
PLAYWRIGHTS = (
    "chromium-*/chrome-linux*/chrome",
    "chromium_headless_shell-*/chrome-*/*headless*shell",
    "chromium-*/chrome-mac*/*.app/Contents/MacOS/*",
)
"""Places where `playwright install chromium` puts it, below Playwright's folder."""
ARGUMENTS = (
    # Nothing but the gates is ever looked up or spoken to, by no part of the browser.
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    # A container's /dev/shm is too small for it: pages would crash.
    "--disable-dev-shm-usage",
)


class Browser:
    """The opener of pages; the prototype's, shared by all episodes."""

    def __init__(
        self,
        allowed: Sequence[str] = (),
        *,
        program: str = "",
        seconds: float = 30.0,
        width: int = 1024,
        height: int = 768,
        sandbox: bool = False,
        allow_private: bool = False,
    ) -> None:
        """`allowed` hosts as in `Fetcher`, none by default; `program` is Chromium's path, otherwise
        Playwright's own or the system's; `seconds` are for one operation. `sandbox` is Chromium's
        own, which root cannot have: set it to True for pages that you do not trust. Raises
        MissingExtraError without Playwright, ConfigError without Chromium, and as `Fetcher`."""
        check_installed("playwright", "browser")
        if seconds <= 0 or width < 100 or height < 100:
            raise ConfigError("browser: seconds is above 0, width and height are 100 or more")
        self.seconds, self.height = seconds, height
        self._fetcher = Fetcher(allowed, allow_private=allow_private) if allowed else None
        self._options = {"viewport": {"width": width, "height": height}}
        self._process = ChromiumProcess(find_chromium(program), sandbox)
        weakref.finalize(self, self._process.end)

    async def open(self, sites: Mapping[str, Site] = {}) -> "BrowserPage":
        """An empty page in a context of its own, for which `sites` are there too, by host. Raises
        InfrastructureError where it does not open in time."""
        from turnwise_environments.tools.browser.page import BrowserPage

        proxy = EgressProxy(sites, self._fetcher)
        work = self._process.open(proxy, self._options)
        context, number = await self._process.run(work, START_SECONDS)
        page = BrowserPage(self._process, number, context, proxy, self.seconds, self.height)
        try:
            await page.begin()
        except BaseException:
            await page.close()
            raise
        return page

    def close(self) -> None:
        """End Chromium and what came with it. Idempotent, bounded; the next page starts another."""
        self._process.end()


class ChromiumProcess:
    """The thread, and in it Playwright and Chromium."""

    def __init__(self, program: str, sandbox: bool) -> None:
        # An argument that this Chromium's process has and no other, to find it by.
        self.marker = f"--turnwise-browser={secrets.token_hex(8)}"
        self._program, self._sandbox = program, sandbox
        self._guard = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._launching: asyncio.Lock | None = None
        self._playwright: Any = None
        self._chromium: Any = None
        self.number = 0
        """Number of browsers started so far, which names the running one."""

    def alive(self, number: int) -> bool:
        chromium = self._chromium
        return number == self.number and chromium is not None and bool(chromium.is_connected())

    async def run(self, work: Coroutine[Any, Any, Result], seconds: float) -> Result:
        """Wait for work that is done in the thread. Raises InfrastructureError after `seconds`."""

        async def bounded() -> Result:
            try:
                async with asyncio.timeout(seconds):
                    return await work
            except TimeoutError:
                raise InfrastructureError(f"browser: not done within {seconds:g} s") from None
            except Exception as error:
                if "reading from the driver" not in str(error):
                    raise
                await self.discard(self.number)  # Playwright's driver died: a plain Exception
                raise InfrastructureError(f"browser: {first_line(error)}") from None

        future = asyncio.run_coroutine_threadsafe(bounded(), self._started_loop())
        return await asyncio.wrap_future(future)

    async def open(self, proxy: EgressProxy, options: Mapping[str, Any]) -> tuple[Any, int]:
        """A context behind a proxy, and the number of its Chromium, which is started if need be; in
        the thread."""
        from playwright.async_api import Error

        if self._launching is None:
            self._launching = asyncio.Lock()
        # Without this `bypass` what is on this machine would be reached beside the proxy.
        settings = {"server": f"http://127.0.0.1:{await proxy.open()}", "bypass": "<-loopback>"}
        try:
            for attempt in (1, 2):
                async with self._launching:
                    if not self.alive(self.number):
                        await self._launch()
                    number, chromium = self.number, self._chromium
                try:
                    made = await chromium.new_context(
                        proxy=settings, accept_downloads=False, service_workers="block", **options
                    )
                    return made, number
                except Error as error:
                    if attempt == 2:
                        raise InfrastructureError(f"browser: {first_line(error)}") from None
                    await self.discard(number)
        except BaseException:
            await proxy.close()
            raise
        raise AssertionError("a context or an error")

    async def discard(self, number: int) -> None:
        """End the Chromium of this number, with all that is open in it; in the thread."""
        if number == self.number and self._playwright is not None:
            playwright, self._playwright, self._chromium = self._playwright, None, None
            self._kill()
            with contextlib.suppress(Exception):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await playwright.stop()

    def end(self) -> None:
        """End everything. Bounded; an episode waiting for a page gets an InfrastructureError."""
        with self._guard:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None:
            return

        async def stop() -> None:
            await self.discard(self.number)
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            loop.stop()

        asyncio.run_coroutine_threadsafe(stop(), loop)
        if threading.current_thread() is not thread:  # the collector may call from anywhere
            thread.join(2 * CLOSE_SECONDS)
        self._kill()

    async def _launch(self) -> None:
        from playwright.async_api import Error, async_playwright

        await self.discard(self.number)
        self._playwright = await async_playwright().start()
        self.number += 1
        try:
            self._chromium = await self._playwright.chromium.launch(
                executable_path=self._program,
                chromium_sandbox=self._sandbox,
                args=[*ARGUMENTS, self.marker],
                timeout=1000 * START_SECONDS,
                # Signals are the program's, which closes its episodes first.
                handle_sigint=False,
                handle_sigterm=False,
                handle_sighup=False,
            )
        except Error as error:
            await self.discard(self.number)
            raise InfrastructureError(
                f"{self._program} does not start: {first_line(error)}"
            ) from None

    def _kill(self) -> None:
        """Kill Chromium's process group where one is left, even a stopped one."""
        for pid in marked(self.marker):
            with contextlib.suppress(ProcessLookupError):
                group = os.getpgid(pid)
                if group != os.getpgrp():
                    os.killpg(group, signal.SIGKILL)

    def _started_loop(self) -> asyncio.AbstractEventLoop:
        with self._guard:
            if self._loop is None:
                self._loop, self._launching = asyncio.new_event_loop(), None
                self._thread = threading.Thread(
                    target=_serve, args=[self._loop], name="browser", daemon=True
                )
                self._thread.start()
            return self._loop


def find_chromium(program: str = "") -> str:
    """The given path, else Playwright's own, else the system's. Raises ConfigError for none."""
    if program:
        found = shutil.which(program)
        if found is None:
            raise ConfigError(f"browser: there is no program {program!r}")
        return found
    folder = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or _playwrights_folder())
    own = [path for pattern in PLAYWRIGHTS for path in sorted(folder.glob(pattern), reverse=True)]
    others = [path for name in PROGRAMS if (path := shutil.which(name))]
    if not own and not others:
        raise ConfigError(
            "browser: no Chromium is installed: run `playwright install chromium`, or "
            "`apt-get install chromium`"
        )
    return str([*own, *others][0])


def marked(marker: str) -> list[int]:
    """Processes that were started with this argument; none on systems without /proc."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if marker.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


def _playwrights_folder() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "ms-playwright"
    return Path.home() / ".cache" / "ms-playwright"


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()
    loop.close()
