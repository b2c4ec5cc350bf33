"""gymnasium: the real package, with its own games and one of this file's."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gymnasium", reason="gymnasium is not installed: pip install 'turnwise[games]'")

from environment_playing import calling, judged, module, played, said, steps_of, verdict_of
from turnwise.environments.registry import make_environment
from turnwise.errors import ConfigError, InfrastructureError
from turnwise.types import Action
from turnwise_environments import measurement
from turnwise_environments.adapters.gymnasium import Gymnasium, _without_escapes

OWN = '''
import gymnasium, numpy
from gymnasium import spaces

class Counter(gymnasium.Env):
    """Count to three; `break` raises, `wobble` shows another number each time."""
    made = 0
    action_space = spaces.Discrete(3, start=5)
    observation_space = spaces.Box(0, 9, (2,))
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.start, self.count = float(self.np_random.integers(100)), 0
        Counter.made += 1
        self.noise = Counter.made
        return numpy.array([self.start, 0.0]), {}
    def step(self, action):
        if action == 6:
            raise OSError("the world is gone")
        self.count += action == 5
        luck = self.np_random.random() if action == 5 else self.noise
        return numpy.array([self.start, luck]), -1.0, self.count == 3, False, {}

def tell(observation, environment):
    return f"start {observation[0]:g} count {environment.count}"

def number(observation, environment):
    return observation[0]

for name in ("Counter-v0", "Random-v0"):
    gymnasium.registry.pop(name, None)  # of this file in another folder, an earlier test's
gymnasium.register("Counter-v0", entry_point=Counter, max_episode_steps=5)
gymnasium.register("Random-v0", entry_point=Counter, nondeterministic=True)
'''


def act(*names: str) -> list[Action]:
    return [calling("act", action=name) for name in names]


own = module("counter.py", OWN)


def counter(own: Path, **options: Any) -> Gymnasium:
    chosen: dict[str, Any] = {"success": "terminated", "actions": ["add", "break", "wobble"]}
    return Gymnasium(f"{own}:Counter-v0", **{**chosen, "count": 20, **options})


def test_a_frozen_lake_is_crossed() -> None:
    way = act("down", "down", "right", "right", "down", "right")
    fixed = {"id": "FrozenLake-v1", "success": 1, "arguments": {"is_slippery": False}}
    environment = make_environment("gymnasium", fixed)
    (task,) = environment.tasks("train")
    assert environment.tasks("heldout") == [task]
    assert "begin alike" in environment.task_set.warnings[0]
    play = played(environment, task, *way)
    assert play.trajectory.reward == 1.0
    assert play.seen[0] == "Play FrozenLake-v1.\n[red S]FFF\nFHFH\nFFFH\nHFFG"
    assert verdict_of(play).success
    assert not judged(environment, task, *act("right", "down")).success


def test_starts_decide_the_split_and_luck_is_the_episodes() -> None:
    environment = Gymnasium("Blackjack-v1", success=1, count=60)
    train, heldout = environment.tasks("train"), environment.tasks("heldout")
    views = [played(environment, task).seen[0] for task in [*train, *heldout]]
    assert len(set(views)) == len(views) > 40

    async def seen(seed: int) -> list[str]:
        episode = environment.fresh()
        shown = [(await episode.reset(train[0], seed)).content]
        step = await episode.step(act("hit")[0])
        await episode.close()
        return [*shown, said(step)]

    drawn = [asyncio.run(seen(seed)) for seed in (1, 1, 2, 3, 4)]
    assert drawn[0] == drawn[1]
    assert len({first for first, _ in drawn}) == 1
    assert len({second for _, second in drawn}) > 1


def test_terminated_truncated_and_rewards(own: Path) -> None:
    environment = counter(own)
    task = environment.tasks("train")[0]
    ended = played(environment, task, *act("add", "wobble", "add", "add", "add"))
    *_, last = steps_of(ended)
    assert (len(ended.trajectory.turns), last.done, last.truncated) == (4, True, False)
    assert ended.trajectory.reward == -4.0
    late = played(environment, task, *act(*["wobble"] * 9))
    *_, last = steps_of(late)
    assert (len(late.trajectory.turns), last.done, last.truncated) == (5, True, True)
    assert not verdict_of(late).success
    wanted = counter(own, success="truncated", reward="success")
    *_, last = steps_of(played(wanted, task, *act(*["wobble"] * 9)))
    assert (last.done, last.truncated, last.reward) == (True, False, None)
    assert judged(wanted, task, *act(*["wobble"] * 9)).reward == 1.0
    assert judged(counter(own, success=-3), task, *act("add", "add", "add")).success
    assert not judged(counter(own, success=-3), task, *act("add", "add")).success


def test_a_function_describes_and_mistakes_are_told(own: Path) -> None:
    environment = counter(own, describe=f"{own}:tell", instructions="Count.")
    task = environment.tasks("train")[0]
    both = Action("", calls=(*act("add")[0].calls, *act("add")[0].calls))
    seen = played(environment, task, both, *act("fly")).seen
    assert seen[0].startswith("Count.\nstart ")
    assert seen[1][0].splitlines()[1].endswith("count 2")
    assert seen[2][0] == "Error: there is no action 'fly'; actions: add, break, wobble"


async def test_what_breaks_is_infrastructure(own: Path) -> None:
    environment = counter(own)
    task = environment.tasks("train")[0]
    with pytest.raises(OSError, match="the world is gone"):
        await measurement.played(environment, task, act("add", "break"))
    episode, other = environment.fresh(), environment.fresh()
    await episode.reset(task, 1)
    await episode.step(act("wobble")[0])
    other.restore(episode.snapshot())
    with pytest.raises(InfrastructureError, match="led to something else"):
        await other.step(act("add")[0])
    assert not Gymnasium(f"{own}:Random-v0", success=1).restorable


async def test_reseeding_is_part_of_a_snapshot(own: Path) -> None:
    environment = counter(own)
    task = environment.tasks("train")[0]
    episode = environment.fresh()
    await episode.reset(task, 1)
    await episode.step(act("add")[0])
    state, shown = episode.snapshot(), []
    for seed in (7, 7, 8):
        other = environment.fresh()
        other.restore(state)
        other.reseed(seed)
        await other.step(act("add")[0])
        again = environment.fresh()
        again.restore(other.snapshot())
        steps = [await one.step(act("add")[0]) for one in (other, again)]
        texts = [said(step) for step in steps if step.observation is not None]
        assert texts[0] == texts[1]
        shown.append(texts[0])
    assert shown[0] == shown[1] != shown[2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"id": "FrozenLake-v1"}, r"set environment\.options\.success"),
        ({"id": "FrozenLake-v1", "success": "won"}, "option 'success'"),
        ({"id": "FrosenLake-v1", "success": 1}, "FrosenLake-v1 cannot be made"),
        ({"id": "Pendulum-v1", "success": 1}, "they have to be Discrete"),
        ({"id": "FrozenLake-v1", "success": 1, "actions": ["a"]}, "has 4 actions"),
        ({"id": "FrozenLake-v1", "success": 1, "actions": [*"aabcd"]}, "has 4 actions"),
        ({"id": "FrozenLake-v1", "success": 1, "arguments": {"map_name": "9x9"}}, "9x9"),
        ({"id": "FrozenLake-v1", "success": 1, "arguments": {"ice": 1}}, "ice"),
        ({"id": "FrozenLake-v1", "success": 1, "describe": "tell"}, "names no function"),
        ({"id": "nowhere.py:Counter-v0", "success": 1}, "no such file"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_environment("gymnasium", options)


def test_colours_in_words_and_a_description_that_is_no_text(own: Path) -> None:
    assert _without_escapes("\x1b[41mS\x1b[0mF\x1b[32mG\x1b[39m") == "[red S]F[green G]"
    with pytest.raises(ConfigError, match="has to return the text"):
        counter(own, describe=f"{own}:number")
