"""The dashboard's answers: what each address of its API gives, as plain data or a file."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from turnwise.errors import ConfigError, DataError
from turnwise_view.dashboard import episodes, export, notes, reports, runs, steps, timeline
from turnwise_view.dashboard.curves import Warnings, curves
from turnwise_view.dashboard.index import Index
from turnwise_view.dashboard.tokens import Pieces, tokens

if TYPE_CHECKING:
    from turnwise_view.playing import Player

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


@dataclass
class Dashboard:
    """The runs that are shown, and what their answers need from higher floors."""

    runs: Mapping[str, Path]
    meanings: Mapping[str, str]
    """The meaning of each metric, as in docs/reference/metrics.md."""
    warnings: Warnings
    player: "Player"
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

    def whole(self, name: str) -> int | None:
        """A whole number of the query, as `number` is."""
        value = self.number(name)
        return None if value is None else int(value)


Handler = Callable[[Dashboard, Asked], Any]


def _run(shown: Dashboard, path: Path, asked: Asked) -> Any:
    found = runs.details(asked.names[0], path)
    readable = found["state"] != "unreadable"
    return found | {"reports": reports.reports(path) if readable else []}


def _episodes(shown: Dashboard, path: Path, asked: Asked) -> Any:
    given = asked.query
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
        offset=max(0, asked.whole("offset") or 0),
        limit=max(1, asked.whole("limit") or 50),
    )
    found = episodes.find(path, query, shown.index)
    noted = {(note["file"], note["row"]) for note in notes.read_notes(path)}
    for row in found["rows"]:
        row["note"] = (row["file"], row["row"]) in noted
    return found


def _episode(shown: Dashboard, path: Path, asked: Asked, file: str, row: str) -> Any:
    found = episodes.episode(path, file, _row(row), shown.index)
    own = (found["file"], found["row"])
    note = [one["text"] for one in notes.read_notes(path) if (one["file"], one["row"]) == own]
    base = f"/api/runs/{quote(asked.names[0], safe='')}"
    images = [{**one, "url": f"{base}/{one['url']}"} for one in found["images"]]
    return found | {"note": note[0] if note else None, "images": images}


def _tokens(shown: Dashboard, path: Path, asked: Asked, file: str, row: str) -> Any:
    place = asked.whole("from") or 0, asked.whole("to")
    return tokens(path, file, _row(row), place, shown.index, shown.pieces)


def _notes(shown: Dashboard, path: Path, asked: Asked) -> Any:
    return {"notes": notes.read_notes(path)}


def _write_note(shown: Dashboard, path: Path, asked: Asked) -> Any:
    file, row, text = (asked.body.get(name) for name in ("file", "row", "text"))
    if not (isinstance(file, str) and type(row) is int and isinstance(text, str)):
        raise DataError("a note is {file, row, text}")
    export.rows_of(path, [(file, row)])  # there is such an episode
    notes.write_note(path, file, row, text)
    return _notes(shown, path, asked)


def _export(shown: Dashboard, path: Path, asked: Asked) -> Any:
    format_ = asked.query.get("format", "html")
    if format_ not in export.FORMATS:
        raise ConfigError(f"there is no format {format_!r}: {', '.join(export.FORMATS)}")
    name, content = export.FORMATS[format_](path, _chosen(asked.query.get("select", "")))
    return File(content, "application/octet-stream", f"{path.name}-{name}")


def _chosen(text: str) -> list[tuple[str, int]]:
    """Episodes as in `step-000003:4,step-000003:7`."""
    pairs = [one.rpartition(":") for one in text.split(",") if one]
    if not pairs or not all(_is_row(row) for _, _, row in pairs):
        raise DataError("choose episodes as in select=step-000003:4,step-000003:7")
    if len(pairs) > MOST_EXPORTED:
        raise DataError(f"{len(pairs)} episodes are chosen: {MOST_EXPORTED} are the most")
    return [(file, int(row)) for file, _, row in pairs]


def _image(shown: Dashboard, path: Path, asked: Asked, name: str) -> Any:
    file = path / "images" / name
    if not IMAGE.fullmatch(name) or not file.is_file():
        raise ConfigError("there is no such image")
    return File(file.read_bytes(), "image/png")


def _compare(shown: Dashboard, asked: Asked) -> Any:
    given = [unquote(one) for one in asked.query.get("runs", "").split(",") if one]
    if len(given) < 2:
        raise DataError("choose two runs or more to compare")
    return runs.compared({identity: shown.path(identity) for identity in given})


def _begin(shown: Dashboard, asked: Asked) -> Any:
    return shown.player.begin(shown.path(str(asked.body.get("run", ""))), asked.body)


def _is_row(text: str) -> bool:
    return text.isdecimal() and len(text) <= MOST_DIGITS


def _row(text: str) -> int:
    if not _is_row(text):
        raise ConfigError(f"there is no row {text!r}")
    return int(text)


OF_RUN: Mapping[str, Callable[..., Any]] = {
    "GET": _run,
    "GET curves": lambda shown, path, _: curves(path, shown.meanings, shown.warnings),
    "GET steps/*": lambda shown, path, _, file: steps.step(path, file, shown.index),
    "GET episodes": _episodes,
    "GET episodes/*/*": _episode,
    "GET episodes/*/*/tokens": _tokens,
    "GET groups/*/*": lambda shown, path, _, file, name: episodes.group(
        path, file, name, shown.index
    ),
    "GET timeline": lambda shown, path, asked: timeline.timeline(
        path, asked.whole("step"), shown.index
    ),
    "GET reports": lambda _, path, __: {"reports": reports.reports(path)},
    "GET reports/*": lambda _, path, __, name: reports.report(path, name),
    "GET notes": _notes,
    "POST notes": _write_note,
    "GET export": _export,
    "GET images/*": _image,
}
"""Answers on one run, by the path below it: `answer(dashboard, the run's folder, request, names…)`,
where a name is any segment."""


def _on_run(answer: Callable[..., Any]) -> Handler:
    return lambda shown, asked: answer(shown, shown.path(asked.names[0]), asked, *asked.names[1:])


ROUTES: Mapping[str, Handler] = {
    "GET runs": lambda shown, _: {"runs": [runs.overview(*one) for one in shown.runs.items()]},
    **{
        "/".join([f"{method} runs/*", *path]): _on_run(answer)
        for (method, *path), answer in ((key.split(), one) for key, one in OF_RUN.items())
    },
    "GET compare": _compare,
    "GET play": lambda shown, _: {"environments": runs.environments(shown.runs)},
    "POST play": _begin,
    "POST play/*": lambda shown, asked: shown.player.act(asked.names[0], asked.body),
    "POST play/*/onward": lambda shown, asked: shown.player.onward(asked.names[0]),
    "POST play/*/back": lambda shown, asked: shown.player.back(asked.names[0]),
}
"""The answers by method and path below /api: a value, or something to wait for."""
