"""Fetching pages for an agent: GET only, from hosts on a list, within limits.

    fetcher = Fetcher(["docs.python.org", "*.example.org"])
    fetcher.fetch("https://docs.python.org/3/")

Every address is looked up once, must be a public one, and is the one that is connected to: neither
a redirect nor a second answer of the name server leads elsewhere. No cookies, no credentials, no
proxy. Not here: pages that need a browser, and the truth of what a page says.
"""

import contextlib
import http.client
import ipaddress
import socket
import ssl
import string
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from urllib.parse import SplitResult, quote, urljoin, urlsplit, urlunsplit

import httpx2
from lxml import etree

from turnwise.errors import ConfigError, InfrastructureError, ToolError
from turnwise.tools.tool import tool
from turnwise.types import encodable

PORTS = {"http": 80, "https": 443}
REDIRECTS = (301, 302, 303, 307, 308)
SKIPPED = ("script", "style", "noscript", "template", "svg", "title")
_CHUNK = 1 << 16


@dataclass(frozen=True)
class Page:
    """A server's answer. Example: Page("https://a.org/", 200, "text/html", b"<p>hi", False)."""

    url: str
    status: int
    kind: str
    body: bytes
    cut: bool
    """Whether there was more than is allowed."""
    charset: str = "utf-8"


class Fetcher:
    """Fetches pages from listed hosts."""

    def __init__(
        self,
        allowed: Sequence[str],
        *,
        seconds: float = 10.0,
        max_bytes: int = 1 << 20,
        max_redirects: int = 5,
        shown: int = 8000,
        allow_private: bool = False,
    ) -> None:
        """`allowed` are hosts, `docs.python.org` or `*.example.org` (which is not example.org
        itself), with a port where it is not the scheme's own: `localhost:8000`. A fetch with all
        its redirects takes `seconds` at most; of a page `max_bytes` are read, and `shown`
        characters are shown. `allow_private` lets listed hosts have addresses that are not public.
        Raises ConfigError for an empty list, and for limits below 1."""
        if not allowed or any("/" in host or not host.strip() for host in allowed):
            raise ConfigError("http: allowed is a list of hosts, such as docs.python.org")
        if seconds <= 0 or max_bytes < 1 or max_redirects < 0 or shown < 1:
            raise ConfigError("http: seconds, max_bytes and shown are above 0, max_redirects 0 on")
        self.allowed = [host.lower() for host in allowed]
        self.seconds, self.max_bytes = seconds, max_bytes
        self.max_redirects, self.shown, self.allow_private = max_redirects, shown, allow_private

    def fetch(self, url: str) -> str:
        """The text of a page, with its address and status where they are not as asked. Raises
        ToolError for pages that the agent may not have or a malformed address, and
        InfrastructureError where the server cannot be reached, or not in time."""
        page = self.page(url)
        text = text_of(page)
        left_out = len(text) - self.shown
        notes = []
        if page.url != url:
            notes.append(f"[from {page.url}]")
        if page.status != 200:
            notes.append(f"[status {page.status} {http.client.responses.get(page.status, '')}]")
        if left_out > 0:
            text = f"{text[: self.shown]}\n[{left_out} more characters]"
        if page.cut:
            text = f"{text}\n[the page is longer than {self.max_bytes} bytes]"
        return "\n".join([*notes, text or "(empty)"])

    def page(self, url: str) -> Page:
        """Fetch a page as `fetch` does, with its bytes."""
        until = time.monotonic() + self.seconds
        for _ in range(self.max_redirects + 1):
            parts, addresses = self.checked(url)
            try:
                found = self._get(parts, addresses, until)
            except (OSError, http.client.HTTPException) as error:
                late = time.monotonic() >= until
                reason = f"no answer within {self.seconds:g} s" if late else str(error)
                raise InfrastructureError(f"{parts.netloc}: {reason}") from None
            if isinstance(found, Page):
                return found
            try:
                url = urljoin(urlunsplit(parts), found)
            except ValueError:
                raise ToolError(f"{parts.netloc} leads to {found!r}, which is no address") from None
        raise ToolError(f"more than {self.max_redirects} redirects")

    def checked(self, url: str) -> tuple[SplitResult, list[str]]:
        """The parts of an address that may be fetched, and the IP addresses of its host. Raises
        ToolError for one that may not, InfrastructureError where its host is not found."""
        try:
            parts = urlsplit(url.strip())
            host, port = (parts.hostname or "").lower(), parts.port
        except ValueError:
            raise ToolError(f"{url!r} is no address: write https://host/path") from None
        if parts.scheme not in PORTS or not host or not url.isprintable():
            raise ToolError(f"{url!r} is no address: write https://host/path")
        if parts.username is not None or parts.password is not None:
            raise ToolError("an address with a user or a password is not fetched")
        own = PORTS[parts.scheme]
        name = f"[{host}]" if ":" in host else host
        names = [f"{name}:{port or own}", *([name] if port in (None, own) else [])]
        if not any(_fits(name, pattern) for name in names for pattern in self.allowed):
            raise ToolError(f"{names[-1]} is not allowed; allowed: {', '.join(self.allowed)}")
        return parts._replace(fragment=""), self._addresses(host, port or own)

    def _addresses(self, host: str, port: int) -> list[str]:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise InfrastructureError(f"{host} cannot be looked up: {error}") from None
        addresses = [str(entry[4][0]) for entry in found]
        if not self.allow_private and not all(map(_is_public, addresses)):
            raise ToolError(f"{host} is not at a public address")
        return addresses

    def _get(self, parts: SplitResult, addresses: Sequence[str], until: float) -> Page | str:
        """A page, or where it is now."""
        host = parts.hostname or ""
        port = parts.port or PORTS[parts.scheme]
        connection = http.client.HTTPConnection(host, port)
        plain = _connected([(address, port) for address in addresses], until)
        held = [plain]
        with _ended_at(held, until):
            if parts.scheme == "https":
                context = ssl.create_default_context()
                # Wrapped before the handshake, which is then under the same deadline.
                held[0] = context.wrap_socket(
                    plain, server_hostname=host, do_handshake_on_connect=False
                )
                held[0].do_handshake()  # type: ignore[attr-defined]
            connection.sock = held[0]  # by itself it would look the name up again
            with contextlib.closing(connection):
                path = urlunsplit(("", "", parts.path or "/", parts.query, ""))
                headers = {
                    "Accept": "text/*, application/json",
                    "Accept-Encoding": "identity",
                    "Connection": "close",
                    "Host": parts.netloc.encode("idna").decode(),
                    "User-Agent": "turnwise",
                }
                connection.request("GET", quote(path, safe=string.punctuation), headers=headers)
                return self._read(connection.getresponse(), parts)

    def _read(self, response: http.client.HTTPResponse, parts: SplitResult) -> Page | str:
        target = response.getheader("Location")
        if response.status in REDIRECTS and target:
            return target
        body = bytearray()
        while len(body) <= self.max_bytes and (chunk := response.read(_CHUNK)):
            body += chunk
        return Page(
            urlunsplit(parts),
            response.status,
            response.headers.get_content_type(),
            bytes(body[: self.max_bytes]),
            len(body) > self.max_bytes,
            response.headers.get_content_charset() or "utf-8",
        )


class HttpTools:
    """The tool of a fetcher, for an environment to derive from. What is fetched is not in its
    state."""

    fetcher: Fetcher

    @tool
    def fetch(self, url: str) -> str:
        """Fetch a web page as text."""
        return self.fetcher.fetch(url)


def text_of(page: Page) -> str:
    """The text of a page: HTML's text, other text as it is, and a note on anything else."""
    kind = page.kind
    if not kind.startswith("text/") and not kind.endswith(("json", "xml", "javascript")):
        return f"[{len(page.body)} bytes of {kind}: no text]"
    try:
        text = page.body.decode(page.charset, errors="replace")
    except (LookupError, ValueError):  # codecs such as idna refuse to replace
        text = page.body.decode(errors="replace")
    text = encodable(text).replace("\0", "")
    if kind not in ("text/html", "application/xhtml+xml"):
        return text
    # The standard library's parser takes minutes for 60 kB of "<a ".
    parser = etree.HTMLParser(target=_Reader(), huge_tree=True)
    parser.feed(text)
    lines = (" ".join(line.split()) for line in parser.close().split("\n"))
    return "\n".join(line for line in lines if line)


class _Reader:
    """Collects text; each tag that begins a block begins a line."""

    def __init__(self) -> None:
        self._found: list[str] = []
        self._skipped = 0

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        del attributes
        self._skipped += tag in SKIPPED
        if tag not in ("a", "b", "i", "em", "strong", "code", "span", "sub", "sup", "small"):
            self._found.append("\n")

    def end(self, tag: str) -> None:
        self._skipped -= tag in SKIPPED

    def data(self, data: str) -> None:
        if not self._skipped:
            self._found.append(data.replace("\n", " "))

    def close(self) -> str:
        return "".join(self._found)


@contextlib.contextmanager
def _ended_at(held: list[socket.socket], until: float) -> Iterator[None]:
    """Ends the connection in `held` at a time: a server that sends a byte now and then would never
    run into a timeout."""

    def end() -> None:
        with contextlib.suppress(OSError):
            held[0].shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(max(until - time.monotonic(), 0.0), end)
    timer.daemon = True
    timer.start()
    try:
        yield
        if time.monotonic() >= until:
            raise TimeoutError("the page did not come to its end in time")
    finally:
        timer.cancel()
        held[0].close()


def _connected(places: Sequence[tuple[str, int]], until: float) -> socket.socket:
    """A connection to the first that takes one: of localhost's two, a server may be at either."""
    for place in places[:-1]:
        with contextlib.suppress(OSError):
            return socket.create_connection(place, timeout=max(until - time.monotonic(), 0.001))
    return socket.create_connection(places[-1], timeout=max(until - time.monotonic(), 0.001))


def is_address(url: str) -> bool:
    """Whether it is one of HTTP, with a host."""
    try:
        httpx2.URL(url)  # takes some that the other one refuses, and the other way round
        parts = urlsplit(url)
    except (ValueError, httpx2.InvalidURL):
        return False
    return parts.scheme in PORTS and bool(parts.hostname)


def _fits(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) if pattern.startswith("*.") else name == pattern


def _is_public(address: str) -> bool:
    found = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(found, "ipv4_mapped", None)
    return bool((mapped or found).is_global) and not found.is_multicast
