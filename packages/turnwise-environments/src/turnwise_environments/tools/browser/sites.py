"""A web site as an object: requests in, pages out, no server and no network.

    class Hello:
        def handle(self, request: Request) -> Response:
            return Response(page("Hello", f"<p>Hello, {escape(request.query.get('name', ''))}"))

Both Chromium (through `egress_proxy.py`) and the reader of plain pages (`static_page.py`) ask it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Literal, Protocol
from urllib.parse import parse_qsl, urlsplit

STYLE = (
    "body{font:16px sans-serif;margin:24px;max-width:760px}label{display:block;margin:6px 0}"
    "table{border-collapse:collapse}td,th{border:1px solid #bbb;padding:4px 8px;text-align:left}"
    "nav a{margin-right:12px}button,input,select,textarea{font:inherit;margin:2px}"
    "ul{padding-left:20px}summary{cursor:pointer}"
)


@dataclass(frozen=True)
class Request:
    """Example: Request("POST", "/send", {}, [("to", "ann"), ("tag", "a"), ("tag", "b")])."""

    method: Literal["GET", "POST"]
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    """The query's values; of a name that comes twice, the last."""
    form: tuple[tuple[str, str], ...] = ()
    """The fields that a form sent, in its order; ends of lines are \\n."""


@dataclass(frozen=True)
class Response:
    """A page, or with `location` where to go on: a path of the same site, asked for with GET."""

    html: str = ""
    location: str = ""
    status: int = 200


class Site(Protocol):
    """Answers requests. A GET changes nothing that a second one would not change too."""

    def handle(self, request: Request) -> Response:
        """The answer; called for one request at a time."""
        ...


def request_of(method: str, target: str, body: str = "") -> Request:
    """A request by its address and the encoded form that it sends."""
    parts = urlsplit(target)
    form = parse_qsl(body, keep_blank_values=True) if method == "POST" else []
    return Request(
        "POST" if method == "POST" else "GET",
        parts.path or "/",
        dict(parse_qsl(parts.query, keep_blank_values=True)),
        tuple((name, value.replace("\r\n", "\n")) for name, value in form),
    )


def page(title: str, body: str) -> str:
    """A whole page; `body` is HTML. It has no script, and an empty icon: browsers ask for none."""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<link rel="icon" href="data:,"><style>{STYLE}</style></head>'
        f"<body><h1>{escape(title)}</h1>{body}</body></html>"
    )
