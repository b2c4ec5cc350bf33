"""The rooms of the studies gigpo, agent_rlvr and hero, and their demonstrations."""

import sys

import pytest

pytest.importorskip("turnwise_environments", reason="turnwise[environments] is not installed")

from turnwise.environments.registry import make_environment
from turnwise.errors import MissingExtraError
from turnwise.registry import load_module
from turnwise_environments.choosing import all_tasks
from turnwise_environments.measurement import played_all, success
from turnwise_studies.shipped import agent_rlvr, gigpo


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


def test_after_a_trap_a_demonstration_follows_the_hint() -> None:
    options = {"name": f"{agent_rlvr.__file__}:Traps", "options": {"count": 80}, "attempts": 2}
    environment = make_environment("attempts", options | {"memory": "guidance"})
    tasks = all_tasks(environment)
    scripts = [list(environment.oracle(task)) for task in tasks]
    pairs = zip(scripts, scripts[::-1], strict=True)
    plays = played_all(environment, tasks, [agent_rlvr.stumbling(*pair) for pair in pairs])
    assert success(plays) == 1.0
    for play in plays:
        verdict = play.trajectory.verdict
        hints = [turn.step.observation for turn in play.trajectory.turns if turn.step.forgets]
        assert len(hints) == 1 - verdict.parts["by_1"]
        assert all(
            sign in hint.content for hint in hints for sign in play.trajectory.task.data["signs"]
        )


@pytest.mark.wing("algorithms")
def test_at_a_lock_an_error_names_the_door_and_the_walk_is_lost() -> None:
    from turnwise_studies.shipped import hero

    locks = hero.Locks(count=40)
    task = locks.tasks("heldout")[0]
    right = list(task.data["doors"])
    wrong = next(door for door in hero.DOORS if door != right[0])
    scripts = [[gigpo.going(door) for door in doors] for doors in (right, [wrong, *right])]
    good, bad = (play.trajectory for play in played_all(locks, [task, task], scripts))
    assert (good.reward, bad.reward, len(bad.turns)) == (1.0, 0.0, 4)
    (result,) = bad.turns[0].step.results
    assert (result.ok, result.content) == (False, f"Error: {task.data['signs'][0]}: {right[0]}")


@pytest.mark.wing("algorithms")
def test_errors_retold_are_followed_in_demonstrations() -> None:
    from turnwise_studies.shipped import hero

    locks = hero.Locks(count=40, retold=True)
    tasks = all_tasks(locks)
    scripts = [list(locks.oracle(task)) for task in tasks]
    pairs = zip(scripts, scripts[::-1], strict=True)
    plays = played_all(locks, tasks, [hero.trying(*pair) for pair in pairs])
    turns = [turn for play in plays for turn in play.trajectory.turns]
    wrong = [turn for turn in turns if not turn.step.results[0].ok]
    assert len(turns) - len(wrong) == 6 * len(tasks)
    assert all(turn.step.observation.content.startswith(hero.SAID[0]) for turn in wrong)
    assert 0.6 < len(wrong) / (3 * len(tasks)) < 0.9
    for play in plays:
        shown = [turn.step.observation.content for turn in play.trajectory.turns]
        assert (shown[-4], shown[-1]) == ("Now the task from the beginning.", "Out.")


def test_without_the_games_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "turnwise_environments.games.base", None)
    monkeypatch.delitem(sys.modules, gigpo.__name__)
    with pytest.raises(MissingExtraError, match=r"pip install 'turnwise\[environments\]'"):
        load_module("turnwise_studies.shipped.gigpo", "environment")
