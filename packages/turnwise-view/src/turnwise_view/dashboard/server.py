"""The dashboard over HTTP: its pages, and what they ask of run folders as JSON.

    /                the page; /static/NAME its parts
    /api/…           see `answers.ROUTES`; segments are percent-encoded, so a name may have slashes
    /api/events      tells of runs that have changed, for as long as the page is open

Answers are computed in threads, one request each. Errors are one line that says what to do.
"""

import asyncio
import inspect
import json
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from turnwise.errors import ConfigError, DataError, TurnwiseError
from turnwise_view.dashboard.answers import ROUTES, Asked, Dashboard, File
from turnwise_view.dashboard.curves import LOGS
from turnwise_view.dashboard.security import HEADERS, AccessGuard

STATIC = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
LARGEST_BODY = 100_000
"""Bytes of a request, at most."""
LOOK_SECONDS = 1.0
KEEP_ALIVE_SECONDS = 15.0
WATCHED = (
    *(f"{log}.jsonl" for log in (*LOGS, "no_signal", "moves")),
    *("trajectories", "evaluations", "report.json", "lock"),
)
"""Files and folders of a run that change when it has something new to show."""


def application(dashboard: Dashboard, door: AccessGuard) -> Starlette:

    async def answer(request: Request) -> Response:
        refused = door.refusal(request.headers, request.url.query)
        if refused is not None:
            return JSONResponse({"error": refused[1]}, refused[0], HEADERS)
        if door.asks(request.url.query):
            return RedirectResponse("/", 303, {**HEADERS, "set-cookie": door.cookie})
        # Still encoded: decoded, the slashes in a name would look like those between names.
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
        if inspect.isawaitable(result):  # of what plays, which waits by itself
            result = await result
    except ConfigError as error:
        return _error(404, str(error))
    except TurnwiseError as error:
        return _error(422, str(error))
    except OSError as error:
        return _error(422, f"it cannot be read: {error}")
    return _file(result) if isinstance(result, File) else _json(result)


def _route(method: str, segments: Sequence[str]) -> tuple[Any, list[str]] | None:
    """The handler of a path and the names in it, which stand where a pattern has a star."""
    for address, handler in ROUTES.items():
        wanted, pattern = address.split()
        pairs = list(zip(pattern.split("/"), segments, strict=False))
        if wanted != method or len(pattern.split("/")) != len(segments):
            continue
        if all(word in ("*", segment) for word, segment in pairs):
            return handler, [segment for word, segment in pairs if word == "*"]
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
    except ValueError:  # seldom, so that others are not copied for it
        text = json.dumps(_finite(value))
    headers = {**HEADERS, "cache-control": "no-store"}
    return Response(text.encode(), 200, headers, "application/json")


def _file(file: File) -> Response:
    # Encoded: a header has no letters but those of Latin-1, and a run's folder may have any.
    name = quote(file.name, errors="replace")
    taken = {"content-disposition": f"attachment; filename*=UTF-8''{name}"} if name else {}
    return Response(file.content, 200, {**HEADERS, **taken}, file.kind)


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
    folder = resources.files("turnwise_view.dashboard") / "static"
    known = {
        f"{place}{one.name}": one for place in ("", "vendor/") for one in (folder / place).iterdir()
    }
    if name not in known or Path(name).suffix not in STATIC:
        return _error(404, "there is nothing at this address")
    kind = STATIC[Path(name).suffix]
    return Response(known[name].read_bytes(), 200, HEADERS, f"{kind}; charset=utf-8")


def _stream(events: AsyncIterator[str]) -> Response:
    headers = {**HEADERS, "cache-control": "no-store"}
    return StreamingResponse(events, 200, headers, "text/event-stream")


async def changes(runs: Mapping[str, Path]) -> AsyncIterator[str]:
    """Server-sent events, one whenever runs have changed, and a comment every 15 s."""
    seen = await asyncio.to_thread(_looks, runs)
    silent = 0.0
    yield ": connected\n\n"
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        now = await asyncio.to_thread(_looks, runs)
        changed = [identity for identity in runs if now[identity] != seen[identity]]
        seen, silent = now, 0.0 if changed else silent + LOOK_SECONDS
        if changed:
            yield f"event: changed\ndata: {json.dumps({'runs': changed})}\n\n"
        elif silent >= KEEP_ALIVE_SECONDS:
            silent = 0.0
            yield ": keep-alive\n\n"


def _looks(runs: Mapping[str, Path]) -> dict[str, tuple[tuple[int, int], ...]]:
    return {
        identity: tuple(_look(path / name) for name in WATCHED) for identity, path in runs.items()
    }


def _look(file: Path) -> tuple[int, int]:
    try:
        status = file.stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size
