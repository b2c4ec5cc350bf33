"""Playing from the browser: by hand, and through recorded episodes."""

import json
from pathlib import Path
from typing import Any

import pytest

from dashboard_asking import admitted
from dashboard_sample_run import rewrite, rows_of, with_a_task_of_the_environment

pytestmark = pytest.mark.long


async def test_an_environment_is_played_from_the_browser(run: Path) -> None:
    async with admitted([run]) as client:
        begun = (await client.post("/api/play", json={"run": "0", "task": "0"})).json()
        assert [tool["name"] for tool in begun["tools"]] == ["search"]
        place = f"/api/play/{begun['session']}"
        call = {"name": "search", "arguments": {"query": "TarFile"}}
        told = (await client.post(place, json={"calls": [call]})).json()
        assert (told["turn"], told["done"]) == (1, False)
        back = (await client.post(f"{place}/back", json={})).json()
        assert back["turn"] == 0
        ended = (await client.post(place, json={"text": "no idea"})).json()
        assert ended["done"]
        assert ended["verdict"].startswith("failure, reward 0")
        assert (await client.post(place, json={"text": "again"})).status_code == 422
        assert (await client.post("/api/play/0", json={"text": "x"})).status_code == 404
        assert (await client.post(place, json={"calls": [3]})).status_code == 422
        nowhere = await client.post("/api/play", json={"run": "0", "task": "nowhere"})
        assert "there is no task 'nowhere'" in nowhere.json()["error"]


async def test_a_recorded_episode_is_played_again_and_differences_are_said(run: Path) -> None:
    """The first observation of the sample run is not what the environment gives."""
    async with admitted([with_a_task_of_the_environment(run)]) as client:
        given = {"run": "0", "file": "step-000001", "row": 1, "turn": 0}
        begun = (await client.post("/api/play", json=given)).json()
        assert begun["recorded"] == "capital of 1"
        place = f"/api/play/{begun['session']}"
        first = (await client.post(f"{place}/onward", json={})).json()
        assert (first["turn"], first["recorded"], first["differs"]) == (1, "Rome", [1])
        last = (await client.post(f"{place}/onward", json={})).json()
        assert (last["done"], last["recorded"], last["differs"]) == (True, None, [1])
        assert (await client.post(f"{place}/onward", json={})).status_code == 422
        assert (await client.post(f"{place}/back", json={})).json()["recorded"] == "Rome"
        other = {"calls": [{"name": "search", "arguments": {"query": "TarFile"}}]}
        told = (await client.post(place, json=other)).json()
        assert (told["recorded"], told["differs"]) == (None, [1])
        whole = (await client.post("/api/play", json=given | {"turn": 2})).json()
        assert (whole["done"], whole["turn"], whole["differs"]) == (True, 2, [1])


@pytest.mark.parametrize(
    ("order", "shown", "told"),
    [
        ((1, 0), None, (True, 1, [1])),
        ((0, 0), ["Error: there is no tool 'lookup'; tools: search", 2], (False, 2, [2])),
    ],
)
async def test_an_episode_that_ends_elsewhere_than_recorded_is_said(
    run: Path, order: tuple[int, int], shown: Any, told: tuple[bool, int, list[int]]
) -> None:
    """Its answer comes a turn before the recorded end, or not at all; all else is as recorded."""
    rows = rows_of(with_a_task_of_the_environment(run), "step-000001")
    for row in rows:
        actions, steps = json.loads(row["actions"]), json.loads(row["steps"])
        row["actions"] = json.dumps([actions[place] for place in order])
        row["steps"] = json.dumps([step | {"observation": shown} for step in steps])
    rewrite(run, rows, "step-000001")
    async with admitted([run]) as client:
        given = {"run": "0", "file": "step-000001", "row": 1, "turn": 2}
        begun = (await client.post("/api/play", json=given)).json()
        assert (begun["done"], begun["turn"], begun["differs"]) == told
