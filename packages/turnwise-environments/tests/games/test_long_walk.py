"""The long walk: 300 calls in order, heralds that are heard, and one wrong door."""

import asyncio

import pytest

from environment_playing import said
from turnwise.types import Action, ToolCall
from turnwise_environments.games.long_walk import LongWalk
from turnwise_environments.measurement import all_tasks, played_all, random_script, success


def go(door: str) -> Action:
    return Action("", calls=(ToolCall("go", {"door": door}),))


def test_the_oracle_makes_300_calls_in_each_walk() -> None:
    walk = LongWalk(count=4)
    tasks = all_tasks(walk)
    plays = played_all(walk, tasks, [walk.oracle(task) for task in tasks])
    assert success(plays) == 1.0
    assert {len(play.trajectory.turns) for play in plays} == {300}
    assert all(play.trajectory.reward == pytest.approx(1.0) for play in plays)


@pytest.mark.slow
def test_the_standard_walks_on_a_shorter_way() -> None:
    """All 1,000, 12 rooms each; a random walker's success is what the environment says."""
    walk = LongWalk(length=12, herald_every=4)
    tasks = all_tasks(walk)
    assert len({task.id for task in tasks}) == 1000
    assert success(played_all(walk, tasks, [walk.oracle(task) for task in tasks])) == 1.0
    assert success(played_all(walk, tasks, [random_script(walk, task) for task in tasks])) == 0.0
    short = LongWalk(length=2)
    tasks = all_tasks(short)
    plays = played_all(short, tasks, [random_script(short, task) for task in tasks])
    assert success(plays) == pytest.approx(short.spec.reference_scores["random"], abs=0.03)


def followed(walk: LongWalk, hears: bool) -> float:
    """Success of one who reads the prompt and each room, as a person does."""
    won = 0
    for task in walk.tasks("train"):
        told = task.prompt.replace(";", " ").replace(",", " ").replace(".", " ").split()
        order = [word for word in told if word in ("red", "blue", "green", "gold", "white")]
        environment = walk.fresh()
        seen = asyncio.run(environment.reset(task.public(), 0)).content
        for _ in range(walk.length):
            line = seen.rpartition("Room")[2]
            if hears and "A herald" in line:
                first = line.partition("now on, ")[2].split()[0]
                order = [first, *(colour for colour in order if colour != first)]
            doors = line.rpartition("Doors: ")[2].rstrip(".").split(", ")
            step = asyncio.run(environment.step(go(next(c for c in order if c in doors))))
            seen = said(step)
            if step.done:
                break
        won += seen == "You are out."
    return won / len(walk.tasks("train"))


def test_what_is_shown_is_enough_and_heralds_have_to_be_heard() -> None:
    walk = LongWalk(length=30, herald_every=5, count=40)
    assert followed(walk, hears=True) == 1.0
    assert followed(walk, hears=False) < 0.2


def test_a_wrong_door_ends_the_walk_and_an_unknown_one_does_not() -> None:
    walk = LongWalk(length=5, count=4).fresh()
    task = walk.tasks("train")[0]
    right = [action.calls[0].arguments["door"] for action in walk.oracle(task)]
    asyncio.run(walk.reset(task.public(), 0))
    unknown = asyncio.run(walk.step(go("purple")))
    assert "there is no 'purple' door; doors: " in said(unknown)
    first = asyncio.run(walk.step(go(right[0])))
    assert (first.reward, first.done) == (pytest.approx(0.2), False)
    doors = said(first).rpartition("Doors: ")[2].rstrip(".").split(", ")
    wrong = asyncio.run(walk.step(go(next(door for door in doors if door != right[1]))))
    assert (wrong.reward, wrong.done) == (0.0, True)


def test_a_walk_that_is_cut_short_has_held_and_one_that_went_wrong_or_stood_still_has_not() -> None:
    walk = LongWalk(length=10, count=4)
    task = walk.tasks("train")[0]
    right = list(walk.oracle(task))
    shown = right[1].calls[0].arguments["door"]
    wrong = next(go(door) for door in walk._doors(task.data, 1) if door != shown)
    plays: dict[str, list[Action]] = {
        "all": right,
        "cut": right[:3],
        "wrong": [right[0], wrong],
        "unknown": [right[0], go("purple")],
        "nothing": [],
    }
    made = played_all(walk, [task] * len(plays), list(plays.values()))
    found = {name: one.trajectory.verdict for name, one in zip(plays, made, strict=True)}
    parts = {name: verdict.parts for name, verdict in found.items() if verdict is not None}
    assert {name: (one["held"], one["walked"]) for name, one in parts.items()} == {
        "all": (1.0, 1.0),
        "cut": (1.0, 0.3),
        "wrong": (0.0, 0.1),
        "unknown": (0.0, 0.1),
        "nothing": (0.0, 0.0),
    }
