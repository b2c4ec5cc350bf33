"""Chosen episodes as a file to take away: one static page, or the rows as Parquet."""

import html
import io
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from turnwise.errors import DataError
from turnwise.storage.messages import messages_of
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.trajectory_rows import SCHEMA
from turnwise_view.dashboard.episodes import turns_of, why
from turnwise_view.dashboard.index import read_rows

Chosen = Sequence[tuple[str, int]]
"""Files and rows of episodes."""

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 48rem; margin: 2rem auto; padding: 0 1rem }
article { border-top: 1px solid #999; padding-top: 1rem; margin-top: 2rem }
pre { white-space: pre-wrap; overflow-wrap: anywhere; padding: .6rem; margin: .3rem 0 }
pre.policy { background: #e7f3ea; color: #10331c } pre.other { background: #f1f1f1; color: #222 }
"""


def rows_of(path: Path, chosen: Chosen) -> list[dict[str, Any]]:
    """The whole rows of some episodes, in the order in which they were chosen."""
    folder = RunFolder.open(path)
    files: dict[str, list[int]] = {}
    for name, number in chosen:
        files.setdefault(name, []).append(number)
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for name, numbers in files.items():
        rows = read_rows(folder.trajectory_file(name), numbers)
        found |= {(name, number): row for number, row in zip(numbers, rows, strict=True)}
    return [found[one] for one in chosen]


def as_parquet(path: Path, chosen: Chosen) -> tuple[str, bytes]:
    """The rows as a file of Parquet, of the same columns as the run's own."""
    target = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows_of(path, chosen), schema=SCHEMA), target)
    return "episodes.parquet", target.getvalue()


def as_page(path: Path, chosen: Chosen) -> tuple[str, bytes]:
    """The episodes as one page of HTML without scripts: what was asked, done, returned, judged."""
    rows = rows_of(path, chosen)
    articles = [
        _article(name, number, row) for (name, number), row in zip(chosen, rows, strict=True)
    ]
    title = html.escape(f"{path.name}: {len(rows)} episodes")
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{STYLE}</style></head><body><h1>{title}</h1>"
        f"{''.join(articles)}</body></html>\n"
    )
    return "episodes.html", page.encode("utf-8", "replace")


def _article(name: str, number: int, row: Mapping[str, Any]) -> str:
    turns = turns_of(row)
    reward = "none" if row["reward"] is None else f"{row['reward']:g}"
    heading = f"{name}, row {number}: {row['outcome']}, reward {reward}"
    parts = [f"<h2>{html.escape(heading)}</h2>", _text("other", row["prompt"])]
    for turn in turns:
        parts.append(f"<h3>Turn {turn['index'] + 1}</h3>")
        parts.append(_text("policy", turn["text"]))
        parts += [
            _text("other", f"{call['name']} {json.dumps(call['arguments'])}")
            for call in turn["calls"]
        ]
        if turn["observation"] is not None:
            parts.append(_text("other", turn["observation"]))
    parts += [f"<p>{html.escape(sentence)}</p>" for sentence in why(row, turns)]
    return f"<article>{''.join(parts)}</article>"


def _text(kind: str, text: str) -> str:
    return f'<pre class="{kind}">{html.escape(text)}</pre>'


def _conversations(run: Path, chosen: Chosen) -> tuple[str, bytes]:
    """Chosen episodes as conversations for `sft.demonstrations.file`, one a line. Those with a
    malformed turn cannot be demonstrations: the file's name says how many are in it."""
    from transformers import AutoTokenizer

    decode = AutoTokenizer.from_pretrained(str(run / "tokenizer")).decode
    found = [messages_of(row, decode) for row in rows_of(run, chosen)]
    lines = [json.dumps({"messages": messages}) + "\n" for messages in found if messages]
    if not lines:
        raise DataError("none of these episodes can be written as messages")
    some = f"-{len(lines)}-of-{len(found)}" if len(lines) < len(found) else ""
    return f"episodes{some}.jsonl", "".join(lines).encode()


def _atif(run: Path, chosen: Chosen) -> tuple[str, bytes]:
    from transformers import AutoTokenizer

    from turnwise_studies.formats.atif_export import trajectory_of

    folder = RunFolder.open(run)
    recipe, decode = folder.recipe(), AutoTokenizer.from_pretrained(str(folder.tokenizer)).decode
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for (name, number), row in zip(chosen, rows_of(run, chosen), strict=True):
            if row["images"] or not row["ids"]:
                why_not = "it has images" if row["images"] else "it has no tokens"
                raise DataError(f"{name}, row {number} cannot be written in ATIF: {why_not}")
            whole = f"{name}-{number:05d}"
            text = json.dumps(trajectory_of(row, whole, recipe, decode), allow_nan=False)
            archive.writestr(f"{whole}.json", text + "\n")
    return "episodes.zip", target.getvalue()


FORMATS: Mapping[str, Callable[[Path, Chosen], tuple[str, bytes]]] = {
    "html": as_page,
    "parquet": as_parquet,
    "sft": _conversations,
    "atif": _atif,
}
"""Each gives a file's name and what is in it."""
