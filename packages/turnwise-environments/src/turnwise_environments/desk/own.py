"""A service desk of one's own: tasks in tau-bench's format, one's own database, tools and policy.

The agent speaks by answering and works with the tools of the module (`own_tools.py`). Success is
the database that the task's own actions make, and no other change, and messages of the agent with
all facts that the user must learn. Tasks that are solved by doing nothing are left out.
"""

import json
import pickle
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from turnwise.environments.base import EnvironmentSpec
from turnwise.environments.records import read_text
from turnwise.environments.tasksets import SOLVED, TaskFile, TaskSet
from turnwise.environments.turn_parts import share
from turnwise.errors import DataError
from turnwise.tokens import Source
from turnwise.tools.tool import Tool
from turnwise.types import Action, Observation, Step, Task, ToolCall, Trajectory, Verdict
from turnwise_environments.desk.own_tools import Data, differences, read_tables, read_tools, write
from turnwise_environments.desk.records import read_tasks
from turnwise_environments.desk.users import (
    Desk,
    Dialogue,
    ModelUserSettings,
    Play,
    User,
    make_model_user,
)

MOST_NUMBERS = 20
"""Most numbers in a message that counts: a longer list could hit the right one by chance."""
PARTS = {
    "database": share("whether the database is as wanted"),
    "told": share("whether the agent said all that the user must learn"),
    "ended": share("whether the conversation came to its end"),
}
WEAKNESS = (
    "what has to be told counts in any sentence of the agent's: words around it are not read, and "
    "a message that lists up to 20 numbers tells each of them"
)
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


class OwnDesk(Desk):
    """A service desk whose tools are the functions of the user's module. Example:
    `OwnDesk(TaskFile("tasks.json"), "database", "tools.py", "policy.md")`."""

    facts = EnvironmentSpec("own_desk", "1", parts=PARTS)

    def __init__(
        self,
        tasks: TaskFile,
        database: str,
        tools: str,
        policy: str,
        user: ModelUserSettings | None = None,
        isolated: bool = True,
    ) -> None:
        """`tasks` is a file in tau-bench's or tau2-bench's format, `database` a
        .json file or a folder of them, `tools` a Python file or module, `policy` a text file.
        `user` describes a language model as the user; without, the user is scripted. With
        `isolated` tools run in processes of their own, which are killed at the deadline."""
        self._own_tools = read_tools(tools, isolated)
        self._model = make_model_user(user)
        document = _document(Path(policy).expanduser())
        self._base = read_tables(Path(database).expanduser())
        self._dump = pickle.dumps(self._base)  # read for each episode: sooner than a deep copy
        self.weaknesses = [WEAKNESS]
        found, told = read_tasks(
            tasks.path, self._base, self._own_tools, document, scripted=self._model is None
        )
        scores = {"noop": 0.0} if self._model else SOLVED
        described = [[one.schema for one in self.tools()], sorted(task.id for task in found)]
        content = "".join(json.dumps(part, sort_keys=True) for part in (described, self._base))
        self.task_set = TaskSet.shuffled(
            found, tasks.heldout_share, scores, told, lambda _: content
        )

    @property
    def data(self) -> Data:
        """The tables of this episode, which the tools read and write."""
        return self._play.data

    def tools(self) -> list[Tool]:
        return list(self._own_tools.over(self).values())

    async def reset(self, task: Task, seed: int) -> Observation:
        script = [list(one) for one in task.data["script"]]
        dialogue = Dialogue(task.data["instruction"], seed)
        self._play = Play(pickle.loads(self._dump), User(script), dialogue)
        if self._model is None:
            return Observation(task.prompt, Source.USER)
        first = await self._model.begin(dialogue)
        return Observation(f"{task.prompt}\nCustomer: {first}", Source.USER)

    async def _worked(self, action: Action) -> Step:
        """Calls in order, up to one that ends the conversation."""
        results = []
        for call in action.calls:
            results.append(await self._run(call))
            if call.name in self._own_tools.last and results[-1].ok:
                self._play.over = True
                break
        text = "\n".join(result.content for result in results)
        return Step(Observation(text), tuple(results), done=self._play.over)

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """1 when the conversation came to its end, the database is what the task's actions make of
        it, and the agent said all expected facts."""
        secret = trajectory.task.secret
        kept = differences(self._base, self._play.data) == secret["changes"]
        said = [turn.action.answer for turn in trajectory.turns if turn.action.answer is not None]
        told = all(was_told(expected, said) for expected in secret["outputs"])
        success = kept and told and self._play.over
        parts = {"database": float(kept), "told": float(told), "ended": float(self._play.over)}
        return Verdict(float(success), success, parts, f"{len(said)} messages")

    def oracle(self, task: Task) -> Sequence[Action]:
        self._check_scripted()
        tell = Action("", "tell", answer="; ".join(task.secret["outputs"]) or "It is done.")
        calls = [
            Action("", "act", (ToolCall(name, arguments),))
            for name, arguments in task.secret["actions"]
        ]
        # Each answer brings one of the user's sentences, and one more ends the conversation.
        talk = [tell] * (len(task.data["script"]) + 1)
        ends = any(name in self._own_tools.last for name, _ in task.secret["actions"])
        return [talk[0], *calls] if ends else [*calls, *talk]

    def snapshot(self) -> bytes:
        play = self._play
        state = {
            "changes": differences(self._base, play.data),
            "user": asdict(play.user),
            "dialogue": asdict(play.dialogue),
            "over": play.over,
        }
        return json.dumps(state).encode()

    def restore(self, state: bytes) -> None:
        found = json.loads(state)
        data: Data = pickle.loads(self._dump)
        write(found["changes"], data)
        user, dialogue = User(**found["user"]), Dialogue(**found["dialogue"])
        self._play = Play(data, user, dialogue, found["over"])


def was_told(expected: str, said: Sequence[str]) -> bool:
    """Whether one of the messages has what is expected, whole, whatever its case; commas count in
    neither. As in tau-bench the words around it do not matter; unlike there, 1234 does not contain
    23, and a long list of numbers contains nothing."""
    wanted = _plain(expected)
    pattern = re.compile(rf"(?<![\w.]){re.escape(wanted)}(?!\w|\.\d)")
    messages = [text for text in map(_plain, said) if len(_NUMBER.findall(text)) <= MOST_NUMBERS]
    return any(pattern.search(text) for text in messages)


def _plain(text: str) -> str:
    return " ".join(text.lower().replace(",", "").split())


def _document(path: Path) -> str:
    if not path.is_file():
        raise DataError(f"{path}: there is no such file: give the policy as text")
    return read_text(path).strip()
