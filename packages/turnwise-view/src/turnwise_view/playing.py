"""Playing in the browser: a run's environment, acted in by hand, from its beginning or from any
turn of an episode that the run has recorded.

The loop, its limits and the verdict are those of every episode that a client plays
(`turnwise_environments.serving.offer`).
"""

import asyncio
import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import Any

from turnwise.config import OpenAIEngineConfig, RolloutConfig
from turnwise.environments.base import Environment
from turnwise.environments.registry import environment_of
from turnwise.errors import ConfigError, DataError, ToolError
from turnwise.rollout.runner import within
from turnwise.scaffolds.registry import make_scaffold
from turnwise.seeds import derive
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.trajectory_rows import trajectory_of
from turnwise.types import Action, Task, ToolCall, Trajectory, Turn
from turnwise_environments.serving.offer import OutsideEpisode, Reply, check_servable, verdict_of
from turnwise_view.dashboard.index import read_row

PATIENCE = 3600.0
"""Seconds a person has for an episode."""
SESSIONS = 16
"""Episodes that may be under way; the oldest one is given up for another."""


@dataclass
class Game:
    """An episode that is played, and what was done in it so far."""

    environment: Environment
    limits: RolloutConfig
    task: Task
    seed: int
    recorded: Sequence[Turn] = ()
    """The turns of the recorded episode that it repeats."""
    actions: list[Action] = field(default_factory=list)
    differs: list[int] = field(default_factory=list)
    """The recorded turns, from 1, that were answered otherwise, or that ended it otherwise."""
    episode: OutsideEpisode = field(init=False)

    async def begin(self, actions: Sequence[Action]) -> Reply:
        """Begin anew, and do what was done before, until the episode is over."""
        self.actions, self.differs = [], []
        self.episode = OutsideEpisode(
            planned=Trajectory(self.task, f"play/{self.task.id}", 0, self.seed),
            prototype=self.environment,
            limits=within(self.limits, self.environment.budget(self.task)),
            patience=PATIENCE,
        )
        reply = await self.episode.begin()
        for action in actions:
            if reply.ended is not None:
                break
            reply = await self.act(action)
        return reply

    @property
    def repeats(self) -> bool:
        """Whether all that was done is what was recorded."""
        done = len(self.actions)
        return self.actions == [turn.action for turn in self.recorded[:done]]

    @property
    def following(self) -> Action | None:
        """The recorded action that comes next; None at the end, and after another one."""
        done = len(self.actions)
        return self.recorded[done].action if self.repeats and done < len(self.recorded) else None

    async def act(self, action: Action) -> Reply:
        """Take an action. Raises DataError where the episode is over."""
        try:
            reply = await self.episode.act(action)
        except ToolError as error:
            raise DataError(str(error)) from None
        self.actions.append(action)
        if self.repeats and self._is_otherwise(reply):
            self.differs.append(len(self.actions))
        return reply

    def _is_otherwise(self, reply: Reply) -> bool:
        """Whether the newest turn was answered otherwise than recorded, or the episode is over at
        another turn."""
        done = len(self.actions)
        step = self.recorded[done - 1].step
        shown = step.observation.content if step and step.observation else ""
        over = done == len(self.recorded)
        return shown != reply.observation.content or over != (reply.ended is not None)


class Player:
    """The games of a dashboard. Example: `await player.begin(run, {"seed": 0})`."""

    def __init__(self) -> None:
        self._games: OrderedDict[str, Game] = OrderedDict()
        self._environments: dict[Path, tuple[Environment, RolloutConfig]] = {}

    async def begin(self, run: Path, given: Mapping[str, Any]) -> dict[str, Any]:
        """Begin an episode: of the task that `task` names, or of a recorded episode, which `file`
        and `row` name, after its first `turn` turns. Raises ConfigError or DataError for what is
        not there."""
        environment, limits = await asyncio.to_thread(self._environment, run)
        recorded: Sequence[Turn] = ()
        if "file" in given:
            file = RunFolder.open(run).trajectory_file(str(given["file"]))
            row = read_row(file, _whole(given, "row"))
            task, seed = _task(environment, row["task"]), int(row["seed"])
            recorded = trajectory_of(row, task).turns
        else:
            seed = _whole(given, "seed")
            task = _task(environment, str(given.get("task", "")), seed)
        game = Game(environment, limits, task, seed, recorded)
        reply = await game.begin([one.action for one in recorded[: _whole(given, "turn")]])
        name = token_hex(8)
        self._games[name] = game
        while len(self._games) > SESSIONS:
            await self._games.popitem(last=False)[1].episode.close()
        tools = [{"name": tool.name, "schema": tool.schema} for tool in environment.tools()]
        return {"session": name, "task": task.id, "tools": tools, **_answer(reply, game)}

    async def act(self, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Take a turn: calls of tools, or an answer in words."""
        game = self._game(name)
        calls, text = given.get("calls"), given.get("text")
        if isinstance(calls, list) and calls:
            known = [_call(one, place, len(game.actions)) for place, one in enumerate(calls)]
            action = Action(json.dumps(calls), calls=tuple(known))
        elif isinstance(text, str):
            action = Action(text, answer=text)
        else:
            raise DataError('a turn is {"calls": [{"name", "arguments"}]} or {"text": "…"}')
        return _answer(await game.act(action), game)

    async def onward(self, name: str) -> dict[str, Any]:
        """Take the next turn of the recorded episode. Raises DataError where there is none."""
        game = self._game(name)
        following = game.following
        if following is None:
            raise DataError("no recorded turn follows what was done: go back to one that does")
        return _answer(await game.act(following), game)

    async def back(self, name: str) -> dict[str, Any]:
        """Go back by one turn: the episode is played again as far as the turn before."""
        game = self._game(name)
        actions = game.actions[:-1]
        await game.episode.close()
        return _answer(await game.begin(actions), game)

    async def close(self) -> None:
        """Give up all episodes under way. Idempotent."""
        for game in self._games.values():
            await game.episode.close()

    def _game(self, name: str) -> Game:
        if name not in self._games:
            raise ConfigError("this episode is no longer there: begin another one")
        return self._games[name]

    def _environment(self, run: Path) -> tuple[Environment, RolloutConfig]:
        if run not in self._environments:
            from transformers import AutoTokenizer

            folder = RunFolder.open(run)
            recipe = folder.recipe()
            environment = environment_of(recipe)
            check_servable(environment, images=False)
            if not isinstance(recipe.engine, OpenAIEngineConfig):  # results as long as in the run
                tokenizer = AutoTokenizer.from_pretrained(str(folder.tokenizer))
                scaffold = make_scaffold(recipe.scaffold, tokenizer, environment.tools())
                environment.truncate = scaffold.truncate
            self._environments[run] = environment, recipe.rollout
        return self._environments[run]


def _task(environment: Environment, name: str, seed: int = 0) -> Task:
    """The task of that id or number, or one by chance. Raises ConfigError where there is none."""
    heldout = environment.tasks("heldout")
    if not name:
        return heldout[derive(seed, "play") % len(heldout)]
    for task in (*heldout, *environment.tasks("train")):
        if task.id == name:
            return task
    numbered = {str(place): task for place, task in enumerate(heldout)}
    if name in numbered:
        return numbered[name]
    raise ConfigError(
        f"there is no task {name!r}: give its id, or a number below {len(heldout)} for a held-out "
        "one"
    )


def _answer(reply: Reply, game: Game) -> dict[str, Any]:
    ended = reply.ended
    verdict = None if ended is None else verdict_of(ended)
    said = None
    if ended is not None and verdict is not None:
        reward = f", reward {verdict['reward']:g}" if "reward" in verdict else ", no grade"
        detail = verdict.get("detail") or ended.problem
        said = f"{verdict['outcome']}{reward}{f': {detail}' if detail else ''}"
    following = None if ended is not None else game.following
    return {
        "observation": reply.observation.content,
        "ok": reply.ok,
        "turn": len(game.actions),
        "done": ended is not None,
        "verdict": said,
        "recorded": None if following is None else following.text,
        "differs": game.differs,
    }


def _call(given: Any, place: int, turn: int) -> ToolCall:
    if not (isinstance(given, dict) and isinstance(given.get("name"), str)):
        raise DataError('a call is {"name": "…", "arguments": {…}}')
    arguments = given.get("arguments", {})
    if not isinstance(arguments, dict):
        raise DataError(f"arguments of {given['name']} are no JSON object")
    return ToolCall(given["name"], arguments, f"{turn}.{place}")


def _whole(given: Mapping[str, Any], name: str) -> int:
    value = given.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise DataError(f"{name} is {value!r}: give a whole number from 0")
    return value
