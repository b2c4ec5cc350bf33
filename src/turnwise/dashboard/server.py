"""The dashboard over HTTP: its pages, and what they ask of run folders as JSON.

    /                the page; /static/NAME its parts
    /api/…           see `_ROUTES`; segments are percent-encoded, so a name may have slashes
    /api/events      tells of runs that have changed, for as long as the page is open

Answers are computed in threads, one request each. Errors are one line that says what to do. Not
here: who may ask (`security.py`), and the answers themselves.
"""

import asyncio
import json
import math
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from turnwise.dashboard import episodes, export, notes, reports, runs, steps, timeline
from turnwise.dashboard.curves import Warnings, curves
from turnwise.dashboard.index import Index
from turnwise.dashboard.security import HEADERS, Door
from turnwise.dashboard.tokens import Pieces, tokens
from turnwise.dashboard.watching import changes
from turnwise.errors import ConfigError, DataError, TurnwiseError

STATIC = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
IMAGE = re.compile(r"[0-9a-f]{32}\.png")
LARGEST_BODY = 100_000
"""Bytes of a request, at most."""
MOST_EXPORTED = 1000
"""Episodes of one export, at most."""
Exporter = Callable[[Path, export.Chosen], tuple[str, bytes]]
"""Chosen episodes of a run as a file: its name and what is in it."""


@dataclass
class Dashboard:
    """The runs that are shown, and what their answers need from higher floors."""

    runs: Mapping[str, Path]
    meanings: Mapping[str, str] = field(default_factory=dict)
    """The meaning of each metric, as in docs/reference/metrics.md."""
    warnings: Warnings = lambda lines: ()
    exporters: Mapping[str, Exporter] = field(default_factory=dict)
    """Formats of export beside html and parquet."""
    index: Index = field(default_factory=Index)
    pieces: Pieces = field(default_factory=Pieces)

    def path(self, identity: str) -> Path:
        """The folder of a run. Raises ConfigError for one that is not shown."""
        if identity not in self.runs:
            raise ConfigError(f"there is no run {identity!r} here")
        return self.runs[identity]


@dataclass(frozen=True)
class Asked:
    """A request: the names in its path in order, its query, and its body where it has one."""

    names: Sequence[str]
    query: Mapping[str, str]
    body: Mapping[str, Any] = field(default_factory=dict)

    def number(self, name: str) -> float | None:
        """A number of the query; None where it is not given. Raises ConfigError for another
        value."""
        given = self.query.get(name, "")
        try:
            value = float(given) if given else None
        except ValueError:
            value = math.nan
        if value is not None and not math.isfinite(value):
            raise ConfigError(f"{name} is {given!r}: give a number")
        return value

    def whole(self, name: str, default: int | None = None) -> int | None:
        """As `number`, but a whole one."""
        value = self.number(name)
        return default if value is None else int(value)


def application(dashboard: Dashboard, door: Door) -> Starlette:
    """The dashboard as an application of ASGI."""

    async def answer(request: Request) -> Response:
        refused = door.refusal(request.headers, request.url.query)
        if refused is not None:
            return JSONResponse({"error": refused[1]}, refused[0], HEADERS)
        if door.asks(request.url.query):
            return RedirectResponse("/", 303, {**HEADERS, "set-cookie": door.cookie})
        path = request.scope["raw_path"].decode("ascii", "replace").partition("?")[0]
        if path == "/api/events" and request.method == "GET":
            return _stream(changes(dashboard.runs))
        if path.startswith("/api/"):
            return await _api(dashboard, request, path)
        return _static("index.html" if path == "/" else path.removeprefix("/static/"))

    return Starlette(routes=[Route("/{rest:path}", answer, methods=["GET", "POST"])])


async def _api(dashboard: Dashboard, request: Request, path: str) -> Response:
    segments = [unquote(one) for one in path.removeprefix("/api/").split("/")]
    found = _route(request.method, segments)
    if found is None:
        return _error(404, "there is nothing at this address")
    handler, names = found
    query = {name: given[0] for name, given in parse_qs(request.url.query).items()}
    try:
        body = await _body(request) if request.method == "POST" else {}
        result = await asyncio.to_thread(handler, dashboard, Asked(names, query, body))
    except ConfigError as error:
        return _error(404, str(error))
    except TurnwiseError as error:
        return _error(422, str(error))
    except OSError as error:
        return _error(422, f"it cannot be read: {error}")
    return result if isinstance(result, Response) else _json(result)


def _route(method: str, segments: Sequence[str]) -> tuple[Any, list[str]] | None:
    """The handler of a path and the names in it, which stand where a pattern has None."""
    for wanted, pattern, handler in _ROUTES:
        pairs = list(zip(pattern, segments, strict=False))
        if wanted != method or len(pattern) != len(segments):
            continue
        if all(word in (None, segment) for word, segment in pairs):
            return handler, [segment for word, segment in pairs if word is None]
    return None


async def _body(request: Request) -> Mapping[str, Any]:
    """The JSON object in a request's body. Raises DataError for anything else: a form of another
    site cannot send this content type."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise DataError("send JSON, with its content type")
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > LARGEST_BODY:
            raise DataError(f"the request has more than {LARGEST_BODY} bytes")
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise DataError("the body is no JSON object")
    return body


def _json(value: Any) -> Response:
    try:
        text = json.dumps(value, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(value))
    headers = {**HEADERS, "cache-control": "no-store"}
    return Response(text.encode("utf-8", "replace"), 200, headers, "application/json")


def _finite(value: Any) -> Any:
    """The value with None for each number that JSON has no word for."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list | tuple) else value


def _error(status: int, text: str) -> Response:
    return JSONResponse({"error": " ".join(text.split())}, status, HEADERS)


def _static(name: str) -> Response:
    """A file of the page itself; no other file can be named."""
    folder = resources.files("turnwise.dashboard") / "static"
    known = {one.name: one for one in folder.iterdir() if Path(one.name).suffix in STATIC}
    if name not in known:
        return _error(404, "there is nothing at this address")
    kind = STATIC[Path(name).suffix]
    return Response(known[name].read_bytes(), 200, HEADERS, f"{kind}; charset=utf-8")


def _stream(events: AsyncIterator[str]) -> Response:
    headers = {**HEADERS, "cache-control": "no-store"}
    return StreamingResponse(events, 200, headers, "text/event-stream")


def _runs(shown: Dashboard, asked: Asked) -> Any:
    return {"runs": [runs.overview(identity, path) for identity, path in shown.runs.items()]}


def _run(shown: Dashboard, asked: Asked) -> Any:
    path = shown.path(asked.names[0])
    found = runs.details(asked.names[0], path)
    readable = found["state"] != "unreadable"
    return found | {"reports": reports.reports(path) if readable else []}


def _curves(shown: Dashboard, asked: Asked) -> Any:
    return curves(shown.path(asked.names[0]), shown.meanings, shown.warnings)


def _step(shown: Dashboard, asked: Asked) -> Any:
    return steps.step(shown.path(asked.names[0]), asked.names[1], shown.index)


def _episodes(shown: Dashboard, asked: Asked) -> Any:
    path, given = shown.path(asked.names[0]), asked.query
    texts = {
        name: given.get(name, "") for name in ("file", "text", "outcome", "tool", "error", "group")
    }
    success = {"true": True, "false": False}.get(given.get("success", "").lower())
    query = episodes.Query(
        **texts,
        success=success,
        low=asked.number("low"),
        high=asked.number("high"),
        step=asked.whole("step"),
        offset=max(0, asked.whole("offset", 0) or 0),
        limit=max(1, asked.whole("limit", 50) or 50),
    )
    found = episodes.find(path, query, shown.index)
    noted = {(note["file"], note["row"]) for note in notes.read_notes(path)}
    for row in found["rows"]:
        row["note"] = (row["file"], row["row"]) in noted
    return found


def _episode(shown: Dashboard, asked: Asked) -> Any:
    path = shown.path(asked.names[0])
    found = episodes.episode(path, asked.names[1], _row(asked.names[2]), shown.index)
    own = (found["file"], found["row"])
    note = [one["text"] for one in notes.read_notes(path) if (one["file"], one["row"]) == own]
    base = f"/api/runs/{quote(asked.names[0], safe='')}"
    images = [{**one, "url": f"{base}/{one['url']}"} for one in found["images"]]
    return found | {"note": note[0] if note else None, "images": images}


def _tokens(shown: Dashboard, asked: Asked) -> Any:
    identity, name, row = asked.names
    begin, end = asked.whole("from", 0) or 0, asked.whole("to")
    path = shown.path(identity)
    return tokens(path, name, _row(row), begin, end, shown.index, shown.pieces)


def _group(shown: Dashboard, asked: Asked) -> Any:
    identity, name, group = asked.names
    return episodes.group(shown.path(identity), name, group, shown.index)


def _timeline(shown: Dashboard, asked: Asked) -> Any:
    return timeline.timeline(shown.path(asked.names[0]), asked.whole("step"))


def _reports(shown: Dashboard, asked: Asked) -> Any:
    return {"reports": reports.reports(shown.path(asked.names[0]))}


def _report(shown: Dashboard, asked: Asked) -> Any:
    return reports.report(shown.path(asked.names[0]), asked.names[1])


def _notes(shown: Dashboard, asked: Asked) -> Any:
    return {"notes": notes.read_notes(shown.path(asked.names[0]))}


def _write_note(shown: Dashboard, asked: Asked) -> Any:
    path, given = shown.path(asked.names[0]), asked.body
    file, row, text = given.get("file"), given.get("row"), given.get("text")
    whole = isinstance(row, int) and not isinstance(row, bool)
    if not (isinstance(file, str) and whole and isinstance(text, str)):
        raise DataError("a note is {file, row, text}")
    export.rows_of(path, [(file, int(str(row)))])  # there is such an episode
    notes.write_note(path, file, int(str(row)), text)
    return _notes(shown, asked)


def _export(shown: Dashboard, asked: Asked) -> Any:
    path, format_ = shown.path(asked.names[0]), asked.query.get("format", "html")
    known: dict[str, Exporter] = {
        "html": lambda run, chosen: ("episodes.html", export.as_page(run, chosen)),
        "parquet": lambda run, chosen: ("episodes.parquet", export.as_parquet(run, chosen)),
        **shown.exporters,
    }
    if format_ not in known:
        raise ConfigError(f"there is no format {format_!r}: {', '.join(known)}")
    chosen = _chosen(asked.query.get("select", ""))
    name, content = known[format_](path, chosen)
    headers = {**HEADERS, "content-disposition": f'attachment; filename="{path.name}-{name}"'}
    return Response(content, 200, headers, "application/octet-stream")


def _chosen(text: str) -> list[tuple[str, int]]:
    """Episodes as in `step-000003:4,step-000003:7`."""
    pairs = [one.rpartition(":") for one in text.split(",") if one]
    if not pairs or not all(row.isdigit() for _, _, row in pairs):
        raise DataError("choose episodes as in select=step-000003:4,step-000003:7")
    if len(pairs) > MOST_EXPORTED:
        raise DataError(f"{len(pairs)} episodes are chosen: {MOST_EXPORTED} are the most")
    return [(file, int(row)) for file, _, row in pairs]


def _image(shown: Dashboard, asked: Asked) -> Any:
    path = shown.path(asked.names[0])
    file = path / "images" / asked.names[1]
    if not IMAGE.fullmatch(asked.names[1]) or not file.is_file():
        raise ConfigError("there is no such image")
    return Response(file.read_bytes(), 200, HEADERS, "image/png")


def _compare(shown: Dashboard, asked: Asked) -> Any:
    given = [unquote(one) for one in asked.query.get("runs", "").split(",") if one]
    if len(given) < 2:
        raise DataError("choose two runs or more to compare")
    return runs.compared({identity: shown.path(identity) for identity in given})


def _row(text: str) -> int:
    if not text.isdigit():
        raise ConfigError(f"there is no row {text!r}")
    return int(text)


_RUN = ("runs", None)
_EPISODE = (*_RUN, "episodes", None, None)
_ROUTES: list[tuple[str, tuple[str | None, ...], Callable[[Dashboard, Asked], Any]]] = [
    ("GET", ("runs",), _runs),
    ("GET", _RUN, _run),
    ("GET", (*_RUN, "curves"), _curves),
    ("GET", (*_RUN, "steps", None), _step),
    ("GET", (*_RUN, "episodes"), _episodes),
    ("GET", _EPISODE, _episode),
    ("GET", (*_EPISODE, "tokens"), _tokens),
    ("GET", (*_RUN, "groups", None, None), _group),
    ("GET", (*_RUN, "timeline"), _timeline),
    ("GET", (*_RUN, "reports"), _reports),
    ("GET", (*_RUN, "reports", None), _report),
    ("GET", (*_RUN, "notes"), _notes),
    ("POST", (*_RUN, "notes"), _write_note),
    ("GET", (*_RUN, "export"), _export),
    ("GET", (*_RUN, "images", None), _image),
    ("GET", ("compare",), _compare),
]
