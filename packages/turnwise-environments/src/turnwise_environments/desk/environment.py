"""The service desk: do what a user wishes if the policy allows it, and report the outcome.

As in tau-bench (arXiv 2406.12045): a policy document, a database with tools that read and write, a
user who gives facts turn by turn. The agent speaks by answering; the user's reply follows. Success
is the database as the policy wants it, and no other change, and the right answer to the closing
question. A refusal is a call too, so no task is solved by doing nothing. The user is scripted, or a
language model (`users.py`).
"""

import copy
import json
import random
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import get_args

from turnwise.environments.base import EnvironmentSpec
from turnwise.environments.turn_parts import share
from turnwise.ranges import Count
from turnwise.tokens import Source
from turnwise.types import Action, Observation, Task, ToolCall, Trajectory, Verdict
from turnwise_environments.common import each_once
from turnwise_environments.desk.tasks import COUNT, ShopTools, State, WishKind, made_tasks
from turnwise_environments.desk.users import (
    Desk,
    Dialogue,
    ModelUserSettings,
    Play,
    User,
    make_model_user,
)
from turnwise_environments.progress import STATE_PARTS, cells_of, replayed, state_parts
from turnwise_environments.rewards.numeric import matches

ALL_WISHES: Sequence[WishKind] = get_args(WishKind)
RULES, PRICES = 5, range(12, 100, 2)
PARTS = {
    "state": share("whether the database is as wanted"),
    "told": share("whether the closing question was answered rightly"),
    **STATE_PARTS,
}
WISH = "\nCustomer: "
"""Stands between the policy and the user's first words."""


class ServiceDesk(ShopTools, Desk):
    """Tools that read: check_code, show_order. Tools that write: cancel, take_back, change_street,
    refuse."""

    facts = EnvironmentSpec("desk", "1", parts=PARTS)

    def __init__(
        self,
        count: Count = COUNT,
        short: bool = False,
        wishes: Sequence[WishKind] = ALL_WISHES,
        user: ModelUserSettings | None = None,
    ) -> None:
        """`count` tasks in each split, with wishes of these kinds; in few words if `short`, for a
        small model. `user` describes a language model as the user; without, the user is scripted.
        Raises ConfigError for a kind that is there twice, and for none."""
        chosen = each_once("desk: wishes", wishes, ALL_WISHES)
        self._short = short
        self._model = make_model_user(user)
        self.task_set = made_tasks(count, short, chosen)
        if self._model is not None:
            self.task_set = replace(self.task_set, reference_scores={"noop": 0.0})

    async def reset(self, task: Task, seed: int) -> Observation:
        data = copy.deepcopy(dict(task.data))
        dialogue = Dialogue("", seed)
        self._play = Play(data["state"], User(data["script"]), dialogue)
        if self._model is not None:
            policy, _, wish = task.prompt.partition(WISH)
            dialogue.instruction = instruction(wish, data["script"])
            first = await self._model.begin(dialogue)
            return Observation(f"{policy}{WISH}{first}", Source.USER)
        return Observation(task.prompt, Source.USER)

    @property
    def state(self) -> State:  # type: ignore[override]
        """The database of this episode, which the tools read and write."""
        return self._play.data

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """1 when the database is what the policy makes of the wish, and no more, and the closing
        question was answered with the right number."""
        secret, before = trajectory.task.secret, trajectory.task.data["state"]
        kept = self.state == secret["state"]
        told = self._play.over and matches(trajectory.answer, secret["told"])
        success = kept and told
        parts = {"state": float(kept), "told": float(told)}
        twin = self.fresh()
        twin._play = Play(copy.deepcopy(before))
        states = await replayed(twin, trajectory, lambda: cells_of(twin.state))
        turn_parts = state_parts(cells_of(before), cells_of(secret["state"]), states)
        detail = f"answered {trajectory.answer!r}"
        return Verdict(float(success), success, parts, detail, turn_parts)

    def oracle(self, task: Task) -> Sequence[Action]:
        """Ask for what is needed, look, act, and report; without a thought in short tasks."""
        self._check_scripted()
        secret = task.secret
        name, arguments = secret["call"]
        questions = [f"What is the {word}?" for word, _ in task.data["script"] if word]
        reads = [
            ToolCall("check_code", secret["check"]),
            ToolCall("show_order", {"order": arguments["order"]}),
        ]
        script = [
            *(Action("", "ask", answer=question) for question in questions),
            *(Action("", "look", (call,)) for call in reads),
            Action("", "act", (ToolCall(name, arguments),)),
            Action("", "tell", answer="done"),
            Action("", "tell", answer=secret["told"]),
        ]
        return [replace(action, thought="") for action in script] if self._short else script

    def random_actions(self, task: Task, stream: random.Random) -> Sequence[Action]:
        """Let the user talk, refuse with a random rule and price, and name the rule."""
        rule = stream.randint(1, RULES)
        arguments = {"order": task.info["order"], "rule": rule, "price": stream.choice(PRICES)}
        call = ToolCall("refuse", arguments)
        talk = [Action("", answer="yes") for _ in task.data["script"]]
        return [*talk, Action("", calls=(call,)), Action("", answer=str(rule))]

    def snapshot(self) -> bytes:
        return json.dumps(asdict(self._play), sort_keys=True).encode()

    def restore(self, state: bytes) -> None:
        found = json.loads(state)
        user, dialogue = User(**found["user"]), Dialogue(**found["dialogue"])
        self._play = Play(found["data"], user, dialogue, found["over"])


def instruction(wish: str, script: Sequence[Sequence[str]]) -> str:
    """The instructions for a language model, about the customer that it plays."""
    *known, (_, question) = script
    facts = " ".join(f"If asked for it: {said}" for _, said in known)
    return (
        f"{wish} {facts} When it is done or refused, ask this once: {question} "
        "After the answer, whatever it is, you are content."
    )
