"""Any environment of gymnasium with discrete actions, as a text game; needs the extra `games`.

    environment.name="gymnasium"
    environment.options={ id = "Taxi-v4", success = "terminated" }

What is shown is the environment's `ansi` rendering, its observation where that is text or a few
numbers, or what a function of yours says of it. Rewards are the environment's. Not here: continuous
actions, images.
"""

import json
import re
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, Literal

from turnwise.environments.base import EnvironmentSpec
from turnwise.environments.tasksets import TaskSet, identities
from turnwise.errors import ConfigError, ToolError
from turnwise.ranges import Count, Share
from turnwise.registry import load_function, load_module
from turnwise.seeds import derive
from turnwise.tools.tool import Tool
from turnwise.types import Task
from turnwise_environments.adapters.replayed import PARTS, Replayed, Reply
from turnwise_environments.common import check_installed, identity

ACTIONS = {
    "Blackjack": ("stick", "hit"),
    "CliffWalking": ("up", "right", "down", "left"),
    "FrozenLake": ("left", "down", "right", "up"),
    "Taxi": ("south", "north", "east", "west", "pickup", "dropoff"),
}
"""Names of the actions of gymnasium's own text games, by the id without its version."""
MOST_SHOWN = 2000
"""Characters of an observation that is shown as it is; a longer one needs a `describe`."""
SEEDS = 2**31
_ESCAPE = re.compile(r"\x1b\[([0-9;]*)m")
_COLOURS = ("grey", "red", "green", "yellow", "blue", "magenta", "cyan", "white", "crimson")


class Gymnasium(Replayed):
    """One tool, `act`, that takes an action's name. Example: `Gymnasium("FrozenLake-v1", success=1,
    arguments={"is_slippery": False})`."""

    def __init__(
        self,
        id: str,
        success: float | Literal["terminated", "truncated"],
        actions: Sequence[str] = (),
        describe: str = "",
        instructions: str = "",
        arguments: Mapping[str, Any] = {},
        reward: Literal["return", "success"] = "return",
        count: Count = 1000,
        heldout_share: Share = 0.5,
    ) -> None:
        """`id` as gymnasium has it, with `package.module:` or `path/to/file.py:` before it where
        something has to be imported to register it; `arguments` go to `gymnasium.make`.

        `success` is how an episode that succeeded ends: with `terminated`, with `truncated`, or
        with a return of at least a number. `actions` are names in order of the actions' numbers.
        `describe` is a function, `path/to/file.py:name`, of an observation and the unwrapped
        environment; what it returns is shown. `instructions` stand before the first view. `count`
        seeds are tried; those with the same first view are one task.
        """
        check_installed("gymnasium", "games")
        self.id, self.success = id, success
        self._turn_rewards = reward == "return"
        self.facts = EnvironmentSpec(
            f"gymnasium/{id}", version("gymnasium"), turn_rewards=self._turn_rewards, parts=PARTS
        )
        self._arguments = dict(arguments)
        self._describe = load_function(describe, "gymnasium") if describe else None
        made = self._make()
        try:
            self._first = _first_action(made, id)
            self._names = _names(int(made.action_space.n), id, actions)
            self._restorable = not (made.spec and made.spec.nondeterministic)
            self.task_set = self._draw(made, instructions, count, heldout_share)
        finally:
            made.close()

    @property
    def restorable(self) -> bool:
        return self._restorable

    def _tool(self) -> Tool:
        known = {"type": "string", "enum": list(self._names)}
        return self._act_tool(self.act, f"Do one of: {', '.join(self._names)}.", action=known)

    def _begin(self, task: Task, seed: int) -> str:
        self._end()
        self._game = self._make()
        observation, _ = self._game.reset(seed=task.data["seed"])
        shown = self._shown(self._game, observation)
        self._return = 0.0
        self._reseed(seed)
        return shown

    def _do(self, action: str) -> Reply:
        if action not in self._names:
            raise ToolError(f"there is no action {action!r}; actions: {', '.join(self._names)}")
        number = self._first + self._names.index(action)
        observation, reward, terminated, truncated, _ = self._game.step(number)
        self._return += float(reward)
        over = bool(terminated or truncated)
        won = over and self._succeeded(bool(terminated))
        shown = self._shown(self._game, observation)
        return Reply(shown, float(reward), over, over and not terminated and not won, won)

    def _reseed(self, seed: int) -> None:
        import numpy

        self._game.unwrapped.np_random = numpy.random.default_rng(seed)

    def _succeeded(self, terminated: bool) -> bool:
        if isinstance(self.success, str):
            return terminated == (self.success == "terminated")
        return self._return >= self.success

    def _make(self) -> Any:
        place, _, name = self.id.rpartition(":")
        if place:
            load_module(place, "gymnasium")
        made = _made(name, self._arguments)
        if self._describe is None and "ansi" in made.metadata.get("render_modes", ()):
            made.close()  # how it renders can be said only where it is made
            made = _made(name, {**self._arguments, "render_mode": "ansi"})
        return made

    def _shown(self, environment: Any, observation: Any) -> str:
        if self._describe is not None:
            said = self._describe(observation, environment.unwrapped)
            if not isinstance(said, str):
                raise ConfigError("gymnasium: describe has to return the text that is shown")
            return said
        if environment.render_mode == "ansi":
            return _without_escapes(str(environment.render())).strip("\n")
        value = _plain(observation)
        return value if isinstance(value, str) else json.dumps(value)

    def _draw(self, made: Any, instructions: str, count: int, heldout_share: float) -> TaskSet:
        prompt = instructions or f"Play {self.id.rpartition(':')[2]}."
        found: dict[str, Task] = {}
        for number in range(count):
            seed = derive("gymnasium", self.id, number) % SEEDS
            shown = self._shown(made, made.reset(seed=seed)[0])
            if len(shown) > MOST_SHOWN and self._describe is None:
                raise ConfigError(
                    f"gymnasium: an observation of {self.id} has {len(shown)} characters: give a "
                    "function that describes it, environment.options.describe"
                )
            name = identity(f"{self.id}\n{prompt}\n{shown}")
            found.setdefault(name, Task(name, prompt, data={"seed": seed}))
        scores = {"noop": 0.0}
        if len(found) > 1:
            return TaskSet.shuffled(found.values(), heldout_share, scores, content=identities)
        self.same_splits = True
        told = f"gymnasium: all episodes of {self.id} begin alike: there is one task"
        one = list(found.values())
        return TaskSet.of({"train": one, "heldout": one}, scores, [told], identities)


def _made(name: str, arguments: Mapping[str, Any]) -> Any:
    import gymnasium

    try:
        return gymnasium.make(name, disable_env_checker=True, **arguments)
    except (gymnasium.error.Error, ImportError, TypeError, ValueError, LookupError) as error:
        raise ConfigError(f"gymnasium: {name} cannot be made: {error}") from error


def _first_action(made: Any, id: str) -> int:
    from gymnasium.spaces import Discrete

    space = made.action_space
    if not isinstance(space, Discrete):
        raise ConfigError(f"gymnasium: the actions of {id} are {space}: they have to be Discrete")
    return int(space.start)


def _names(count: int, id: str, given: Sequence[str]) -> tuple[str, ...]:
    known = ACTIONS.get(id.rpartition(":")[2].partition("-v")[0], ())
    names = tuple(given or known or (str(number) for number in range(count)))
    if not len(names) == len(set(names)) == count:
        raise ConfigError(f"gymnasium: {id} has {count} actions: give as many different names")
    return names


def _plain(value: Any) -> Any:
    """Arrays and scalars as plain data, numbers with four digits after the point."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return round(value, 4) if isinstance(value, float) else value


def _without_escapes(text: str) -> str:
    """A terminal's colours in words, because they may be all that marks a place: `[red S]`."""

    def word(found: re.Match[str]) -> str:
        codes = [int(code) for code in found[1].split(";") if code]
        colours = [code % 10 for code in codes if 30 <= code <= 48 and code != 39]
        return f"[{_COLOURS[colours[0]]} " if colours else "]"

    return _ESCAPE.sub(word, text)
