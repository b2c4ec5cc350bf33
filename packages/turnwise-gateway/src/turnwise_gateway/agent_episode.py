"""An episode that an agent of the user's own plays, by way of the gateway.

The environment gives the task and the verdict; turns are what the agent asks the policy for.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turnwise.capture import Capture, reasons, total
from turnwise.chat.endpoint import ChatEndpoint, check_endpoint
from turnwise.config import ScaffoldConfig
from turnwise.engines.base import Engine
from turnwise.errors import InfrastructureError, RunStoppedError, located
from turnwise.forward.images import reader_of
from turnwise.interrupt import interrupted_after
from turnwise.models.copies import trained_weights
from turnwise.parts.components import Components
from turnwise.rewards.verdicts import VerdictError
from turnwise.rollout.episode import Episode
from turnwise.rollout.loop import EpisodeEnded
from turnwise.rollout.runner import Player
from turnwise.times import Doing, Span
from turnwise.types import Action, Group, Outcome, Step, Task, ToolCall, Trajectory, Verdict
from turnwise_gateway.address import Address, blotted
from turnwise_gateway.agents import Agent, FunctionPlayer, make_agent
from turnwise_gateway.programs import Returned
from turnwise_gateway.remote import RemotePlayer
from turnwise_gateway.rendering import Scaffolds
from turnwise_gateway.roles import by_role, frozen_engines
from turnwise_gateway.sandboxed import SandboxedPlayer
from turnwise_gateway.server import Gateway
from turnwise_gateway.session import EndpointRole, Role, Session
from turnwise_gateway.settings import (
    AnyAgentConfig,
    CommandAgent,
    EndpointPolicy,
    FrozenPolicy,
    TrainedPolicy,
)
from turnwise_gateway.spans import EpisodeSpans, Spans
from turnwise_gateway.usage import Usage

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

log = logging.getLogger(__name__)
Policy = TrainedPolicy | FrozenPolicy | EndpointPolicy
ENDPOINT_SECONDS = 300.0
"""Deadline of one attempt at a reply of an endpoint's model."""
GRACE = 5.0
"""Seconds that a function has to end when it is cancelled; its requests are refused by then."""
NO_REWARD = (
    'the agent gave no reward: return one, or POST it to /reward, or set agent.reward="environment"'
)
UNASKED = (
    'the agent gave a reward, and agent.reward is "environment", whose verifier gives it: set '
    'agent.reward="agent", or leave it out'
)


@dataclass(frozen=True)
class AgentHost(Player):
    """The parts that all episodes of an agent share. Example: make_host(config, ...)."""

    config: AnyAgentConfig
    agent: Agent
    gateway: Gateway
    scaffolds: Scaffolds
    tokenizer: "PreTrainedTokenizerBase"
    spans: Spans | None = None
    roles: Mapping[str, Role] = field(default_factory=dict)
    """The agent's roles by name; empty for one, the policy."""
    frozen: Mapping[str, Engine] = field(default_factory=dict)
    """The engines of its frozen roles, by their checkpoints."""
    said: set[str] = field(default_factory=set)

    def episode(self, **parts: Any) -> "AgentEpisode":
        return AgentEpisode(host=self, **parts)

    async def freeze(self, model: "PreTrainedModel") -> None:
        """Give roles without a checkpoint the weights with which RL begins."""
        if "" in self.frozen:
            await self.frozen[""].load_weights(trained_weights(model), 0)

    def compared(self, groups: Sequence[Group]) -> Sequence[Group]:
        """The parts of roles, where they get credit of their own."""
        return by_role(groups) if self.config.credit == "role" else groups

    def check(self, groups: Sequence[Group]) -> None:
        """Raise RunStoppedError where fewer than `agent.coverage` of the tokens that were sampled
        for the agent, or for a role of it, are in its trajectories."""
        members = [one for group in groups for one in group.trajectories]
        found = total([one.capture for one in members if one.capture is not None])
        whole = {"the agent": (found.sampled, found.dropped, found.coverage)}
        roles = {
            f"role {name}": (counts["sampled"], reasons(counts), found.coverage_of(name))
            for name, counts in found.roles.items()
        }
        for name, (sampled, dropped, coverage) in (roles or whole).items():
            if coverage >= self.config.coverage:
                continue
            lost = ", ".join(f"{count} {reason}" for reason, count in dropped.items())
            raise RunStoppedError(
                f"{sampled - sum(dropped.values())} of {sampled} tokens sampled for {name} are in "
                f"its trajectories ({lost}), and agent.coverage asks for "
                f"{self.config.coverage:g}: see why it hangs up on replies (turnwise agent check), "
                "or lower agent.coverage"
            )

    async def stop(self) -> None:
        """End the gateway and the engines of frozen roles, and send the last spans. Idempotent."""
        await self.gateway.stop()
        for engine in self.frozen.values():
            await engine.stop()
        if self.spans is not None:
            await self.spans.close()


def with_agent(config: AnyAgentConfig, components: Components) -> Components:
    """Give a run the player of its section `agent`. Raises ConfigError and DataError as `make_host`
    and `frozen_engines` do."""
    frozen, reader = frozen_engines(config, components), reader_of(components.model)
    encode = None if reader is None else reader.tokens
    scaffold, tokenizer = components.recipe.scaffold, components.tokenizer
    return replace(components, player=make_host(config, scaffold, tokenizer, encode, frozen))


def make_host(
    config: AnyAgentConfig,
    scaffold: ScaffoldConfig,
    tokenizer: "PreTrainedTokenizerBase",
    encode_image: Callable[[bytes], Sequence[int]] | None = None,
    frozen: Mapping[str, Engine] | None = None,
) -> "AgentHost":
    """Build the parts of an agent's episodes; `frozen` are the engines of frozen roles, by their
    checkpoints. Raises ConfigError for an agent that cannot be one."""
    agent = make_agent(config)
    name = config.command[0] if isinstance(config, CommandAgent) else config.run
    spans = None if config.spans == "off" else Spans(name, config.spans == "messages")
    gateway = Gateway(
        config.host,
        config.port,
        config.public_url,
        sandboxed=isinstance(agent, SandboxedPlayer),
        offers=agent.offers if isinstance(agent, RemotePlayer) else None,
    )
    return AgentHost(
        config,
        agent,
        gateway,
        Scaffolds(scaffold, tokenizer, encode_image),
        tokenizer,
        spans,
        {name: _role(name, role.policy, frozen or {}) for name, role in config.roles.items()},
        frozen or {},
    )


def _role(name: str, policy: Policy, frozen: Mapping[str, Engine]) -> Role:
    if isinstance(policy, FrozenPolicy):
        return frozen[policy.checkpoint]
    if isinstance(policy, EndpointPolicy):
        where = f"agent.roles.{name}.policy"
        check_endpoint(where, policy.url, policy.name, policy.key_variable)
        endpoint = ChatEndpoint(
            policy.url, f"role {name}", seconds=ENDPOINT_SECONDS, key_variable=policy.key_variable
        )
        return EndpointRole(endpoint, policy.name)
    return None


@dataclass(kw_only=True)
class AgentEpisode(Episode):
    """One run of an agent. Example: `await runner.episode(0, planned).run()`."""

    host: AgentHost
    capture: Capture | None = field(default=None, init=False)
    """The account of its calls, when it has ended."""
    usage: Usage = field(default_factory=Usage, init=False)
    tools_called: int = field(default=0, init=False)
    """Calls of the environment's tools by the agent."""
    _broken: EpisodeEnded | None = field(default=None, init=False)
    """The end that one of these calls was."""
    _one_tool: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _returned: Returned = field(default_factory=Returned, init=False)
    _reward: Verdict | None = field(default=None, init=False)
    _spans: EpisodeSpans | None = field(default=None, init=False)

    @property
    def trajectory(self) -> Trajectory:
        return replace(super().trajectory, capture=self.capture)

    async def run(self) -> Trajectory:
        if self.host.spans is None:
            return await super().run()
        with self.host.spans.episode(self.planned) as self._spans:
            played = await super().run()
            self._spans.ended(played)
        return played

    async def _begin(self) -> None:
        """Let the agent play: its end is the episode's. Always raises EpisodeEnded."""
        prompt = await self._reset()
        task = replace(self.planned.task.public(), prompt=prompt.content)
        host = self.host
        session = Session(
            self.session,
            self.planned.seed,
            self.limits,
            self.engine,
            host.scaffolds,
            host.tokenizer,
            roles=host.roles,
            credit_by_role=host.config.credit == "role",
            leave_out_thoughts=host.config.thoughts == "template",
            rewarded_by_agent=host.config.reward == "agent",
            spans=self._spans,
            clock=self.clock,
        )
        try:
            address = await host.gateway.open(session)
        except InfrastructureError as error:
            raise EpisodeEnded(Outcome.INFRASTRUCTURE_STEP, str(error)) from None
        self.usage, late = session.usage, False
        assert self._environment is not None  # there is one after a reset
        playing = asyncio.create_task(
            self._played(task, address, session, self._environment.folder)
        )
        try:
            late = not await self._ended_in_time(playing, session)
        finally:
            session.closed = True  # an agent that goes on is refused from now on
            playing.cancel()
            await asyncio.wait({playing}, timeout=GRACE)
            await host.gateway.close(address)
            # Now that its requests have ended, nothing is written to it any more.
            self.tokens, self.turns[:], self.capture = session.record()
            self._timed += [
                Span(Doing.SAMPLING, start - self._begun, end - self._begun)
                for start, end in session.waits
            ]
        self._warn_of_unreached()
        self._conclude(playing, session, address, late)

    def _played(
        self, task: Task, address: Address, session: Session, folder: Path | None
    ) -> Coroutine[Any, Any, Returned]:
        """The agent's work; a function can call the environment's tools."""
        agent = self.host.agent
        if not isinstance(agent, FunctionPlayer):
            return agent.play(task, address, session, folder)

        async def run_tool(name: str, arguments: Mapping[str, Any]) -> str:
            async with self._one_tool:
                if session.closed:
                    raise EpisodeEnded(Outcome.CANCELLED, "the episode has ended")
                return await self._run_tool(name, arguments)

        return agent.play(task, address, session, folder, run_tool)

    async def _run_tool(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Run a tool of the environment's for the agent. What breaks in it is the episode's end."""
        assert self._environment is not None  # there is one after a reset
        self.tools_called += 1
        call = ToolCall(name, arguments, f"agent.{self.tools_called}")
        work = self._environment.step(Action("", calls=(call,)))
        late = Outcome.AGENT_RESOURCE_LIMIT
        try:
            step = await self._guard(work, Step, Outcome.INFRASTRUCTURE_STEP, late)
            if step.abort:
                raise EpisodeEnded(Outcome.AGENT_ABORT)
        except EpisodeEnded as ended:
            self._broken = ended
            raise
        observed = "" if step.observation is None else step.observation.content
        return "\n".join(one.content for one in step.results) or observed

    def _warn_of_unreached(self) -> None:
        """Say once where the agent's tools were called, and none of the environment's."""
        assert self._environment is not None  # there is one after a reset
        names = [one.name for one in self._environment.tools()]
        # A tool that is offered and that the policy never calls may well be the environment's.
        if not names or self.tools_called or not self.usage.endings["calls"]:
            return
        warning = (
            f"the agent used tools of its own, and none of the environment's ({', '.join(names)}): "
            "a verdict that looks at what they change sees nothing. A function calls one by "
            f'`await model.call("{names[0]}", …)`, or by `model.call_sync` in a plain `def`'
        )
        if warning not in self.host.said:
            self.host.said.add(warning)
            log.warning(warning)

    async def _ended_in_time(self, playing: "asyncio.Task[Returned]", session: Session) -> bool:
        """Wait for the agent. The time in which it waits for the model does not count, because how
        long that takes depends on the other episodes."""
        begun, most = self.clock(), self.limits.max_seconds
        with interrupted_after(most):
            ended = asyncio.create_task(session.ended.wait())
            try:
                while not (playing.done() or ended.done()):
                    # It grows while the agent waits for the model, and so is looked at again.
                    left = most - (self.clock() - begun - session.waited)
                    if left <= 0:
                        return False
                    either = asyncio.FIRST_COMPLETED
                    await asyncio.wait({playing, ended}, timeout=left, return_when=either)
            finally:
                ended.cancel()
        return True

    def _conclude(
        self, playing: "asyncio.Task[Returned]", session: Session, address: Address, late: bool
    ) -> None:
        """Say how the agent's work ended. Always raises EpisodeEnded."""
        if session.bug is not None:
            log.error("a bug in answering an agent", exc_info=session.bug)
            why = f"a bug of turnwise's in answering the agent: {located(session.bug)}"
            raise EpisodeEnded(Outcome.INFRASTRUCTURE_MODEL, why)
        if playing.done() and not playing.cancelled():
            try:
                self._returned = _without_secrets(playing.result(), address.secret)
            except InfrastructureError as error:
                raise EpisodeEnded(Outcome.INFRASTRUCTURE_STEP, str(error)) from None
        if self._broken is not None:
            raise self._broken
        # After its `/end` an agent may end as it likes, and when: its code is a race then.
        failed = "" if session.ended.is_set() else self._returned.error
        self._reward = _joined(self._returned.reward or session.reward, session.role_rewards)
        for role in self._reward.roles if self._reward is not None else ():
            failed = failed or session.problem_with_role(role)
        if not self.host.gateway.running:
            raise EpisodeEnded(Outcome.INFRASTRUCTURE_MODEL, f"the gateway has stopped: {failed}")
        if session.failure:
            raise EpisodeEnded(Outcome.INFRASTRUCTURE_MODEL, session.failure)
        assert self.capture is not None  # it has been recorded
        if not (self.capture.calls or session.hung_up):
            why = failed or ("it was late" if late else "it ended")
            raise EpisodeEnded(
                Outcome.INFRASTRUCTURE_STEP, f"the agent got no reply of the policy: {why}"
            )
        if late:
            raise EpisodeEnded(Outcome.TRUNCATED_TIME)
        if session.limit is not None:
            raise EpisodeEnded(session.limit, failed)
        if session.hung_up and not self.turns:
            why = f"the agent hung up on every reply{f': {failed}' if failed else ''}"
            raise EpisodeEnded(Outcome.AGENT_ABORT, why)
        if failed:
            raise EpisodeEnded(Outcome.AGENT_ABORT, failed)
        if self._returned.answer is not None and self.turns:
            last = self.turns[-1]
            action = replace(last.action, calls=(), answer=self._returned.answer, error=None)
            self.turns[-1] = replace(last, action=action)
        raise EpisodeEnded(Outcome.FAILURE)  # until the verdict says otherwise

    async def _verify(self, trajectory: Trajectory) -> Verdict:
        given = self._reward
        if self.host.config.reward == "environment":
            if given is not None:
                raise VerdictError(UNASKED)
            return await super()._verify(trajectory)
        if given is None and self.outcome is not Outcome.FAILURE:
            return Verdict(0.0, False, detail="the agent failed before it gave a reward")
        if given is None:
            raise VerdictError(NO_REWARD)
        return given


def _without_secrets(returned: Returned, secret: str) -> Returned:
    answer = returned.answer and blotted(returned.answer, secret)
    return replace(returned, answer=answer, error=blotted(returned.error, secret))


def _joined(reward: Verdict | None, roles: Mapping[str, float]) -> Verdict | None:
    """The reward of an episode with those of its roles; it is their mean where it has none."""
    if not roles:
        return reward
    mean = sum(roles.values()) / len(roles)
    own = reward or Verdict(mean, mean >= 1)
    return replace(own, roles={**own.roles, **roles})
