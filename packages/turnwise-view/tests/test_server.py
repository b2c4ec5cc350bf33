"""The dashboard over HTTP: who is let in, what is answered, and folders that are not as they
should be."""

import json
import os
import socket
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx2
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dashboard_asking import HOST, admitted, get
from dashboard_sample_run import rewrite, rows_of
from turnwise.errors import DataError
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.run_lock import locked
from turnwise.storage.trajectory_rows import LATER, SCHEMA
from turnwise.tokens import Source
from turnwise_view.dashboard.notes import notes_file
from turnwise_view.dashboard.reports import NAMES
from turnwise_view.dashboard.runs import COUNTED, _read_log, find_runs
from turnwise_view.dashboard.security import AccessGuard
from turnwise_view.dashboard.server import application
from turnwise_view.viewing import dashboard_of


async def test_only_a_browser_with_the_secret_and_the_right_host_is_let_in(run: Path) -> None:
    door = AccessGuard("127.0.0.1", 8080)
    app = application(dashboard_of([run]), door)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=HOST) as client:
        for address in ("/", "/static/app.js", "/api/runs", "/?token=wrong", "/api/events"):
            assert (await client.get(address)).status_code == 401
        client.cookies.set("turnwise-8080", "wrong")
        assert (await client.get("/api/runs")).status_code == 401
        client.cookies.clear()
        opened = await client.get(f"/?token={door.secret}")
        cookie = opened.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert (await client.get("/api/runs")).status_code == 200
        tunnel = await client.get("/api/runs", headers={"host": "localhost:9000"})
        assert tunnel.status_code == 200
        elsewhere = await client.get("/api/runs", headers={"host": "evil.test:8080"})
        assert elsewhere.status_code == 403
        for header in ("content-security-policy", "x-content-type-options", "referrer-policy"):
            assert header in elsewhere.headers


async def test_no_path_leads_out_of_the_pages_and_the_runs(run: Path) -> None:
    async with admitted([run]) as client:
        for path in (
            "/static/../server.py",
            "/static/..%2Fserver.py",
            "/static/%2e%2e/server.py",
            "/static/vendor/%2e%2e/app.js",
            "/static/vendor/LICENSE",
            "/static/none.js",
            "/api/runs/0/images/..%2F..%2Fconfig.toml",
            "/api/runs/..%2F..%2Fetc",
            "/api/runs/0/steps/..%2F..%2Fconfig",
            "/api/runs/0/reports/..%2F..%2Freport",
        ):
            assert (await client.get(path)).status_code == 404, path


async def test_notes_are_kept_beside_the_run_and_come_as_json_alone(run: Path) -> None:
    before = sorted(run.rglob("*"))
    async with admitted([run]) as client:
        note = {"file": "step-000003", "row": 1, "text": "It guessed."}
        form = await client.post("/api/runs/0/notes", data=note)
        assert form.status_code == 422
        assert (await client.post("/api/runs/0/notes", json=note)).status_code == 200
        for wrong in ({"file": "step-000003"}, {**note, "row": True}, {**note, "row": 99}):
            assert (await client.post("/api/runs/0/notes", json=wrong)).status_code == 422
        shown = (await client.get("/api/runs/0/episodes/step-000003/1")).json()
        assert shown["note"] == "It guessed."
        listed = (await client.get("/api/runs/0/episodes?file=step-000003")).json()
        assert [row["note"] for row in listed["rows"]][:3] == [False, True, False]
        await client.post("/api/runs/0/notes", json={**note, "text": ""})
        assert (await client.get("/api/runs/0/notes")).json() == {"notes": []}
        notes_file(run).write_text('{"file": "step-000003", "row": 1}\n')
        assert (await client.get("/api/runs/0/notes")).status_code == 422
    assert sorted(run.rglob("*")) == before


def test_episodes_are_found_by_what_they_are(run: Path) -> None:
    def count(query: str) -> int:
        return int(get([run], f"runs/0/episodes?{query}")[0]["total"])

    whole = count("")
    assert whole == sum(
        pq.read_metadata(file).num_rows for file in (run / "trajectories").glob("*.parquet")
    )
    parts = ("step=3", "step=2", "step=1", "file=evaluation-trained")
    assert sum(map(count, parts)) == whole
    for query, found in {
        "outcome=success": 1,
        "success=false&group=train/2/task-0": 3,
        "low=0.5": 1,
        "text=EPISODE%202": 1,
        "tool=lookup": 7,
        "tool=look": 0,
        "tool=capital%20of%201": 0,
        "error=capital": 0,
        **dict.fromkeys(("text=error", "text=observation", "text=null"), 0),
    }.items():
        assert count(f"file=step-000003&{query}") == found
    pages = [get([run], f"runs/0/episodes?limit=4&offset={at}")[0] for at in range(0, whole, 4)]
    rows = [(row["file"], row["row"]) for page in pages for row in page["rows"]]
    assert len(set(rows)) == len(rows) == whole
    assert pages[-1]["next"] is None
    assert rows[0] == ("step-000003", 0)


def test_every_token_without_a_gradient_has_its_reason(run: Path) -> None:
    def reasons(place: str) -> set[tuple[str, str | None]]:
        found = get([run], f"runs/0/episodes/{place}/tokens")[0]
        columns = found["columns"]
        return {
            (found["sources"][source], None if at is None else found["reasons"][at])
            for source, at in zip(columns["source"], columns["reason"], strict=True)
        }

    trained = dict(reasons("step-000003/1"))
    assert trained["model"] is None
    assert "A tool wrote it" in str(trained["tool"])
    assert "All rewards of its group are equal" in str(dict(reasons("step-000003/4"))["model"])
    assert "has no grade (infrastructure_step)" in str(dict(reasons("step-000003/6"))["model"])
    of_evaluation = {why for _, why in reasons("evaluation-trained/0")}
    assert of_evaluation == {"Nothing of an evaluation is trained."}


def test_the_numbers_of_a_token_are_those_of_the_file(run: Path) -> None:
    row = rows_of(run)[1]
    found = get([run], "runs/0/episodes/step-000003/1/tokens?from=5&to=40")[0]
    columns = found["columns"]
    assert (found["from"], found["to"], found["count"]) == (5, 40, len(row["ids"]))
    assert columns["id"] == row["ids"][5:40]
    for place in range(5, 40):
        logprob, trained = row["logprob"][place], row["trained_logprob"][place]
        shown = columns["gap"][place - 5]
        assert shown is None if logprob != logprob else shown == pytest.approx(trained - logprob)
    for name in ("entropy", "loss_weight"):
        known = [None if one != one else one for one in row[name][5:40]]
        assert columns[name] == pytest.approx(known)
    assert list(found["absent"]) == ["value"]


def test_a_run_of_an_earlier_version_shows_what_it_recorded(run: Path) -> None:
    file = run / "trajectories/step-000003.parquet"
    pq.write_table(pq.read_table(file).drop_columns(list(LATER)), file)
    found = get([run], "runs/0/episodes/step-000003/1/tokens")[0]
    assert found["absent"].keys() >= {"entropy", "loss_weight", "trained_logprob"}
    (whole,) = get([run], "runs/0/episodes/step-000003/1")
    assert whole["weight"] is None
    assert len(whole["turns"]) == 2


def test_what_a_run_checked_before_it_began_is_a_report(run: Path) -> None:
    (listed,) = get([run], "runs/0/reports")
    title = "Before the run: what was checked"
    assert {"name": "audit-before_run", "kind": "audit", "title": title} in listed["reports"]
    (found,) = get([run], "runs/0/reports/audit-before_run")
    (row,) = found["tables"][0]["rows"]
    assert row[1:] == ["1e-06", "0 to 2e-06", "0.001", "passed", "nats"]


def test_a_group_says_where_its_episodes_part(run: Path) -> None:
    found = get([run], "runs/0/groups/step-000003/train%2F2%2Ftask-0")[0]
    rows = rows_of(run)[:4]
    assert found["episodes"][0]["first_difference"] is None
    for episode, row in zip(found["episodes"][1:], rows[1:], strict=True):
        pairs = zip(rows[0]["ids"], row["ids"], strict=False)
        first = next(place for place, (one, two) in enumerate(pairs) if one != two)
        assert episode["first_difference"]["token"] == first
    assert found["tree"][3] == {"episode": 3, "parent": 1, "first_turn": 1}


async def test_exports_are_what_was_chosen(run: Path) -> None:
    run = run.rename(run.with_name('прогон "1"'))
    async with admitted([run]) as client:
        base = "/api/runs/0/export?select=step-000003:1,step-000003:0"
        page = await client.get(f"{base}&format=html")
        named = page.headers["content-disposition"].removeprefix("attachment; filename*=UTF-8''")
        assert unquote(named) == 'прогон "1"-episodes.html'
        assert "<script" not in page.text
        table = await client.get(f"{base}&format=parquet")
        rows = pq.read_table(pa.BufferReader(table.content))
        assert rows.schema.names == SCHEMA.names
        assert rows["episode"].to_pylist() == [1, 0]
        talks = await client.get(f"{base}&format=sft")
        assert [len(json.loads(one)["messages"]) for one in talks.text.splitlines()] == [4, 4]
        assert (await client.get(f"{base}&format=atif")).content.startswith(b"PK")
        assert (await client.get(f"{base}&format=docx")).status_code == 404
        wrong = await client.get("/api/runs/0/export?select=nonsense")
        assert wrong.status_code == 422


async def test_conversations_with_a_malformed_turn_are_counted_and_left_out(run: Path) -> None:
    rows = rows_of(run)
    actions = json.loads(rows[1]["actions"])
    rows[1]["actions"] = json.dumps([actions[0] | {"error": "no call"}, *actions[1:]])
    rewrite(run, rows)
    async with admitted([run]) as client:
        base = "/api/runs/0/export?format=sft&select=step-000003"
        some = await client.get(f"{base}:1,step-000003:0")
        assert "episodes-1-of-2.jsonl" in some.headers["content-disposition"]
        none = await client.get(f"{base}:1")
        assert (none.status_code, "none of these episodes" in none.text) == (422, True)


def test_bad_folders_have_their_own_messages(run: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no such folder"):
        dashboard_of([tmp_path / "nowhere"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="is no run folder and holds none"):
        dashboard_of([tmp_path / "empty"])
    half = run / "trajectories/step-000003.parquet"
    half.write_bytes(half.read_bytes()[:200])
    old = pq.read_table(run / "trajectories/step-000002.parquet").drop_columns(["advantage"])
    pq.write_table(old, run / "trajectories/step-000002.parquet")
    pages = [f"runs/0/episodes/step-00000{step}/0" for step in (3, 2, 1)]
    damaged, earlier, fine = get([run], *pages)
    assert "step-000003.parquet cannot be read" in damaged["error"]
    assert "written by an earlier version of turnwise" in earlier["error"]
    assert fine["row"] == 0
    (listed,) = get([run], "runs")
    assert listed["runs"][0]["seconds"] == 4.5
    before = _read_log.cache_info().misses
    assert get([run], "runs") == [listed]
    assert _read_log.cache_info().misses == before
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "rew')
    assert get([run], "runs/0")[0]["steps_done"] == 3
    assert _read_log.cache_info().misses == before + 1
    (run / "config.toml").write_text("name = ")
    assert get([run, run.parent], "runs")[0]["runs"][0]["state"] == "unreadable"


def test_every_run_is_shown_whatever_others_are_called(tmp_path: Path) -> None:
    places = [tmp_path / one for one in ("a/runs", "b/runs", "c/runs", "single")]
    for run in (*(place / name for place in places[:3] for name in ("1", "\udcff")), places[3]):
        run.mkdir(parents=True)
        (run / "config.toml").write_text('environment = "production"\ntrain = true\n')
    shown = find_runs([places[0], places[3], *places[1:3]])
    assert len(shown) == len(set(shown.values())) == 7
    assert all(identity.encode() for identity in shown)
    listed, played = get(places, "runs", "play")
    assert len(listed["runs"]) == 7
    assert played["environments"] == [""]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_folders_that_may_not_be_read_hide_no_run(run: Path) -> None:
    closed = run.parent / "closed"
    closed.mkdir(mode=0)
    assert list(find_runs([run.parent]).values()) == [run]
    with pytest.raises(DataError, match="no such folder that you may read"):
        find_runs([closed])


def test_a_run_of_another_turnwise_is_shown_though_its_recipe_is_unknown(run: Path) -> None:
    text = (run / "config.toml").read_text()
    (run / "config.toml").write_text("an_older_key = 3\n" + text)
    found = get([run], "runs/0")[0]
    assert found["recipe"]["an_older_key"] == 3
    assert found["state"] == "stopped"


def test_a_run_is_running_while_it_is_written(run: Path) -> None:
    """The lock of a process that was killed holds where it was taken on another machine."""

    def state() -> Any:
        return get([run], "runs")[0]["runs"][0]

    with locked(run):
        assert state()["state"] == "running"
    left = {"pid": 2**22, "started": "1", "host": socket.gethostname(), "since": ""}
    (run / "lock").write_text(json.dumps(left))
    assert state()["state"] == "stopped"
    assert f"turnwise train --resume {run}" in state()["trouble"]
    (run / "lock").write_text(json.dumps(left | {"host": "elsewhere"}))
    assert "may still be written on elsewhere" in state()["trouble"]
    (run / "report.json").write_text(json.dumps({"name": "demo", "seconds": 3.0}))
    assert state()["state"] == "finished"


def test_a_run_on_a_disk_that_cannot_be_written_is_read(run: Path) -> None:
    for path in (run, run.parent, *run.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        shown = get([run], "runs/0", "runs/0/curves", "runs/0/episodes/step-000003/0/tokens")
        assert all("error" not in one for one in shown)
    finally:
        for path in (run, run.parent, *run.rglob("*")):
            path.chmod(0o755)


def test_files_of_a_copied_run_are_in_the_order_of_their_steps(run: Path) -> None:
    for file in (run / "trajectories").iterdir():
        os.utime(file, (0, 0))
    os.utime(run / "trajectories/step-000001.parquet")
    (shown,) = get([run], "runs/0")
    steps = [file["step"] for file in shown["files"] if file["kind"] == "step"]
    assert steps == sorted(steps)
    assert len(steps) > 1


def test_of_many_steps_the_newest_are_counted(run: Path) -> None:
    """The page of a run does not wait for thousands of files to be opened."""
    whole = (run / "trajectories/step-000001.parquet").read_bytes()
    for step in range(4, 4 + COUNTED):
        (run / f"trajectories/step-{step:06d}.parquet").write_bytes(whole)
    (shown,) = get([run], "runs/0")
    counted = [file["name"] for file in shown["files"] if not file["earlier"]]
    assert len(counted) == COUNTED + 1
    assert "step-000003" not in counted
    assert counted[-1] == f"step-{3 + COUNTED:06d}"
    assert {"step-000003", "evaluation-trained"} < {file["name"] for file in shown["files"]}


def test_resumes_are_told_and_figures_are_in_the_order_of_a_run(run: Path) -> None:
    folder = RunFolder.open(run)
    for name in ("sft", "no_search", "base"):
        folder.write_evaluation(name, {"success": 0.5, "low": 0.1, "high": 0.9, "n": 2, "step": 3})
    (shown,) = get([run], "runs/0")
    assert [one["name"] for one in shown["figures"]] == ["base", "sft", "trained", "no_search"]
    assert shown["moves"] == ["resumed after step 2 with cluster.learners = 2 (before: 1)"]


def test_curves_have_meanings_no_nan_and_say_whether_a_run_learns(run: Path) -> None:
    folder = RunFolder.open(run)
    folder.append("validation.jsonl", {"step": 3, "validation/success": 0.5})
    metrics = [line | {"rollout/success": 0.25} for line in folder.lines("metrics.jsonl")]
    folder.write_text("metrics.jsonl", "".join(json.dumps(line) + "\n" for line in metrics))
    (found,) = get([run], "runs/0/curves")
    assert found["learning"] == ["rollout/success", "reward/mean", "validation/success"]
    assert set(found["learning"]) <= found["meanings"].keys()
    assert found["meanings"]["reward/mean"] == "mean reward of the episodes"
    assert found["series"]["policy/logprob_gap"]["values"][0] is None
    assert found["echo_trap"][0] == "reward/group_std"


def test_the_credit_of_a_turn_is_a_sum_and_a_mean(run: Path) -> None:
    row = rows_of(run)[1]
    (shown,) = get([run], "runs/0/episodes/step-000003/1")
    for turn in shown["turns"]:
        pairs = zip(row["advantage"], row["source"], row["turn"], strict=True)
        own = [one for one, source, at in pairs if source == Source.MODEL and at == turn["index"]]
        sums = {"advantage_sum": sum(own), "advantage_mean": sum(own) / len(own)}
        assert turn["credit"] == {**sums, "tokens": len(own)}


def test_an_evaluation_says_that_its_reward_is_the_outcomes(run: Path) -> None:
    RunFolder.open(run).write_evaluation("trained", {"success": 0.5, "reward": 0.94, "step": 3})
    (found,) = get([run], "runs/0/reports/trained")
    numbers = dict(found["tables"][0]["rows"])
    assert [name for name, value in numbers.items() if value == "0.94"] == [NAMES["reward"]]
    assert NAMES["reward"].startswith("outcome reward")
