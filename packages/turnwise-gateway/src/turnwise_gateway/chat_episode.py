"""Episodes whose policy is a model behind an endpoint of chat completions, with function calling.

    begin ─> messages ─> turn ─> calls ─> step ─> a message for each result ─> …

A message without a call is the model's answer. The loop is the one that every episode has
(`loop.py`), so turns, calls, seconds, outcomes and verdicts are the same; tokens are the endpoint's
own affair, and a trajectory has none: nothing of it can be trained on.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

from turnwise.chat.endpoint import ChatEndpoint, ChatTurn, LongError
from turnwise.config import RolloutConfig
from turnwise.environments.base import Environment
from turnwise.errors import InfrastructureError
from turnwise.rewards.composition import Reward
from turnwise.rollout.loop import EpisodeEnded, EpisodeLoop
from turnwise.rollout.priority_semaphore import PrioritySemaphore
from turnwise.rollout.runner import Progress, Runner, within
from turnwise.scaffolds.text import texts_for_calls
from turnwise.tools.tool import Tool
from turnwise.types import Action, Branch, Observation, Outcome, Step, ToolCall, Trajectory

INSTRUCTIONS = (
    "Do the task. Where there are tools, call them as you need them. A message without a call is "
    "your answer: write nothing but the answer itself in it, without explanation."
)
MOST_FAILURES = 16
"""Requests in a row without an answer, each tried several times, after which no more are made."""
CUT_OFF = "Your message was cut off: it was too long. Write a shorter one."
NOTHING = "Your message was empty. Call a tool, or write your answer."
NO_OBJECT = "The arguments of a call have to be one JSON object. Make the call again."


@dataclass
class ChatModel:
    """A model at an endpoint, and the tokens that it took so far."""

    endpoint: ChatEndpoint
    name: str
    """The model's name at the endpoint."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of each request, such as temperature."""
    failures: int = field(default=0, init=False)
    """Requests in a row that were not answered."""
    requests: int = field(default=0, init=False)
    read: int = field(default=0, init=False)
    written: int = field(default=0, init=False)
    """Tokens of all conversations and turns, as the endpoint counts them."""

    async def turn(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
    ) -> ChatTurn:
        """The model's next turn. Raises as `ChatEndpoint.ask_for_turn`, and at once after
        MOST_FAILURES in a row: an endpoint that is gone is not waited for by every episode."""
        if self.failures >= MOST_FAILURES:
            raise InfrastructureError(f"{self.endpoint.place}: given up after so many failures")
        body = {"model": self.name, "messages": list(messages)}
        given = {"tools": list(tools)} if tools else {}
        try:
            turn = await self.endpoint.ask_for_turn({**body, **given, **self.options})
        except LongError:
            raise
        except InfrastructureError:
            self.failures += 1
            raise
        self.failures = 0
        self.requests += 1
        self.read += turn.read
        self.written += turn.written
        return turn


@dataclass(kw_only=True)
class ChatEpisode(EpisodeLoop):
    """One run of the loop with a model behind an endpoint."""

    model: ChatModel
    semaphore: PrioritySemaphore
    """Bounds the episodes under way."""
    messages: list[dict[str, Any]] = field(default_factory=list, init=False)
    """The conversation up to here."""
    _said: ChatTurn = field(default=ChatTurn(""), init=False)

    def _place(self) -> AbstractAsyncContextManager[None]:
        return self.semaphore.held(0)

    async def _begin(self) -> None:
        prompt = await self._reset()
        self.messages.append({"role": "system", "content": INSTRUCTIONS})
        self.messages.append({"role": "user", "content": prompt.content})

    async def _act(self, turn: int) -> Action:
        self._check_time()
        tools = [offered(tool) for tool in self.prototype.tools()]
        try:
            self._said = await self.model.turn(self.messages, tools)
        except LongError as error:
            raise EpisodeEnded(Outcome.TRUNCATED_CONTEXT, str(error)) from error
        except InfrastructureError as error:
            raise EpisodeEnded(Outcome.INFRASTRUCTURE_MODEL, str(error)) from error
        action = action_of(self._said)
        if action.error is not None:  # endpoints refuse a call that cannot be read
            self._said = ChatTurn(self._said.text)
        self.messages.append(message_of(self._said))
        return action

    async def _observe(self, observation: Observation, step: Step, turn: int) -> None:
        """A message for each call, which endpoints insist on; else one of the user's."""
        if step.forgets:
            del self.messages[2:]
        calls = () if step.forgets else self._said.calls
        if not calls:
            self.messages.append({"role": "user", "content": observation.content})
        texts = texts_for_calls(observation, step.results, len(calls))
        for call, text in zip(calls, texts, strict=True):
            self.messages.append({"role": "tool", "tool_call_id": call.id, "content": text})


def offered(tool: Tool) -> dict[str, Any]:
    """A tool as requests of chat completions have it."""
    return {"type": "function", "function": dict(tool.schema)}


def message_of(said: ChatTurn) -> dict[str, Any]:
    """A turn as the conversation has it. Its calls are as they came: some endpoints sign them."""
    if not said.asked:
        return {"role": "assistant", "content": said.text or "…"}
    return {"role": "assistant", "content": said.text or None, "tool_calls": list(said.asked)}


def action_of(said: ChatTurn) -> Action:
    """A turn as an action: its calls, or else its words as an answer."""
    if said.cut_off:
        return Action(said.text, error=CUT_OFF)
    if not said.calls:
        return Action(said.text, answer=said.text) if said.text else Action("", error=NOTHING)
    calls = []
    for call in said.calls:
        if call.arguments is None:
            return Action(said.text, error=NO_OBJECT)
        calls.append(ToolCall(call.name, call.arguments))
    return Action(said.text, calls=tuple(calls))


@dataclass(frozen=True)
class ChatRunner(Runner):
    """Rollouts whose policy is a model behind an endpoint."""

    environment: Environment
    model: ChatModel
    limits: RolloutConfig
    semaphore: PrioritySemaphore
    progress: Progress | None = None
    reward: Reward | None = None
    weights: Mapping[str, float] = field(default_factory=dict)

    def episode(self, index: int, planned: Trajectory, start: Branch | None = None) -> ChatEpisode:
        """The agent loop of one trajectory. An endpoint's episodes begin at the beginning."""
        del index
        assert start is None  # it has no tokens before a branch
        return ChatEpisode(
            planned=planned,
            prototype=self.environment,
            limits=within(self.limits, self.environment.budget(planned.task)),
            progress=self.progress,
            reward=self.reward,
            weights=self.weights,
            model=self.model,
            semaphore=self.semaphore,
        )
