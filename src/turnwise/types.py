"""The records that everything else passes on: plain data, no I/O, no torch.

Data flows Task -> Turn, Trajectory -> Group -> batch.

Next: `tokens.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from html import escape
from typing import Any, NamedTuple

import numpy as np

from turnwise.capture import Capture
from turnwise.times import EpisodeTimes
from turnwise.tokens import Source, Tokens


def encodable(text: str) -> str:
    """Replace each half of a surrogate pair, which JSON and names of files can hold, and neither a
    tokenizer nor a file of text.

    >>> encodable("a\\ud800b")
    'a?b'
    """
    return text if text.isascii() else text.encode(errors="replace").decode()


class Outcome(StrEnum):
    """The end of an episode: exactly one, decided from evidence that the agent cannot forge.

    >>> Outcome.TRUNCATED_TURNS.graded, Outcome.GRADER_ERROR.graded
    (True, False)
    """

    SUCCESS = "success"
    FAILURE = "failure"
    TRUNCATED_TURNS = "truncated_turns"
    TRUNCATED_TOKENS = "truncated_tokens"
    TRUNCATED_CONTEXT = "truncated_context"
    TRUNCATED_TOOL_CALLS = "truncated_tool_calls"
    TRUNCATED_TIME = "truncated_time"
    AGENT_PARSE_ERROR = "agent_parse_error"
    AGENT_ABORT = "agent_abort"
    AGENT_RESOURCE_LIMIT = "agent_resource_limit"
    INFRASTRUCTURE_RESET = "infrastructure_reset"
    INFRASTRUCTURE_STEP = "infrastructure_step"
    INFRASTRUCTURE_MODEL = "infrastructure_model"
    GRADER_ERROR = "grader_error"
    GRADER_TIMEOUT = "grader_timeout"
    CANCELLED = "cancelled"

    @property
    def family(self) -> str:
        """success, failure, truncated, agent, infrastructure, grader or cancelled."""
        return self.value.partition("_")[0]

    @property
    def graded(self) -> bool:
        """False when the reward is None: infrastructure, grader and cancelled episodes."""
        return self.family not in ("infrastructure", "grader", "cancelled")

    @property
    def truncated(self) -> bool:
        """True when a budget ended the episode; such an episode is graded and flagged."""
        return self.family == "truncated"


@dataclass(frozen=True)
class Task:
    """One problem. `secret` is for the verifier alone: `public()` is what the environment gets.

    >>> Task("hop1", "Which module defines TarFile?", {"answers": ["tarfile"]}).public().secret
    {}
    """

    id: str
    prompt: str
    secret: Mapping[str, Any] = field(default_factory=dict)
    """Gold answers, hidden tests: never in prompts, tools, observations or files."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """Data with which the environment sets the scene (tables, files, a script); not the answer."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """Labels for reports (hop count, difficulty, split)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", encodable(str(self.id)))  # a number is one, too
        object.__setattr__(self, "prompt", encodable(self.prompt))

    def public(self) -> "Task":
        """The task without its secret."""
        return replace(self, secret={})


@dataclass(frozen=True)
class ToolCall:
    """A request to run one tool.

    >>> call = ToolCall("search", {"query": "TarFile"}, id="1.0")
    """

    name: str
    arguments: Mapping[str, Any]
    id: str = ""
    """`turn.position`, so that results can be matched with calls whatever their order."""


@dataclass(frozen=True)
class Action:
    """The model's action in one turn, parsed by the scaffold from the tokens it sampled.

    Exactly one of the following holds: there are tool calls, there is an answer, `error` says what
    is malformed (then the environment is not asked; the agent gets the correction), or it is the
    summary that the rollout asked for (nor is the environment asked then).

    >>> search = Action("<search>TarFile</search>", calls=(ToolCall("search", {}),))
    >>> answer = Action("<answer>tarfile</answer>", answer="tarfile")
    """

    text: str
    """Exactly what the model wrote, decoded for reading; never encoded again."""
    thought: str = ""
    calls: tuple[ToolCall, ...] = ()
    answer: str | None = None
    error: str | None = None
    summary: bool = False
    """Whether the turn sums up a context that was full."""


@dataclass(frozen=True)
class ToolResult:
    """The result of a tool call. `ok` is False for the agent's own mistakes (wrong arguments)."""

    call: ToolCall
    content: str
    ok: bool = True
    seconds: float = 0.0


@dataclass(frozen=True)
class Observation:
    """The agent's next observation.

    >>> shown = Observation("[1] Class TarFile. Module: tarfile.", Source.TOOL)
    """

    content: str
    source: Source = Source.TOOL
    """TOOL for tool output, ENVIRONMENT for corrections and messages, USER for the first prompt."""
    images: tuple[bytes, ...] = field(default=(), repr=False)
    """Images as PNG, of environments whose `shows_images` is True."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "content", encodable(self.content))


@dataclass(frozen=True)
class Step:
    """The environment's reply to one action.

    >>> step = Step(Observation("The door is open."), reward=0.1, done=False)
    """

    observation: Observation | None = None
    results: tuple[ToolResult, ...] = ()
    done: bool = False
    """The episode has ended: the environment's decision (an answer ends most of them)."""
    abort: bool = False
    """The agent gave up or broke a rule that ends the episode: outcome agent_abort."""
    truncated: bool = False
    """With `done`: a limit of the environment's own ended the episode, nothing that was done in it;
    outcome truncated_turns, graded."""
    reward: float | None = None
    """Reward of this turn alone, for estimators that use one; the outcome's comes from `verify`."""
    forgets: bool = False
    """The policy's next context has the episode's first message and what comes back now alone."""


@dataclass(frozen=True)
class Verdict:
    """The verifier's judgement of a finished episode.

    >>> verdict = Verdict(reward=1.0, success=True, parts={"exact_match": 1.0}, detail="tarfile")
    """

    reward: float
    success: bool
    parts: Mapping[str, float] = field(default_factory=dict)
    """Numbers that were measured of the episode, reported; what of them counts is in `reward`."""
    detail: str = ""
    turn_parts: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Numbers that were measured of its turns, one for each."""
    turn_rewards: Sequence[float] | None = None
    """The turns' rewards, one for each: None keeps those of the steps; empty, turns have none."""
    roles: Mapping[str, float] = field(default_factory=dict)
    """Rewards of single roles in place of `reward`, where each gets its own credit."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "detail", encodable(self.detail))


@dataclass(frozen=True)
class Turn:
    """One exchange: the action, and what came back. Example: Turn(action, step)."""

    action: Action
    step: Step | None = None
    """The environment's reply; None for the last turn when a budget ended the episode before the
    environment replied, and for a summary, which the environment does not see."""
    role: str = ""
    """The role that made it, where an agent of the user's own has several."""


class TrajectoryId(NamedTuple):
    """The name of a trajectory in its measurements. Example: `trajectory.id`."""

    group: str
    episode: int

    def __str__(self) -> str:
        return f"{self.group} episode {self.episode}"


@dataclass(frozen=True)
class Branch:
    """A moment of an episode, from which others can begin: just before a turn.

    Example: branch_at(trajectory, turn=2) in `turnwise_algorithms.branching`.
    """

    tokens: Tokens
    """Everything before the turn; what was sampled is INHERITED."""
    turns: tuple[Turn, ...]
    state: bytes
    """The environment's snapshot."""
    first: Observation | None = None
    """The episode's first message."""


@dataclass(frozen=True)
class Trajectory:
    """One episode: what was said, every token of it, and how it was judged. It does not change:
    what is measured of it later stands in records of its own, by its `id`.

    >>> outcome, verdict = Outcome.SUCCESS, Verdict(1.0, True)
    >>> Trajectory(Task("a", "?"), "step-3/a", 2, 0, outcome=outcome, verdict=verdict).reward
    1.0
    """

    task: Task
    group: str
    """Trajectories with the same group are compared with each other (same task, same step)."""
    episode: int
    """Index within the group, from 0."""
    seed: int
    tokens: Tokens = field(default_factory=Tokens.empty)
    turns: tuple[Turn, ...] = ()
    outcome: Outcome = Outcome.CANCELLED
    verdict: Verdict | None = None
    snapshots: tuple[bytes, ...] = ()
    """The environment's state before each turn from `first_turn` on, where it was kept."""
    parent: int | None = None
    """Number of the episode that this one branches from; its own where it begins at the beginning.
    None where the rollout does not branch."""
    first_turn: int = 0
    """The turn at which it begins; those before it are its parent's."""
    seconds: float = 0.0
    times: EpisodeTimes | None = field(default=None, compare=False, repr=False)
    """When and where it was played; None where that was not recorded."""
    problem: str = ""
    """Message for people on what went wrong, with infrastructure and grader outcomes."""
    capture: Capture | None = None
    """The account of an agent's calls, where an agent of the user's own has played the episode."""
    first: Observation | None = None
    """The observation that `Environment.reset` returned; None where it returned none."""
    answer_cut: bool = False
    """Whether each right answer in what a tool returned was cut away before the model saw it
    (`Environment.truncate`); False where right answers are not known."""

    @property
    def id(self) -> TrajectoryId:
        """Name by its group and its number there."""
        return TrajectoryId(self.group, self.episode)

    @property
    def prompt(self) -> str:
        """The first message to the policy: what `reset` returned, or the task's prompt where the
        episode failed before."""
        return self.task.prompt if self.first is None else self.first.content

    @property
    def outcome_reward(self) -> float | None:
        """The verdict's reward; None when the episode is ungraded, never 0 in its place."""
        if self.verdict is None or not self.outcome.graded:
            return None
        return self.verdict.reward

    @property
    def reward(self) -> float | None:
        """The outcome's reward and all turns'; None when the episode is ungraded. What an algorithm
        adds or takes off is not in it."""
        outcome, turns = self.outcome_reward, self.turn_rewards
        if outcome is None:
            return None
        return outcome + (0.0 if turns is None else float(turns.sum()))

    @property
    def turn_rewards(self) -> np.ndarray | None:
        """float64[turns], 0 for a turn that has none; None when no turn has one."""
        judged = self.verdict.turn_rewards if self.verdict is not None else None
        if judged is not None:
            return np.array(judged, np.float64) if len(judged) else None
        rewards = [None if turn.step is None else turn.step.reward for turn in self.turns]
        if all(reward is None for reward in rewards):
            return None
        return np.array([reward or 0.0 for reward in rewards], np.float64)

    @property
    def states(self) -> tuple[str, ...]:
        """The last observation before each turn: the state, for comparisons of states. Before a
        summary that is the request for one."""
        shown = [self.prompt]
        for turn in self.turns:
            if turn.action.summary:
                # The summary's state, and the one that the turn after it goes on from.
                shown[-1:] = [f"{shown[-1]}\n(to be summed up)", shown[-1]]
                continue
            observation = turn.step.observation if turn.step is not None else None
            shown.append(observation.content if observation is not None else "")
        return tuple(shown[:-1])

    @property
    def answer(self) -> str | None:
        """The model's own last answer; None if it gave none. Tool output is never looked at."""
        for turn in reversed(self.turns):
            if turn.action.answer is not None:
                return turn.action.answer
        return None

    def _repr_html_(self) -> str:
        """The episode in a notebook: the task, what the policy wrote and was shown, the outcome."""
        said = [("task", self.prompt)]
        for turn in self.turns:
            said.append(("policy", turn.action.text))
            shown = turn.step.observation if turn.step is not None else None
            said += [] if shown is None else [(shown.source.name.lower(), shown.content)]
        rows = "".join(f"<tr><th>{who}<td><pre>{escape(text)}</pre>" for who, text in said)
        reward = "no grade" if self.reward is None else f"reward {self.reward:g}"
        title = escape(f"{self.id}: {self.outcome}, {reward}")
        return f"<table><caption>{title}</caption>{rows}</table>"

    @property
    def written(self) -> str:
        """All that the model itself wrote, and nothing that a tool returned."""
        return "".join(turn.action.text for turn in self.turns)

    @property
    def observed(self) -> tuple[str, ...]:
        """The texts that tools and environment returned, for verifiers that need them."""
        steps = (turn.step for turn in self.turns if turn.step is not None)
        return tuple(step.observation.content for step in steps if step.observation is not None)

    @property
    def no_room(self) -> bool:
        """Whether the context had no room for the last observation: it was never shown."""
        last = self.turns[-1].step if self.turns else None
        unseen = last is not None and last.observation is not None
        return unseen and self.outcome == Outcome.TRUNCATED_TOKENS

    @property
    def tool_calls(self) -> int:
        """Number of tool calls that were run."""
        return sum(len(turn.step.results) for turn in self.turns if turn.step is not None)


@dataclass(frozen=True, repr=False)
class Group:
    """The trajectories of one task at one step, compared with each other by the estimator.

    >>> group = Group("step-3/a", (Trajectory(Task("a", "?"), "step-3/a", episode=0, seed=1),))
    """

    id: str
    trajectories: tuple[Trajectory, ...]
    baseline_rollouts: tuple[Trajectory, ...] = ()
    """Episodes that were played to judge the members by: never trained on, in no statistic."""
    oversampled: tuple[Trajectory, ...] = ()
    """Episodes in excess, cancelled or late when there were enough members: never trained on."""

    def __repr__(self) -> str:
        """A short text, as for `Tokens`."""
        return f"Group({self.id!r}, {len(self.trajectories)} trajectories)"

    @property
    def graded(self) -> list[Trajectory]:
        """The members that have a reward; the others leave both the loss and the baseline."""
        return [member for member in self.trajectories if member.reward is not None]
