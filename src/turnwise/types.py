"""The records that everything else passes on: plain data, no I/O, no torch.

Data flows Task -> Turn, Trajectory -> Group -> batch. A trajectory is one flat record of tokens;
each token knows where it came from, and the loss mask is derived from that and from nothing else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple

import numpy as np

NO_VERSION = -1
"""Policy version of a token that no policy sampled."""


def encodable(text: str) -> str:
    """Replace each half of a surrogate pair, which JSON and names of files can hold, and neither a
    tokenizer nor a file of text.

    >>> encodable("a\\ud800b")
    'a?b'
    """
    return text if text.isascii() else text.encode(errors="replace").decode()


class Source(IntEnum):
    """The source of a token. Only MODEL tokens were sampled by the policy.

    A token that the engine or the scaffold forced (a closing tag, an end-of-turn marker) is
    TEMPLATE, even in the middle of the model's turn.
    """

    TEMPLATE = 0
    USER = 1
    MODEL = 2
    TOOL = 3
    ENVIRONMENT = 4
    INHERITED = 5
    """Sampled in another trajectory that this one branches from, or in an earlier context of this
    one; trained there, and only there."""


class Outcome(StrEnum):
    """The end of an episode: exactly one, decided from evidence that the agent cannot forge."""

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

    Example:
        Task(id="hop1/tarfile", prompt="Which module defines the class TarFile?",
             secret={"answers": ["tarfile"]}, info={"hops": 1})
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
        object.__setattr__(self, "prompt", encodable(self.prompt))

    def public(self) -> "Task":
        """The task without its secret."""
        return replace(self, secret={})


@dataclass(frozen=True)
class ToolCall:
    """A request to run one tool. Example: ToolCall("search", {"query": "TarFile"}, id="1.0")."""

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

    Example:
        Action(text="<think>find it</think><search>TarFile</search>", thought="find it",
               calls=(ToolCall("search", {"query": "TarFile"}),))
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
    """The agent's next observation. Example: Observation("[1] Class TarFile. Module: tarfile.")."""

    content: str
    source: Source = Source.TOOL
    """TOOL for tool output, ENVIRONMENT for corrections and messages, USER for the first prompt."""
    images: tuple[bytes, ...] = field(default=(), repr=False)
    """Pictures as PNG, of environments whose `pictures` is True."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "content", encodable(self.content))


@dataclass(frozen=True)
class Step:
    """The environment's reply to one action.

    Example: Step(Observation("[1] ..."), results=(result,), done=False)
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


@dataclass(frozen=True)
class Verdict:
    """The verifier's judgement of a finished episode.

    Example: Verdict(reward=1.0, success=True, parts={"exact_match": 1.0}, detail="'tarfile'")
    """

    reward: float
    success: bool
    parts: Mapping[str, float] = field(default_factory=dict)
    detail: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "detail", encodable(self.detail))


@dataclass(frozen=True)
class Turn:
    """One exchange: the action, and what came back. Example: Turn(action, step)."""

    action: Action
    step: Step | None = None
    """The environment's reply; None for the last turn when a budget ended the episode before the
    environment replied, and for a summary, which the environment does not see."""


@dataclass(frozen=True)
class Segment:
    """A run of tokens of one source, as a scaffold produces them.

    Example: Segment([17, 4, 9], Source.TOOL)
    """

    tokens: Sequence[int]
    source: Source
    image: bytes | None = field(default=None, repr=False)
    """The picture that the tokens stand for, as PNG; None for words."""


@dataclass(frozen=True)
class Picture:
    """A run of tokens that stands for a picture: `length` of them from the place `start` on.

    Example: Picture(12, 66, png)
    """

    start: int
    length: int
    png: bytes = field(repr=False)

    @property
    def end(self) -> int:
        """The place behind it."""
        return self.start + self.length


def _one_context() -> np.ndarray:
    return np.zeros((1, 2), np.int64)


@dataclass(frozen=True, repr=False)
class Tokens:
    """The flat token record of one trajectory: five arrays of one length n, and where its contexts
    are. It does not change, and its arrays are read-only; `with_…` give a longer record.

    A context is what the model read at once. There is one, unless a full window was compacted: then
    the next one begins with copies of some of its tokens, and each sampled token is MODEL in the
    one context in which it was sampled, and nowhere else.

    Example (prompt P0 P1, the model samples A0 A1, a tool returns T0, the model samples A2):

        tokens   P0   P1   A0    A1    T0   A2
        source   USER USER MODEL MODEL TOOL MODEL
        turn     0    0    0     0     0    1
        version  -1   -1   7     7     -1   8
        logprob  nan  nan  -0.1  -2.0  nan  -0.3
        mask     0    0    1     1     0    1        (derived)
    """

    ids: np.ndarray
    """int64, token ids exactly as the engine saw and sampled them."""
    source: np.ndarray
    """uint8, `Source`."""
    turn: np.ndarray
    """int32, from 0; an observation belongs to the turn whose action caused it."""
    version: np.ndarray
    """int32, version of the policy that sampled the token; NO_VERSION for all others."""
    logprob: np.ndarray
    """float32, behaviour log-probability at sampling; NaN for tokens that were not sampled."""
    contexts: np.ndarray = field(default_factory=_one_context)
    """int64[contexts, 2], in order: where a context begins, and where in it the tokens begin that
    are not copied from the one before."""
    pictures: tuple[Picture, ...] = ()
    """Pictures in order; each one's tokens have one source and turn, and were not sampled."""

    def __post_init__(self) -> None:
        for name in ("ids", "source", "turn", "version", "logprob", "contexts"):
            getattr(self, name).setflags(write=False)

    @classmethod
    def empty(cls) -> "Tokens":
        """A record of no tokens, to be extended."""
        return cls(
            np.empty(0, np.int64),
            np.empty(0, np.uint8),
            np.empty(0, np.int32),
            np.empty(0, np.int32),
            np.empty(0, np.float32),
        )

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        """A short text: asyncio, among others, would print whole arrays of a trajectory."""
        return f"Tokens({len(self)}, {int(self.mask.sum())} sampled)"

    @property
    def mask(self) -> np.ndarray:
        """bool, True where the policy sampled the token: the only mask there is."""
        mask: np.ndarray = self.source == Source.MODEL
        return mask

    @property
    def spans(self) -> list[slice]:
        """The place of each context: what the model read before a token is what stands between the
        beginning of the token's context and it."""
        starts = self.contexts[:, 0].tolist()
        return [
            slice(start, end) for start, end in zip(starts, [*starts[1:], len(self)], strict=True)
        ]

    @property
    def copied(self) -> np.ndarray:
        """bool[n], True where a token is a copy from an earlier context."""
        copied = np.zeros(len(self), np.bool_)
        for start, fresh in self.contexts:
            copied[start:fresh] = True
        return copied

    @property
    def pictured(self) -> np.ndarray:
        """bool[n], True where a token stands for a picture."""
        pictured = np.zeros(len(self), np.bool_)
        for picture in self.pictures:
            pictured[picture.start : picture.end] = True
        return pictured

    def pictures_in(self, span: slice, end: int | None = None) -> tuple[Picture, ...]:
        """Pictures of a context, with places counted from its beginning; with `end` those of its
        first so many tokens."""
        stop = span.stop if end is None else span.start + end
        return tuple(
            replace(picture, start=picture.start - span.start)
            for picture in self.pictures
            if span.start <= picture.start and picture.end <= stop
        )

    def with_context(self, kept: np.ndarray) -> "Tokens":
        """The record with a new context, which begins with copies of the tokens at the places
        int64[k]; what was sampled is INHERITED there. Of a picture all tokens are kept, or none."""
        start = len(self)
        places = {int(place): start + index for index, place in enumerate(kept)}
        pictures = tuple(
            replace(picture, start=places[picture.start])
            for picture in self.pictures
            if picture.start in places
        )
        source = self.source[kept]
        source[source == Source.MODEL] = Source.INHERITED
        copied = self._with(self.ids[kept], source, self.turn[kept], NO_VERSION, None, pictures)
        contexts = np.vstack([self.contexts, [[start, start + len(kept)]]])
        return replace(copied, contexts=contexts)

    def with_segments(self, segments: Sequence[Segment], turn: int) -> "Tokens":
        """The record with tokens after it that no policy sampled.

        Raises ValueError for a MODEL segment: sampled tokens come with their log-probabilities
        through `with_sampled` only.
        """
        if any(segment.source == Source.MODEL for segment in segments):
            raise ValueError("model tokens are appended by with_sampled, from the engine")
        ids = [token for segment in segments for token in segment.tokens]
        lengths = [len(segment.tokens) for segment in segments]
        starts = len(self) + np.cumsum([0, *lengths])
        pictures = tuple(
            Picture(int(start), len(segment.tokens), segment.image)
            for start, segment in zip(starts, segments, strict=False)
            if segment.image is not None
        )
        source = np.repeat([int(segment.source) for segment in segments], lengths)
        return self._with(ids, source, turn, NO_VERSION, None, pictures)

    def with_sampled(
        self,
        ids: Sequence[int],
        logprobs: Sequence[float],
        version: int | Sequence[int],
        turn: int,
    ) -> "Tokens":
        """The record with tokens after it as the engine sampled them, with its log-probabilities;
        the version of the policy is that of all of them, or one for each."""
        if len(ids) != len(logprobs):
            raise ValueError(f"{len(ids)} sampled tokens with {len(logprobs)} log-probabilities")
        return self._with(ids, Source.MODEL, turn, version, logprobs)

    def _with(
        self,
        ids: Sequence[int] | np.ndarray,
        source: Source | np.ndarray,
        turn: int | np.ndarray,
        version: int | Sequence[int],
        logprobs: Sequence[float] | None,
        pictures: tuple[Picture, ...] = (),
    ) -> "Tokens":
        """The tokens with these after them; `logprobs` is None for tokens that were not sampled."""
        count = len(ids)
        given = [np.nan] * count if logprobs is None else logprobs
        return Tokens(
            np.concatenate([self.ids, np.asarray(ids, np.int64).reshape(count)]),
            np.concatenate([self.source, np.full(count, source, np.uint8)]),
            np.concatenate([self.turn, np.full(count, turn, np.int32)]),
            np.concatenate([self.version, np.full(count, version, np.int32)]),
            np.concatenate([self.logprob, np.asarray(given, np.float32)]),
            self.contexts,
            self.pictures + pictures,
        )


class TrajectoryId(NamedTuple):
    """The name of a trajectory in its measurements. Example: `trajectory.id`."""

    group: str
    episode: int

    def __str__(self) -> str:
        return f"{self.group} episode {self.episode}"


@dataclass(frozen=True)
class Branch:
    """A moment of an episode, from which others can begin: just before a turn.

    Example: branch_at(trajectory, turn=2) in `rollout.branching`.
    """

    tokens: Tokens
    """Everything before the turn; what was sampled is INHERITED."""
    turns: tuple[Turn, ...]
    state: bytes
    """The environment's."""


@dataclass(frozen=True)
class Trajectory:
    """One episode: what was said, every token of it, and how it was judged. It does not change:
    what is measured of it later stands in records of its own, by its `id`.

    Example: Trajectory(task, group="step-3/hop1/tarfile", episode=2, seed=..., tokens=...,
        turns=(...), outcome=Outcome.SUCCESS, verdict=Verdict(1.0, True)).reward == 1.0
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
    """The environment's state before each turn from `first_turn` on, where the rollout was asked to
    keep it."""
    parent: int | None = None
    """Number of the episode that this one branches from; its own where it begins at the beginning.
    None where the rollout does not branch."""
    first_turn: int = 0
    """The turn at which it begins; those before it are its parent's."""
    seconds: float = 0.0
    problem: str = ""
    """Message for people on what went wrong, with infrastructure and grader outcomes."""

    @property
    def id(self) -> TrajectoryId:
        """Name by its group and its number there."""
        return TrajectoryId(self.group, self.episode)

    @property
    def outcome_reward(self) -> float | None:
        """The verdict's reward; None when the episode is ungraded, never 0 in its place."""
        if self.verdict is None or not self.outcome.graded:
            return None
        return self.verdict.reward

    @property
    def reward(self) -> float | None:
        """The environment's whole reward: the outcome's reward and all turns'; None when the
        episode is ungraded. What an algorithm adds or takes off is not in it."""
        outcome, turns = self.outcome_reward, self.turn_rewards
        if outcome is None:
            return None
        return outcome + (0.0 if turns is None else float(turns.sum()))

    @property
    def turn_rewards(self) -> np.ndarray | None:
        """float64[turns], 0 for a turn that has none; None when no turn has one."""
        rewards = [None if turn.step is None else turn.step.reward for turn in self.turns]
        if all(reward is None for reward in rewards):
            return None
        return np.array([reward or 0.0 for reward in rewards], np.float64)

    @property
    def states(self) -> tuple[str, ...]:
        """The last observation before each turn: the state, for comparisons of states. Before a
        summary that is the request for one; what is shown after it came before it."""
        shown = [self.task.prompt]
        for turn in self.turns:
            if turn.action.summary:
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
    def tool_calls(self) -> int:
        """Number of tool calls that were run."""
        return sum(len(turn.step.results) for turn in self.turns if turn.step is not None)


@dataclass(frozen=True, repr=False)
class Group:
    """The trajectories of one task at one step, compared with each other by the estimator.

    Example: Group("step-3/hop1/tarfile", (trajectory_0, ..., trajectory_7))
    """

    id: str
    trajectories: tuple[Trajectory, ...]
    beside: tuple[Trajectory, ...] = ()
    """Episodes that were played to judge the members by: never trained on, in no statistic."""
    spare: tuple[Trajectory, ...] = ()
    """Episodes that were begun in excess, and cancelled or too late when there were enough members:
    never trained on, in no statistic but the count of what they cost."""

    def __repr__(self) -> str:
        """A short text, as for `Tokens`."""
        return f"Group({self.id!r}, {len(self.trajectories)} trajectories)"

    @property
    def graded(self) -> list[Trajectory]:
        """The members that have a reward; the others leave both the loss and the baseline."""
        return [member for member in self.trajectories if member.reward is not None]
