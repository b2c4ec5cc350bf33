"""The rooms of the study gigpo, and its demonstrations."""

import sys

import pytest

pytest.importorskip("turnwise_environments", reason="turnwise[environments] is not installed")

from turnwise.errors import MissingExtraError
from turnwise.registry import load_module
from turnwise_environments.choosing import all_tasks
from turnwise_environments.measurement import played_all, success
from turnwise_studies.shipped import gigpo


def test_a_wrong_door_leads_one_room_back() -> None:
    rooms = gigpo.Rooms(count=40)
    task = rooms.tasks("heldout")[0]
    right = [str(action.calls[0].arguments["door"]) for action in rooms.oracle(task)]
    wrong = gigpo.DOORS[right[1] == gigpo.DOORS[0]]
    doors = [right[0], wrong, *right]
    (play,) = played_all(rooms, [task], [[gigpo.going(door) for door in doors]])
    first, second = (f"{room}: {task.data['signs'][room - 1]}" for room in (1, 2))
    assert play.trajectory.states[1:4] == (second, first, second)
    assert play.trajectory.reward == 1.0


@pytest.mark.long
def test_demonstrations_in_rooms_go_astray_and_return() -> None:
    rooms = gigpo.Rooms(count=200)
    tasks = all_tasks(rooms)
    scripts = [list(rooms.oracle(task)) for task in tasks]
    assert success(played_all(rooms, tasks, scripts)) == 1.0
    pairs = list(zip(scripts, scripts[::-1], strict=True))
    careless = [gigpo.careless(one, other) for one, other in pairs]
    assert careless == [gigpo.careless(one, other) for one, other in pairs]
    plays = played_all(rooms, tasks, careless)
    assert 0.3 < success(plays) < 0.7


def test_without_the_games_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "turnwise_environments.games.base", None)
    monkeypatch.delitem(sys.modules, gigpo.__name__)
    with pytest.raises(MissingExtraError, match=r"pip install 'turnwise\[environments\]'"):
        load_module("turnwise_studies.shipped.gigpo", "environment")
