"""The service desk: do what a user wishes if the policy allows it, and tell what comes of it.

As in tau-bench (arXiv 2406.12045): a policy document, a database with tools that read and write, a
user who tells facts turn by turn. The agent speaks by answering; the user's reply follows. Success
is the database as the policy wants it, and no other change, and the right answer to the closing
question. A refusal is a call too, so no task is solved by doing nothing. Not here: a language model
as the user.
"""

import copy
import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from pydantic import StrictInt

from turnwise.environments.base import Environment, EnvironmentSpec, Split
from turnwise.environments.desk.shop import Shop, State
from turnwise.environments.desk.tasks import made_tasks, tasks_hash
from turnwise.environments.desk.user import User
from turnwise.errors import ConfigError
from turnwise.rewards.numeric import matches
from turnwise.tools.tool import consequential, tool
from turnwise.types import (
    Action,
    Observation,
    Source,
    Step,
    Task,
    ToolCall,
    Trajectory,
    Verdict,
)

COUNT = 1000
RANDOM_FLOOR = 0.0015
"""Measured on the standard tasks: success of one who lets the user talk, then refuses with a random
rule and price, and names the rule."""
RULES, PRICES = 5, range(12, 100, 2)


@dataclass
class Play:
    """The state of one episode, all of it."""

    state: State = field(default_factory=dict)
    user: User = field(default_factory=User)
    over: bool = False


class ServiceDesk(Environment):
    """Tools that read: check_code, show_order. Tools that write: cancel, take_back, change_street,
    refuse."""

    _play: Play

    def __init__(self, count: int = COUNT, short: bool = False) -> None:
        """`count` tasks in each split; in few words if `short`, for a small model. Raises
        ConfigError for a count below 1."""
        if count < 1:
            raise ConfigError("desk: count is 1 or more")
        self._tasks = made_tasks(count, short)
        self._data_hash = tasks_hash(self._tasks)
        self._floors = {"noop": 0.0, "oracle": 1.0}
        if count == COUNT and not short:
            self._floors["random"] = RANDOM_FLOOR

    @property
    def spec(self) -> EnvironmentSpec:
        """The hash is of all tasks."""
        return EnvironmentSpec("desk", "1", self._data_hash, self._floors)

    def tasks(self, split: Split) -> Sequence[Task]:
        """All tasks of a split, in an order that is the same every time."""
        return self._tasks[split]

    async def reset(self, task: Task, seed: int) -> Observation:
        """The policy, and the user's first words."""
        del seed
        data = copy.deepcopy(dict(task.data))
        self._play = Play(data["state"], User(data["script"]))
        return Observation(task.prompt, Source.USER)

    async def step(self, action: Action) -> Step:
        """Run the calls; after an answer, what the user says, or the end."""
        if action.answer is None:
            return await super().step(action)
        reply = self._play.user.hear(action.answer)
        if reply is None:
            self._play.over = True
            return Step(done=True)
        return Step(Observation(f"Customer: {reply}", Source.USER))

    @tool
    async def check_code(self, name: str, code: StrictInt) -> str:
        """Whether a customer's code is right or wrong."""
        return Shop(self._play.state).check_code(name, code)

    @tool
    async def show_order(self, order: StrictInt) -> str:
        """What is known of an order."""
        return Shop(self._play.state).show_order(order)

    @tool
    @consequential("write")
    async def cancel(self, order: StrictInt, refund: StrictInt) -> str:
        """Cancel an order, and pay a refund."""
        return Shop(self._play.state).cancel(order, refund)

    @tool
    @consequential("write")
    async def take_back(self, order: StrictInt, refund: StrictInt) -> str:
        """Take an order back, and pay a refund."""
        return Shop(self._play.state).take_back(order, refund)

    @tool
    @consequential("write")
    async def change_street(self, order: StrictInt, street: str) -> str:
        """Send an order to another street."""
        return Shop(self._play.state).change_street(order, street)

    @tool
    @consequential("write")
    async def refuse(self, order: StrictInt, rule: StrictInt, price: StrictInt) -> str:
        """Note which rule forbids what is wished for an order, and the order's price."""
        return Shop(self._play.state).refuse(order, rule, price)

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """1 when the database is what the policy makes of the wish, and no more, and the closing
        question, the last thing that was asked, was answered with the right number; else 0."""
        secret = trajectory.task.secret
        kept = self._play.state == secret["state"]
        told = self._play.over and matches(trajectory.answer, secret["told"])
        success = kept and told
        parts = {"state": float(kept), "told": float(told)}
        return Verdict(float(success), success, parts, f"answered {trajectory.answer!r}")

    def oracle(self, task: Task) -> Sequence[Action]:
        """Ask for the code and what else is needed, look, act, and tell."""
        secret = task.secret
        name, arguments = secret["call"]
        questions = [f"What is the {word}?" for word, _ in task.data["script"] if word]
        reads = [
            ToolCall("check_code", secret["check"]),
            ToolCall("show_order", {"order": arguments["order"]}),
        ]
        return [
            *(Action("", "ask", answer=question) for question in questions),
            *(Action("", "look", (call,)) for call in reads),
            Action("", "act", (ToolCall(name, arguments),)),
            Action("", "tell", answer="done"),
            Action("", "tell", answer=secret["told"]),
        ]

    def random_actions(self, task: Task, stream: random.Random) -> Sequence[Action]:
        """Let the user talk, refuse with a random rule and price, and name the rule."""
        rule = stream.randint(1, RULES)
        arguments = {"order": task.info["order"], "rule": rule, "price": stream.choice(PRICES)}
        call = ToolCall("refuse", arguments)
        talk = [Action("", answer="yes") for _ in task.data["script"]]
        return [*talk, Action("", calls=(call,)), Action("", answer=str(rule))]

    def snapshot(self) -> bytes:
        """The complete state of the episode."""
        return json.dumps(asdict(self._play), sort_keys=True).encode()

    def restore(self, state: bytes) -> None:
        """Return to a state given by `snapshot`."""
        found = json.loads(state)
        self._play = Play(found["state"], User(**found["user"]), found["over"])
