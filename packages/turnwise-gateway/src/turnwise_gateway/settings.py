"""Settings of an agent of the user's own, and of its roles: `[agent]`."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from turnwise.config.section import IS_PATH, Choice, Section
from turnwise.config.wing_section import WingSection
from turnwise.conflicts import Claim, Need


class TrainedPolicy(Section):
    """The policy that the run trains."""

    kind: Literal["trained"] = "trained"
    """Its present weights."""


class FrozenPolicy(Section):
    """The policy at an earlier time, in an engine of its own: it is not trained."""

    kind: Literal["frozen"]
    """Weights that stay as they are."""
    checkpoint: Annotated[str, IS_PATH] = ""
    """The folder of a checkpoint; empty for the weights with which RL begins."""


class EndpointPolicy(Section):
    """Another model, behind an OpenAI-compatible endpoint: it is not trained."""

    kind: Literal["endpoint"]
    """A server, of this machine or of others."""
    url: str
    """The endpoint up to `/v1`."""
    name: str
    """The model's name at the endpoint."""
    key_variable: str = ""
    """The environment variable that has the endpoint's key, if it needs one."""


class RoleConfig(Section):
    """A role of an agent: the model's name under which it asks."""

    policy: Annotated[TrainedPolicy | FrozenPolicy | EndpointPolicy, Choice("kind")] = (
        TrainedPolicy()
    )


class AgentConfig(WingSection):
    """The settings that every agent has."""

    reward: Literal["environment", "agent"] = "environment"
    """The source of an episode's reward: the environment's verifier, or the agent's side, by what
    its function returns or by `POST /reward`."""
    coverage: float = Field(0.95, ge=0, le=1)
    """Share of a step's sampled tokens that are in its trajectories, at least; the run stops where
    more are lost."""
    thoughts: Literal["keep", "template"] = "keep"
    """The model's thoughts in its following turns: kept as they were sampled, or left out before
    the last words of a user, as chat templates do; a conversation is several contexts then."""
    roles: dict[str, RoleConfig] = Field(default_factory=dict)
    """Roles of the agent by name: it names one as the model of each request. Empty for one role,
    the policy."""
    credit: Literal["episode", "role"] = "episode"
    """Members of a group: whole episodes, or the parts of roles in them, with a reward of their own
    where there is one."""
    host: str = "127.0.0.1"
    """The address at which the gateway listens: by default for this machine alone."""
    port: int = Field(0, ge=0, le=65535)
    """The port at which it listens; 0 is any free one."""
    spans: Literal["off", "calls", "messages"] = "off"
    """OpenTelemetry spans of episodes and calls: `calls` without any text, `messages` with what was
    asked and replied."""
    public_url: str = ""
    """The gateway's address for agents that reach it by another name, such as through a tunnel."""

    def claims(self) -> Iterator[Claim]:
        own = {Need.OWN_LOOP: "has a loop of its own", Need.IMAGES: "is told words alone"}
        yield Claim("agent", (Need.OWN_PROCESS, Need.TOKENS), own, "leave agent out")

    @model_validator(mode="after")
    def _trains_a_role(self) -> Self:
        policies = [role.policy for role in self.roles.values()]
        if policies and not any(isinstance(one, TrainedPolicy) for one in policies):
            raise ValueError('agent.roles: none is trained: give one of them policy = "trained"')
        if self.credit == "role" and not self.roles:
            raise ValueError('agent.credit = "role" needs roles: add [agent.roles.NAME] tables')
        return self


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

    def claims(self) -> Iterator[Claim]:
        yield from super().claims()
        yield Claim("agent = 'remote'", (Need.FREE_SAMPLING,))


def _table(value: Any) -> Any:
    """A list is a command."""
    return {"command": value} if isinstance(value, list | tuple) else value


AnyAgentConfig = Annotated[
    RemoteAgent | FunctionAgent | CommandAgent, Choice("run"), BeforeValidator(_table)
]
"""An agent: `agent = "file.py:run"`, or `agent = { command = ["node", "agent.mjs"] }`."""
