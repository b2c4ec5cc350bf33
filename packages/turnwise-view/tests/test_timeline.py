"""Who waited for whom, against steps whose times are written by hand."""

import json
import re
from importlib import resources
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from turnwise.storage.run_folder import RunFolder
from turnwise.storage.timeline import timeline_table
from turnwise.times import Doing, EpisodeTimes, Span
from turnwise.types import Group, Task, Trajectory
from turnwise_view.dashboard.index import Index
from turnwise_view.dashboard.timeline import timeline

GROUP = "train/2/task-0"


@pytest.fixture(autouse=True)
def untimed(run: Path) -> None:
    for file in (run / "timeline").iterdir():
        file.unlink()


def episode(number: int, begun: float, seconds: float, process: str = "", *spans: Span) -> Any:
    times = EpisodeTimes(begun, seconds, spans, process)
    return Trajectory(Task("task-0", "?"), GROUP, number, 0, times=times)


def write(
    run: Path, step: int, episodes: list[Any], phases: list[tuple[str, float, float]]
) -> None:
    file = RunFolder.open(run).timeline_file(step)
    pq.write_table(timeline_table([Group(GROUP, tuple(episodes))], phases), file)


def spans(found: dict[str, Any]) -> set[tuple[str, int, str, int, float, float]]:
    """Process, place, kind, step, start and seconds of each."""
    columns = found["spans"].values()
    lanes = [(lane["process"], lane["slot"]) for lane in found["lanes"]]
    return {
        (*lanes[lane], found["kinds"][kind], step, round(start, 2), round(took, 2))
        for lane, kind, _, step, start, took in zip(*columns, strict=True)
    }


def test_lanes_are_places_in_processes_and_waits_have_their_reasons(run: Path) -> None:
    """Two workers, of which one is done early; the learner waits for the other, and all of them
    for the learner."""
    sampled, tools = Span(Doing.SAMPLING, 0, 1), Span(Doing.TOOLS, 1, 4)
    episodes = [
        episode(0, 100.0, 1.0, "worker 0", sampled),
        episode(1, 100.0, 4.0, "worker 1", sampled, tools),
        episode(2, 101.0, 1.0, "worker 0"),
    ]
    write(run, 3, episodes, [("waiting", 100.0, 104.0), ("update", 104.0, 106.0)])
    found = timeline(run, 3, Index())
    assert spans(found) == {
        ("learner", 0, "waiting", 3, 0.0, 4.0),
        ("learner", 0, "update", 3, 4.0, 2.0),
        ("engine", 0, "requests", 3, 0.0, 1.0),
        ("worker 0", 0, "episode", 3, 0.0, 1.0),
        ("worker 0", 0, "sampling", 3, 0.0, 1.0),
        ("worker 0", 0, "episode", 3, 1.0, 1.0),
        ("worker 1", 0, "episode", 3, 0.0, 4.0),
        ("worker 1", 0, "sampling", 3, 0.0, 1.0),
        ("worker 1", 0, "tools", 3, 1.0, 3.0),
    }
    last = f"{GROUP} episode 1 in worker 1, most of it tools"
    waits = [
        (found["lanes"][wait["lane"]]["process"], round(wait["start"]), round(wait["seconds"]))
        for wait in found["waits"]
    ]
    assert waits == [
        *(("learner", 0, 4), ("engine", 1, 3), ("engine", 4, 2)),
        *(("worker 0", 2, 2), ("worker 0", 4, 2), ("worker 1", 4, 2)),
    ]
    reasons = [wait["reason"] for wait in found["waits"]]
    assert last in reasons[0]
    assert "none asks for a turn" in reasons[1]
    assert "after the update of step 3" in reasons[2]
    assert last in reasons[3]
    assert found["totals"][1]["seconds"] == {"own work": 0.0, "sampling": 1.0, "tools": 3.0}
    assert [one["row"] for one in found["episodes"]] == [0, 2, 1]


def test_episodes_at_the_same_time_have_places_of_their_own(run: Path) -> None:
    """A place is taken again when it is free."""
    write(run, 3, [episode(0, 0.0, 2.0), episode(1, 1.0, 5.0), episode(2, 2.0, 1.0)], [])
    found = timeline(run, 3, Index())
    assert [lane["slot"] for lane in found["lanes"]] == [0, 0, 1]
    assert found["lanes"][0]["process"] == "learner"
    starts = {(slot, start) for _, slot, _, _, start, _ in spans(found)}
    assert starts == {(0, 0.0), (0, 2.0), (1, 1.0)}


def test_parts_of_an_episode_that_has_no_row_are_not_drawn(run: Path) -> None:
    """As of a file that lacks it."""
    sampled = Span(Doing.SAMPLING, 0, 1)
    both = [episode(0, 0.0, 2.0, "", sampled), episode(1, 0.0, 2.0, "", sampled)]
    write(run, 3, both, [("update", 2.0, 3.0)])
    file = RunFolder.open(run).timeline_file(3)
    rows = pq.read_table(file)
    lost = [one["kind"] == "episode" and one["episode"] == 1 for one in rows.to_pylist()]
    pq.write_table(rows.take([at for at, gone in enumerate(lost) if not gone]), file)
    assert spans(timeline(run, 3, Index())) == {
        ("learner", 0, "update", 3, 2.0, 1.0),
        ("engine", 0, "requests", 3, 0.0, 1.0),
        ("the run's process", 0, "episode", 3, 0.0, 2.0),
        ("the run's process", 0, "sampling", 3, 0.0, 1.0),
    }


def test_a_place_that_is_used_again_waits_for_an_episode(run: Path) -> None:
    """And what took most of the last episode is of it alone, not of its process."""
    first = episode(0, 0.0, 1.0, "", Span(Doing.TOOLS, 0, 1))
    second = episode(1, 2.0, 1.0, "", Span(Doing.ENVIRONMENT, 0, 0.9))
    write(run, 3, [first, second], [("waiting", 0.0, 3.0), ("update", 3.0, 5.0)])
    (learner, between, _) = timeline(run, 3, Index())["waits"]
    assert "most of it environment" in learner["reason"]
    expected = (1.0, "The next episode of the step had not begun.")
    assert (between["start"], between["reason"]) == expected


def test_a_step_that_was_sampled_ahead_is_seen_beside_the_update_before_it(run: Path) -> None:
    """Step 4 as soon as step 2 has been learned from: a wait names the step of its update."""
    write(run, 2, [episode(0, 0.0, 2.0)], [("update", 2.0, 5.0)])
    write(run, 3, [episode(1, 2.0, 2.0)], [("waiting", 5.0, 5.0), ("update", 5.0, 7.0)])
    write(run, 4, [episode(2, 5.01, 1.0)], [("waiting", 7.0, 7.0), ("update", 7.0, 9.0)])
    found = timeline(run, 3, Index())
    assert ("learner", 0, "update", 2, 0.0, 3.0) in spans(found)
    assert ("the run's process", 0, "episode", 3, 0.0, 2.0) in spans(found)
    waits = [wait for wait in found["waits"] if wait["lane"] == 1]
    assert [round(wait["start"], 1) for wait in waits] == [2.0, 4.0]
    assert ["of step 2" in wait["reason"] for wait in waits] == [True, False]
    assert "of step 3" in waits[1]["reason"]


def test_lanes_say_when_the_validation_is_played(run: Path) -> None:
    """And one that took no time, as in a step without one, divides no wait."""
    for validated in (3.0, 1.0):
        phases = [("update", 0.5, 1.0), ("validation", 1.0, validated), ("weights", 3.0, 4.0)]
        sampled = Span(Doing.SAMPLING, 0, 0.5)
        write(run, 3, [episode(0, 0.0, 0.5, "", sampled)], phases)
        waits = [wait for wait in timeline(run, 3, Index())["waits"] if wait["lane"] == 1]
        named = [wait["seconds"] for wait in waits if "validation" in wait["reason"]]
        assert named == ([2.0] if validated == 3.0 else [])
        assert len(waits) == (3 if named else 1)


def test_a_run_of_an_earlier_version_has_its_phases(run: Path) -> None:
    found = timeline(run, 3, Index())
    assert "earlier version" in found["absent"]
    assert ("all episodes", 0, "episode", 3, 0.0, 1.0) in spans(found)
    assert "no step 9" in timeline(run, 9, Index())["absent"]


@pytest.mark.long
def test_thousands_of_episodes_are_laid_out_in_seconds(run: Path) -> None:
    """And what is sent of them stays in bounds."""
    parts = [
        Span(Doing.SAMPLING if n % 2 else Doing.TOOLS, n / 10, n / 10 + 0.1) for n in range(10)
    ]
    episodes = [episode(n, n / 100, 1.0, f"worker {n % 8}", *parts) for n in range(3000)]
    write(run, 3, episodes, [("update", 31.0, 40.0)])
    found = timeline(run, 3, Index())
    assert len(found["spans"]["lane"]) > 30_000
    assert len(found["waits"]) < 3000
    assert len(json.dumps(found)) < 4e6


def test_every_kind_of_span_has_a_colour_of_its_own() -> None:
    views, frame, script = (
        (resources.files("turnwise_view.dashboard") / "static" / name).read_text()
        for name in ("views.css", "app.css", "timeline.js")
    )
    drawn = dict(re.findall(r"^\.span-(\S+) \{ background: (.*); \}", views, re.MULTILINE))
    for palette in frame.split("@media (prefers-color-scheme: dark)"):
        shown = "\n".join(drawn.values())
        for name, colour in re.findall(r"--(\w+): (#\w{6})", palette):
            shown = shown.replace(f"var(--{name})", colour)
        assert len(set(shown.splitlines())) == len(drawn)
    kinds = script.partition("const KINDS = {")[2].partition("}")[0]
    assert {*re.findall(r"^  (\w+): ", kinds, re.MULTILINE), "waiting"} == drawn.keys()
