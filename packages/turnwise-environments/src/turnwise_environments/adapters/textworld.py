"""Text adventures of TextWorld: games made from seeds, or your own; needs the extra `textworld`.

    environment.name="textworld"
    environment.options={ tasks = { rooms = 3, quest_length = 4 }, admissible = true }

Success is to win. A game takes a second or two to make, so made ones are kept in the cache folder.
Not here: games that TextWorld did not make, which report neither score nor end.
"""

import random
import re
import tempfile
import threading
import warnings
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from turnwise.environments.base import EnvironmentSpec
from turnwise.environments.tasksets import SOLVED, TaskSet, identities
from turnwise.errors import ConfigError, DataError, NotSupportedError, ToolError
from turnwise.folders import cache_folder
from turnwise.options import Options
from turnwise.ranges import Count, Share
from turnwise.seeds import derive
from turnwise.tools.tool import Tool
from turnwise.types import Action, Task, ToolCall
from turnwise_environments.adapters.replayed import PARTS, RANDOM_ACTIONS, Replayed, Reply
from turnwise_environments.common import check_installed, identity, words_in

PROMPT = "Play a text adventure. Give one command at a time, such as: look."
SEEDS = 2**31
MOST_CHARACTERS = 200
"""Longest command, in characters."""
KNOWN = 9
"""Characters of a word that the interpreter reads."""
OUTSIDE = words_in(
    "save restore script transcript unscript noscript recording replay quit q restart verify "
    "random actions rules showme test trace purloin abstract gonear scope showheap showverb "
    "tree"
)
"""Words to the interpreter, not to the game, at the beginning of a command: files and dialogues."""
_PARTS = re.compile(r"[.,;]|\bthen\b")
_LOADING = threading.Lock()
"""TextWorld's parser, which reads a game, is not made for several threads."""


@dataclass(frozen=True)
class MadeGames(Options):
    """`count` games, both splits together, of so many `rooms`, `objects` and commands to win
    with."""

    rooms: Count = 2
    objects: Count = 4
    quest_length: Count = 3
    count: Count = 20
    heldout_share: Share = 0.5

    def files(self, package: str) -> list[Path]:
        """Make them from seeds, or take them from the cache; a seed that gives none is passed over.
        Raises ConfigError where too few seeds give one."""
        name = f"{self.rooms}-{self.objects}-{self.quest_length}"
        folder = cache_folder() / f"textworld-{package}-won" / name
        folder.mkdir(parents=True, exist_ok=True)
        files: list[Path] = []
        for number in range(2 * self.count):
            seed = derive("textworld", name, number) % SEEDS
            file = folder / f"{seed}.z8"
            if file.is_file() or _make(file, seed, self.rooms, self.objects, self.quest_length):
                files.append(file)
            if len(files) == self.count:
                return files
        raise ConfigError(
            f"textworld: of {2 * self.count} seeds {len(files)} give a game of {self.rooms} rooms, "
            f"{self.objects} objects and {self.quest_length} commands: ask for others, or for fewer"
        )


STANDARD = MadeGames()


@dataclass(frozen=True)
class GameFolder(Options):
    """The games of a folder: `.z8` files with TextWorld's `.json` beside them."""

    folder: str
    heldout_share: Share = 0.5

    def files(self, package: str) -> list[Path]:
        """Find them. Raises DataError where there are none."""
        del package
        folder = Path(self.folder).expanduser()
        files = sorted(folder.glob("*.z8"))
        if not files:
            raise DataError(f"textworld: {folder} has no file that ends with .z8")
        for file in files:
            if not file.with_suffix(".json").is_file():
                raise DataError(f"textworld: {file}: TextWorld's .json is not beside it")
        return files


class TextWorld(Replayed):
    """One tool, `act`, that takes a command. Example: `TextWorld(tasks=MadeGames(rooms=3,
    objects=6, quest_length=4, count=50))`."""

    def __init__(
        self,
        tasks: MadeGames | GameFolder = STANDARD,
        admissible: bool = False,
        max_steps: Count = 50,
    ) -> None:
        """With `admissible` each view ends with the commands that the game would understand. After
        `max_steps` commands the game is over."""
        check_installed("textworld", "textworld")
        package = version("textworld")
        self.facts = EnvironmentSpec("textworld", package, turn_rewards=True, parts=PARTS)
        self.admissible, self.max_steps = admissible, max_steps
        read = [_read(file) for file in tasks.files(package)]
        self._commands = {task.id: commands for task, commands in read}
        games = [task for task, _ in read]
        self.task_set = TaskSet.shuffled(games, tasks.heldout_share, SOLVED, content=identities)

    def oracle(self, task: Task) -> Sequence[Action]:
        if not task.secret["walkthrough"]:
            raise NotSupportedError(f"textworld: the game {task.id} has no walkthrough")
        return [_action(command) for command in task.secret["walkthrough"]]

    def random_actions(self, task: Task, stream: random.Random) -> Sequence[Action]:
        known = self._commands[task.id]
        return [_action(stream.choice(known)) for _ in range(RANDOM_ACTIONS)]

    def _tool(self) -> Tool:
        return self._act_tool(
            self.command, "Give a command to the game.", command={"type": "string"}
        )

    def command(self, command: str) -> str:
        return self.act(command)

    def _begin(self, task: Task, seed: int) -> str:
        del seed  # a game of TextWorld has no luck
        self._end()
        self._game, state = _begun(
            task.data["file"], "admissible_commands", "max_score", "objective", "score", "won"
        )
        self._steps, self._score = 0, float(state.score)
        text = _readable(state.feedback)
        title, found, rest = text.partition(state.objective)
        return self._shown(found + rest if found else title, state)

    def _do(self, action: str) -> Reply:
        command = " ".join(action.split())
        # A backslash speaks to the interpreter, which at some of them writes for ever.
        plain = command.isascii() and command.isprintable() and "\\" not in command
        if not command or len(command) > MOST_CHARACTERS or not plain:
            raise ToolError(f"a command has 1 to {MOST_CHARACTERS} plain characters")
        for part in _PARTS.split(command.lower()):
            word = part.split()[:1]
            if word and word[0][:KNOWN] in {outside[:KNOWN] for outside in OUTSIDE}:
                raise ToolError(f"{word[0]!r} is no command of the game")
        state, score, done = self._game.step(command)
        self._steps += 1
        gained, self._score = float(score) - self._score, float(score)
        late = not done and self._steps >= self.max_steps
        text = _readable(state.feedback)
        return Reply(
            text if done else self._shown(text, state),
            gained / max(float(state.max_score), 1.0),
            bool(done) or late,
            late,
            bool(state.won),
        )

    def _shown(self, text: str, state: Any) -> str:
        if not self.admissible:
            return text
        return f"{text}\nYou can: {'; '.join(sorted(state.admissible_commands))}"


def _action(command: str) -> Action:
    return Action("", calls=(ToolCall("act", {"command": command}),))


def _readable(text: str) -> str:
    """A reply without the prompt's line, empty lines, and the questions after the game's end."""
    told = (text.rpartition("\n>")[0] or text).partition("Would you like to RESTART")[0]
    return "\n".join(line.strip() for line in told.splitlines() if line.strip())


def _make(file: Path, seed: int, rooms: int, objects: int, quest_length: int) -> bool:
    """Make a game and write it, the `.z8` last; False where its own walkthrough does not win: in
    some, two things have names that the game confuses."""
    from textworld import GameOptions
    from textworld.generator import QuestGenerationError, compile_game, make_game

    options = GameOptions()
    options.seeds = seed
    options.nb_rooms, options.nb_objects, options.quest_length = rooms, objects, quest_length
    try:
        game = make_game(options)
    except QuestGenerationError:
        return False
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        options.path = f"{folder}/{file.name}"
        compiled = Path(compile_game(game, options))
        if not _is_won(compiled, game.walkthrough or []):
            return False
        compiled.with_suffix(".json").replace(file.with_suffix(".json"))
        compiled.replace(file)
    return True


def _begun(file: str, *told: str) -> tuple[Any, Any]:
    """Begin a game, and return it with its first state, which has all that is named in `told`."""
    import textworld

    with _LOADING, warnings.catch_warnings():
        # The interpreter says of each game that it cannot tell its score; TextWorld can.
        warnings.simplefilter("ignore")
        wanted = textworld.EnvInfos(**dict.fromkeys(told, True))
        game = textworld.start(file, request_infos=wanted)
        game.seed(0)
        return game, game.reset()


def _is_won(file: Path, walkthrough: Sequence[str]) -> bool:
    game, state = _begun(str(file), "won")
    with closing(game):
        for command in walkthrough:
            state, _, done = game.step(command)
            if done:
                break
        return bool(state.won)


def _read(file: Path) -> tuple[Task, Sequence[str]]:
    """A game as a task, and the commands that it may understand somewhere."""
    import textworld

    told = file.with_suffix(".json")
    try:
        game = textworld.Game.load(str(told))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise DataError(f"textworld: {told}: TextWorld has not written it: {error!r}") from None
    content: Mapping[str, Any] = game.serialize()
    parts = {key: content[key] for key in ("world", "quests")}
    secret = {"walkthrough": list(game.walkthrough or [])}
    return Task(identity(parts), PROMPT, secret, {"file": str(file)}), sorted(
        game.possible_admissible_commands
    )
