"""Fetching, against a server of this file's own: the list, redirects, addresses, sizes, times."""

import shutil
import ssl
import subprocess
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

import pytest

from serving_running import http_server
from turnwise.errors import ConfigError, InfrastructureError, ToolError
from turnwise.tools.tool import tools_of
from turnwise_environments.tools.http import Fetcher, HttpTools, Page, _is_public, text_of

HTML = (
    "<html><head><title>T</title><style>p {}</style></head><body><h1>Big\nnews</h1>"
    "<p>One <b>bold</b>\nword</p><script>x = '<p>no</p>'</script><ul><li>a<li>b &amp; c</ul></body>"
)


PAGES = {
    "/html": (HTML.encode(), "text/html; charset=utf-8"),
    "/latin": (b"caf\xe9", "text/plain; charset=latin-1"),
    "/odd": (b"caf\xe9\0", "text/plain; charset=none-such"),
    "/image": (b"\x89PNG\0", "image/png"),
    "/big": (b"x" * 50_000, "text/plain"),
    "/gone": (b"not here", "text/plain"),
}


class Handler(BaseHTTPRequestHandler):
    """A page for each path; redirects, and one that is slow."""

    seen: ClassVar[list[tuple[str, str]]] = []

    def do_GET(self) -> None:
        self.seen.append((self.path, self.headers["Host"]))
        name = self.path.split("?")[0]
        if name == "/slow":
            self._slowly()
        elif name == "/loop":
            self._answer(302, b"", {"Location": "/loop"})
        elif name.startswith("/to/"):
            self._answer(302, b"", {"Location": self.path[4:]})
        else:
            body, kind = PAGES.get(name, (b"", "text/plain"))
            self._answer(404 if name == "/gone" else 200, body, {"Content-Type": kind})

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _slowly(self) -> None:
        """A byte at a time, never late for a timeout of one byte, for a minute or more."""
        self.send_response(200)
        self.end_headers()
        for _ in range(1200):
            try:
                self.wfile.write(b".")
                self.wfile.flush()
            except OSError:
                return
            time.sleep(0.05)

    def log_message(self, format: str, *args: object) -> None:
        del format, args


@pytest.fixture(scope="module")
def place() -> Iterator[str]:
    with http_server(Handler) as found:
        yield found


@pytest.fixture
def fetcher(place: str) -> Fetcher:
    return Fetcher([place], seconds=60.0, max_bytes=20_000, shown=500, allow_private=True)


def test_pages_as_text(fetcher: Fetcher, place: str) -> None:
    assert fetcher.fetch(f"http://{place}/html") == "Big news\nOne bold word\na\nb & c"
    assert fetcher.fetch(f"http://{place}/latin") == "café"
    assert fetcher.fetch(f"http://{place}/odd") == "caf\ufffd"
    assert fetcher.fetch(f"http://{place}/image") == "[5 bytes of image/png: no text]"
    assert fetcher.fetch(f"http://{place}/gone") == "[status 404 Not Found]\nnot here"
    assert fetcher.fetch(f"http://{place}") == "(empty)"
    Handler.seen.clear()
    fetcher.fetch(f"http://{place}/ä b?q=ü#part")
    assert Handler.seen == [("/%C3%A4%20b?q=%C3%BC", place)]


def test_what_is_longer_is_cut(fetcher: Fetcher, place: str) -> None:
    text = fetcher.fetch(f"http://{place}/big")
    assert text == f"{'x' * 500}\n[19500 more characters]\n[the page is longer than 20000 bytes]"


def test_redirects_are_held_to_the_same_rules(fetcher: Fetcher, place: str) -> None:
    assert fetcher.fetch(f"http://{place}/to//html").startswith(f"[from http://{place}/html]\nBig")
    with pytest.raises(ToolError, match="more than 5 redirects"):
        fetcher.fetch(f"http://{place}/loop")
    for target in (
        "http://localhost:1/",
        "http://example.org/",
        "file:///etc/passwd",
        "//x.org/",
        "http://[",
    ):
        with pytest.raises(ToolError, match=r"not allowed|no address"):
            fetcher.fetch(f"http://{place}/to/{target}")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://example.org/", "example.org is not allowed"),
        ("http://127.0.0.1/", "127.0.0.1 is not allowed"),
        ("ftp://PLACE/", "no address"),
        ("file:///etc/passwd", "no address"),
        ("PLACE/html", "no address"),
        ("http://PLACE\r\nX: y/", "no address"),
        ("http://user:secret@PLACE/", "a user or a password"),
        ("http://PLACE.example.org/", "no address"),
        ("http://[::1/", "no address"),
        ("", "no address"),
    ],
)
def test_what_is_not_fetched(fetcher: Fetcher, place: str, url: str, message: str) -> None:
    with pytest.raises(ToolError, match=message):
        fetcher.fetch(url.replace("PLACE", place))


def test_addresses_that_are_not_public_are_refused(place: str) -> None:
    port = place.partition(":")[2]
    for host in ("127.0.0.1", "localhost"):
        with pytest.raises(ToolError, match="not at a public address"):
            Fetcher([f"{host}:{port}"]).fetch(f"http://{host}:{port}/html")
    refused = ("10.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "fe80::1%eth0", "0.0.0.0")
    assert not any(map(_is_public, refused))
    assert all(map(_is_public, ("93.184.216.34", "2606:2800:220:1::1")))


@pytest.mark.parametrize("host", ["127.0.0.1:80", "[::1]:8000"])
def test_a_port_may_be_named_that_is_the_schemes_own(host: str) -> None:
    assert Fetcher([host], allow_private=True).checked(f"http://{host}/")[1][0] in host


def test_an_address_that_does_not_answer_and_a_name_in_another_script(
    fetcher: Fetcher, place: str
) -> None:
    host, _, port = place.partition(":")
    Handler.seen.clear()
    fetcher._get(urlsplit(f"http://日.test:{port}/html"), ["::1", host], time.monotonic() + 60)
    assert Handler.seen == [("/html", f"xn--wgv.test:{port}")]


@pytest.mark.parametrize("charset", ["idna", "a\0b", "none"])
def test_a_page_whose_head_or_charset_is_odd(charset: str) -> None:
    page = Page("", 200, "text/html", b"<head><title>a</title><body>b", False, charset)
    assert text_of(page) == "b"


def test_half_a_character_is_none() -> None:
    assert text_of(Page("", 200, "text/html", b"a+2AA-", False, "utf-7")) == "a?"


@pytest.mark.parametrize("opened", ["<a ", "<a b='", "<!--", "<div>"])
def test_a_hostile_page_is_read_in_the_time_of_a_plain_one(opened: str) -> None:
    """A mebibyte of what is never closed, which took a parser minutes, and no deadline ends it."""
    body = (opened * (1 << 20))[: 1 << 20].encode()
    begun = time.process_time()
    text_of(Page("", 200, "text/html", body, False))
    assert time.process_time() - begun < 20


def test_patterns_of_hosts() -> None:
    fetcher = Fetcher(["*.example.invalid", "one.invalid"])
    for url in ("http://example.invalid/", "http://xexample.invalid/", "http://a.one.invalid/"):
        with pytest.raises(ToolError, match="not allowed"):
            fetcher.fetch(url)
    for url in ("http://a.example.invalid/", "http://ONE.invalid:80/"):
        with pytest.raises(InfrastructureError, match="cannot be looked up"):
            fetcher.fetch(url)


def test_a_server_that_never_ends_is_ended(place: str) -> None:
    fetcher = Fetcher([place], seconds=0.4, allow_private=True)
    start = time.monotonic()
    with pytest.raises(InfrastructureError, match=r"no answer within 0.4 s"):
        fetcher.fetch(f"http://{place}/slow")
    assert time.monotonic() - start < 60


def test_a_server_that_is_not_there() -> None:
    fetcher = Fetcher(["127.0.0.1:9"], seconds=60.0, allow_private=True)
    with pytest.raises(InfrastructureError, match=r"127\.0\.0\.1:9"):
        fetcher.fetch("http://127.0.0.1:9/")


@pytest.fixture
def secure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The same server over TLS, under a certificate that is trusted here."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not here to make a certificate")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    subprocess.run([*command, *files, *names], check=True, capture_output=True)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with http_server(Handler, context) as found:
        yield found.replace("127.0.0.1", "localhost")


@pytest.mark.long
def test_tls_with_its_deadline_and_its_names(secure: str) -> None:
    other = secure.replace("localhost", "127.0.0.1")
    fetcher = Fetcher([secure, other], seconds=60.0, allow_private=True)
    hasty = Fetcher([secure], seconds=1.0, allow_private=True)
    assert fetcher.fetch(f"https://{secure}/latin") == "café"
    start = time.monotonic()
    with pytest.raises(InfrastructureError, match="no answer within 1 s"):
        hasty.fetch(f"https://{secure}/slow")
    assert time.monotonic() - start < 60
    with pytest.raises(InfrastructureError, match="certificate"):
        fetcher.fetch(f"https://{other}/latin")


@pytest.mark.parametrize(
    "options", [{"allowed": []}, {"allowed": ["https://a.org/"]}, {"seconds": 0}, {"max_bytes": 0}]
)
def test_options_that_make_no_sense(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="http"):
        Fetcher(**{"allowed": ["a.org"], **options})


def test_as_a_tool(fetcher: Fetcher) -> None:
    class Mine(HttpTools):
        pass

    mine = Mine()
    mine.fetcher = fetcher
    assert list(tools_of(mine)) == ["fetch"]
    assert text_of(Page("", 200, "application/json", b'{"a": 1}', False)) == '{"a": 1}'
