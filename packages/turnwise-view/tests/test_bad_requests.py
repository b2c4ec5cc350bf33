"""Whatever stands in an address or a body is answered: found, or refused with a line."""

import itertools
import json
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from dashboard_asking import admitted
from dashboard_sample_run import finish
from turnwise_view.dashboard.answers import ROUTES
from turnwise_view.dashboard.notes import notes_file

STRANGE = (
    *("", "²", "٣", "-1", "1.5", "nan", "1e308", "9" * 5000, "0" * 5000, "step-²", "a" * 5000),
    *("\0", "\ud800", "..", "../../config.toml", "/etc/passwd", "(" * 9000, "\\", '"', "%"),
    *(":²", "s:9"),
)
QUERIES = {
    "episodes": ("text", "tool", "error", "group", "file", "outcome", "success", "low", "high"),
    "episodes?file=step-000003": ("step", "offset", "limit"),
    "export": ("format", "select"),
    "timeline": ("step",),
    "episodes/step-000003/0/tokens": ("from", "to"),
    "compare": ("runs",),
}
BODIES: list[Any] = [
    *([], "x", None, {}, {"calls": 5}, {"calls": {"a": 1}}, {"calls": "ab"}, {"text": "\ud800"}),
    *({"calls": [{"name": name, "arguments": {name: name}}]} for name in ("search", "\ud800", "")),
    *({"run": "0", "task": one} for one in (*STRANGE, None, 5, [], {})),
    *({"run": "0", "seed": one} for one in (10**4000, -1, 1.5, "1", None, True)),
    {"run": "0", "file": "step-000001", "row": 10**4000, "turn": 0},
    *({"file": one, "row": 0, "text": "\ud800"} for one in STRANGE),
]


PAGES = (
    *("runs/0", "runs/0/curves", "runs/0/steps/3", "runs/0/episodes", "runs/0/timeline"),
    *("runs/0/episodes/step-000003/0", "runs/0/episodes/step-000003/0/tokens", "runs/0/notes"),
    *("runs/0/groups/step-000003/train%2F2%2Ftask-0", "runs/0/reports", "runs/0/reports/report"),
    *("runs/0/images/" + "a" * 32 + ".png", "compare?runs=0,0"),
)


def nested(depth: int) -> str:
    return '{"calls": [{"name": "search", "arguments": {"a": ' + "[" * depth + "]" * depth + "}}]}"


def addresses() -> list[str]:
    """Every address of the API with each strange name in each of its places."""
    usual = {"runs": "0", "steps": "step-000003", "groups": "step-000003"}
    found = []
    for method, pattern in ((method, path.split("/")) for method, path in map(str.split, ROUTES)):
        places = [at for at, word in enumerate(pattern) if word == "*"]
        for place, name in itertools.product(places if method == "GET" else (), STRANGE):
            words = [
                (usual.get(pattern[at - 1], "step-000003" if at < 4 else "0"))
                if word == "*"
                else word
                for at, word in enumerate(pattern)
            ]
            words[place] = quote(name, safe="", errors="surrogatepass")
            found.append("/".join(words))
    for address, names in QUERIES.items():
        base = address if address == "compare" else f"runs/0/{address}"
        for name, value in itertools.product(names, STRANGE):
            given = quote(value, safe="", errors="surrogatepass")
            found.append(f"{base}{'&' if '?' in base else '?'}{name}={given}")
    return found


@pytest.mark.long
async def test_every_address_is_answered_or_refused(run: Path) -> None:
    async with admitted([run]) as client:
        for address in addresses():
            status = (await client.get(f"/api/{address}")).status_code
            assert status in (200, 404, 422), address[:200]


@pytest.mark.long
async def test_every_body_is_answered_or_refused(run: Path) -> None:
    async with admitted([run]) as client:
        begun = (await client.post("/api/play", json={"run": "0", "task": "0"})).json()
        for address in ("play", f"play/{begun['session']}", "runs/0/notes"):
            texts = [*map(json.dumps, BODIES), *map(nested, (400, 900, 5000, 40_000))]
            for text in texts:
                sent = await client.post(
                    f"/api/{address}", content=text, headers={"content-type": "application/json"}
                )
                assert sent.status_code in (200, 404, 422), (address, text[:200])


IMAGE = "a" * 32 + ".png"


@pytest.mark.parametrize(
    "name", [f"images/{IMAGE}", "report.md", "evaluations/trained.json", "tokenizer", "config.toml"]
)
async def test_nothing_outside_the_folder_of_a_run_is_shown(
    run: Path, tmp_path: Path, name: str
) -> None:
    """What is linked to would be shown if it stood there."""
    place, outside = run / name, tmp_path / "outside"
    (run / "images").mkdir(exist_ok=True)
    (run / "images" / IMAGE).write_text("a picture")
    finish(run)
    place.rename(outside)
    place.symlink_to(outside)
    chosen = "select=step-000003:0"
    exports = [f"runs/0/export?format={one}&{chosen}" for one in ("html", "parquet", "atif", "sft")]
    async with admitted([run]) as client:
        for address in (*PAGES, *exports):
            told = await client.get(f"/api/{address}")
            assert (told.status_code, "leads out" in told.text) == (422, True), address
        (listed,) = (await client.get("/api/runs")).json()["runs"]
        assert listed["state"] == "unreadable"
        assert f"{name} is a link that leads out of the run's folder" in listed["trouble"]
        assert (await client.get("/api/play")).json()["environments"] == []
        begun = await client.post("/api/play", json={"run": "0", "task": "0"})
        assert begun.status_code == 422


async def test_a_link_within_a_run_and_a_linked_run_are_shown(run: Path, tmp_path: Path) -> None:
    """Checkpoints may lie on another disk: nothing of them is shown."""
    (run / "images").mkdir(exist_ok=True)
    (run / "images" / ("b" * 32 + ".png")).write_text("a picture")
    (run / "images" / IMAGE).symlink_to("b" * 32 + ".png")
    shutil.rmtree(run / "checkpoints", ignore_errors=True)
    (run / "checkpoints").symlink_to(tmp_path)
    (tmp_path / "latest").symlink_to(run)
    async with admitted([tmp_path / "latest"]) as client:
        assert (await client.get(f"/api/runs/0/images/{IMAGE}")).text == "a picture"


async def test_what_stands_beside_a_run_is_no_way_out_of_it(run: Path, tmp_path: Path) -> None:
    outside = tmp_path / "deep" / "outside"
    outside.parent.mkdir()
    outside.write_text('{"title": "a secret"}\n')
    notes_file(run).symlink_to(outside)
    (run.parent / "figures.json").symlink_to("/etc/passwd")
    note = {"file": "step-000003", "row": 1, "text": "It guessed."}
    async with admitted([run]) as client:
        assert (await client.get("/api/runs/0/notes")).status_code == 422
        assert (await client.post("/api/runs/0/notes", json=note)).status_code == 422
        assert (await client.get("/api/runs/0/reports/study")).status_code == 404
    assert outside.read_text() == '{"title": "a secret"}\n'
