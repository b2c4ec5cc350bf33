"""Settings of an agent of the user's own, which talks to the policy through the gateway.

Not here: what the gateway answers (`gateway`), and how an agent is run
(`rollout/agent_episode.py`).
"""

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from turnwise.config.section import Choice, Section


class AgentConfig(Section):
    """The settings that every agent has."""

    reward: Literal["environment", "agent"] = "environment"
    """The source of an episode's reward: the environment's verifier, or the agent's side, by what
    its function returns or by `POST /reward`."""
    coverage: float = Field(0.95, ge=0, le=1)
    """Share of a step's sampled tokens that are in its trajectories, at least; the run stops where
    more are lost, such as those of replies that an agent hangs up on."""
    thoughts: Literal["keep", "template"] = "keep"
    """The model's thoughts in its following turns: kept as they were sampled, or left out before
    the last words of a user, as chat templates do; a conversation is several contexts then."""
    host: str = "127.0.0.1"
    """The address at which the gateway listens: by default for this machine alone."""
    port: int = Field(0, ge=0, le=65535)
    """The port at which it listens; 0 is any free one."""
    spans: Literal["off", "calls", "messages"] = "off"
    """OpenTelemetry spans of episodes and calls: `calls` without any text, `messages` with what was
    asked and replied."""
    public_url: str = ""
    """The gateway's address for agents that reach it by another name, such as through a tunnel."""


class FunctionAgent(AgentConfig):
    """A function, `async def run(task, model)`, in this process."""

    run: str
    """`path/to/file.py:run` or `package.module:run`."""


class CommandAgent(AgentConfig):
    """A program, started once for each episode."""

    command: tuple[str, ...] = Field(min_length=1)
    """The program and its arguments; `{prompt}` in one of them becomes the task's prompt."""
    sandbox: dict[str, Any] | None = None
    """A sandbox of this machine around it, whose one way out is the gateway: `true`, a tier's name,
    or a table as `[sandbox]` (docs/reference/sandbox.md)."""

    @field_validator("sandbox", mode="before")
    @classmethod
    def _short_forms(cls, value: Any) -> Any:
        if isinstance(value, bool):
            return {} if value else None
        return {"tier": value} if isinstance(value, str) else value


class RemoteAgent(AgentConfig):
    """Agents that run elsewhere: they call in for a task, and for the policy's replies."""

    run: Literal["remote"]
    """Agents of any number, at `GET http://HOST:PORT/next`."""
    port: int = Field(ge=1, le=65535)
    """The port at which the gateway listens, which the agents have to know."""
    key_variable: str = "TURNWISE_AGENT_KEY"
    """The environment variable with the secret that they send as their bearer token."""
    pickup_seconds: float = Field(600.0, gt=0)
    """The time in which an agent has to take a task; an episode that none takes is ungraded."""


AnyAgentConfig = Annotated[RemoteAgent | FunctionAgent | CommandAgent, Choice("run")]
"""An agent: `agent = "file.py:run"`, or `agent = { command = ["node", "agent.mjs"] }`."""
