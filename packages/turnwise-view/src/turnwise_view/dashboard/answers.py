"""The dashboard's answers: what each address of its API gives, as plain data or a file.

Not here: how they travel (`server.py`), and how they are computed.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, unquote

from turnwise.errors import ConfigError, DataError
from turnwise_view.dashboard import episodes, export, notes, reports, runs, steps, timeline
from turnwise_view.dashboard.curves import Warnings, curves
from turnwise_view.dashboard.index import Index
from turnwise_view.dashboard.tokens import ClipRange, Pieces, tokens

IMAGE = re.compile(r"[0-9a-f]{32}\.png")
MOST_EXPORTED = 1000
"""Episodes of one export, at most."""
MOST_DIGITS = 18
"""Digits of a row's number, at most."""


@dataclass(frozen=True)
class File:
    """A file as an answer; with a name it is one to take away."""

    content: bytes
    kind: str
    name: str = ""


Exporter = Callable[[Path, export.Chosen], tuple[str, bytes]]
"""Chosen episodes of a run as a file: its name and what is in it."""


class Player(Protocol):
    """Plays in the environments of runs, for a person; answers are plain data."""

    async def begin(self, run: Path, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Begin an episode, and name it as `session`."""
        ...

    async def act(self, name: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Take a turn in it."""
        ...

    async def onward(self, name: str) -> Mapping[str, Any]:
        """Take the next turn of the recorded episode that it repeats."""
        ...

    async def back(self, name: str) -> Mapping[str, Any]:
        """Take the last turn back."""
        ...


@dataclass
class Dashboard:
    """The runs that are shown, and what their answers need from higher floors."""

    runs: Mapping[str, Path]
    meanings: Mapping[str, str] = field(default_factory=dict)
    """The meaning of each metric, as in docs/reference/metrics.md."""
    warnings: Warnings = lambda lines: ()
    clip_range: ClipRange = lambda recipe: None
    exporters: Mapping[str, Exporter] = field(default_factory=dict)
    """Formats of export beside html and parquet."""
    player: Player | None = None
    index: Index = field(default_factory=Index)
    pieces: Pieces = field(default_factory=Pieces)

    def path(self, identity: str) -> Path:
        """The folder of a run. Raises ConfigError for one that is not shown, DataError for one
        with a link that leads out of it."""
        if identity not in self.runs:
            raise ConfigError(f"there is no run {identity!r} here")
        runs.check_links(self.runs[identity])
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
        """A whole number of the query, as `number` is."""
        value = self.number(name)
        return default if value is None else int(value)


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
    place = asked.whole("from", 0) or 0, asked.whole("to")
    path, number = shown.path(identity), _row(row)
    return tokens(path, name, number, place, shown.index, shown.pieces, shown.clip_range)


def _group(shown: Dashboard, asked: Asked) -> Any:
    identity, name, group = asked.names
    return episodes.group(shown.path(identity), name, group, shown.index)


def _timeline(shown: Dashboard, asked: Asked) -> Any:
    return timeline.timeline(shown.path(asked.names[0]), asked.whole("step"), shown.index)


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
    return File(content, "application/octet-stream", f"{path.name}-{name}")


def _chosen(text: str) -> list[tuple[str, int]]:
    """Episodes as in `step-000003:4,step-000003:7`."""
    pairs = [one.rpartition(":") for one in text.split(",") if one]
    if not pairs or not all(_is_row(row) for _, _, row in pairs):
        raise DataError("choose episodes as in select=step-000003:4,step-000003:7")
    if len(pairs) > MOST_EXPORTED:
        raise DataError(f"{len(pairs)} episodes are chosen: {MOST_EXPORTED} are the most")
    return [(file, int(row)) for file, _, row in pairs]


def _image(shown: Dashboard, asked: Asked) -> Any:
    path = shown.path(asked.names[0])
    file = path / "images" / asked.names[1]
    if not IMAGE.fullmatch(asked.names[1]) or not file.is_file():
        raise ConfigError("there is no such image")
    return File(file.read_bytes(), "image/png")


def _compare(shown: Dashboard, asked: Asked) -> Any:
    given = [unquote(one) for one in asked.query.get("runs", "").split(",") if one]
    if len(given) < 2:
        raise DataError("choose two runs or more to compare")
    return runs.compared({identity: shown.path(identity) for identity in given})


def _play(shown: Dashboard, asked: Asked) -> Any:
    absent = None if shown.player is not None else "There is nothing here that plays."
    return {"environments": [] if absent else runs.environments(shown.runs), "absent": absent}


async def _begin(shown: Dashboard, asked: Asked) -> Any:
    return await _player(shown).begin(shown.path(str(asked.body.get("run", ""))), asked.body)


async def _act(shown: Dashboard, asked: Asked) -> Any:
    return await _player(shown).act(asked.names[0], asked.body)


async def _onward(shown: Dashboard, asked: Asked) -> Any:
    return await _player(shown).onward(asked.names[0])


async def _back(shown: Dashboard, asked: Asked) -> Any:
    return await _player(shown).back(asked.names[0])


def _player(shown: Dashboard) -> Player:
    if shown.player is None:
        raise ConfigError("there is nothing here that plays")
    return shown.player


def _is_row(text: str) -> bool:
    return text.isdecimal() and len(text) <= MOST_DIGITS


def _row(text: str) -> int:
    if not _is_row(text):
        raise ConfigError(f"there is no row {text!r}")
    return int(text)


_RUN = ("runs", None)
_EPISODE = (*_RUN, "episodes", None, None)
ROUTES: list[tuple[str, tuple[str | None, ...], Callable[[Dashboard, Asked], Any]]] = [
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
    ("GET", ("play",), _play),
    ("POST", ("play",), _begin),
    ("POST", ("play", None), _act),
    ("POST", ("play", None, "onward"), _onward),
    ("POST", ("play", None, "back"), _back),
]
"""Method, segments of the path below /api (None is a name), and what answers."""
