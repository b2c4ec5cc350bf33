"""Tasks of Inspect: dataset and scorer, with the agent in the solver's place; needs the extra
`inspect`.

    environment.name="inspect"
    environment.options={ task = "mine.py:capitals", tools = ["mine.py:atlas"] }

The prompt is a sample's input, with its choices; the scorer sees the conversation and the answer as
the model's output. The task's own solver is not run, so what it would add to a prompt goes into
`instructions`. Not here: sandboxes, set-up, scorers that ask a model: a task with one is refused.
"""

import functools
import json
import math
import string
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, Self

from turnwise.environments.base import Environment, EnvironmentSpec
from turnwise.environments.tasksets import Tasks, TaskSet, every
from turnwise.errors import ConfigError, NotSupportedError, ToolError
from turnwise.ranges import Share
from turnwise.registry import load_function
from turnwise.rewards.parts import RewardPart
from turnwise.tools.tool import Tool
from turnwise.types import Action, Observation, Task, Trajectory, Verdict
from turnwise_environments.common import check_installed, identity

MODEL = "turnwise"
WORDS = ("c", "i", "p", "n", "yes", "no", "true", "false")
"""Values of a score that are numbers to Inspect."""


class Inspect(Environment):
    """A sample's input, tools if wanted, an answer. Example: `Inspect("inspect_evals.gsm8k:gsm8k",
    arguments={"fewshot": 0})`."""

    def __init__(
        self,
        task: str,
        arguments: Mapping[str, Any] = {},
        tools: Sequence[str] = (),
        instructions: str = "",
        success: float = 1.0,
        heldout_share: Share = 0.5,
    ) -> None:
        """`task` and `tools` are functions marked `@task` and `@tool`, `path/to/file.py:name` or
        `package.module:name`; `arguments` are the task's. `instructions` stand before each input.
        An episode succeeds with a score of at least `success`, of the task's first scorer."""
        check_installed("inspect-ai", "inspect")
        self.name, self.success = task, success
        self._makers = [_maker(target) for target in tools]
        self._tools = [_tool(maker) for maker in self._makers]
        theirs = _task(task, arguments)
        self._scorers = _scorers(theirs, task)
        if "includes" in self._scorers:
            self.warnings = (f"inspect: {task}: includes pays for an answer among others",)
            self.weaknesses = ["the scorer includes pays for an answer among others"]
        self._samples: dict[str, Any] = {}
        for sample in theirs.dataset:
            _check(sample, task)
            self._samples.setdefault(_key(sample), sample)
        drawn = [_asked(key, sample, instructions) for key, sample in self._samples.items()]
        self.task_set = TaskSet.shuffled(drawn, heldout_share, content=_content)
        self.facts = EnvironmentSpec(
            f"inspect/{task}",
            version("inspect-ai"),
            parts={name: RewardPart(description="a scorer's value") for name in self._scorers},
        )
        self.stateless = not tools  # tools may keep anything

    def tools(self) -> list[Tool]:
        return self._tools

    def fresh(self) -> Self:
        made = super().fresh()
        made._tools = [_tool(maker) for maker in self._makers]
        return made

    async def reset(self, task: Task, seed: int) -> Observation:
        """The prompt; what tools keep in Inspect's store is empty."""
        if self._makers:
            from inspect_ai.util._store import Store, init_subtask_store

            init_subtask_store(Store())
        return await super().reset(task, seed)

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """The first scorer's value; those of all are among the parts. A scorer's exception, or a
        value that is not a number, leaves the episode ungraded."""
        sample = self._samples[trajectory.task.id]
        parts = {}
        for name, scorer in self._scorers.items():
            state, target = _state(sample, trajectory), _target(sample)
            parts[name] = _number(name, await scorer(state, target))
        reward = next(iter(parts.values()))
        success = math.isfinite(reward) and reward >= self.success
        return Verdict(reward, success, parts, f"answered {trajectory.answer!r:.80}")

    def oracle(self, task: Task) -> Sequence[Action]:
        if not task.secret["target"]:
            raise NotSupportedError(f"inspect: {self.name} has samples without a target")
        return [Action("", answer=task.secret["target"][0])]


def _content(tasks: Tasks) -> str:
    return json.dumps([[task.prompt, task.secret] for _, task in every(tasks)])


def _task(name: str, arguments: Mapping[str, Any]) -> Any:
    from inspect_ai import Task as Theirs
    from inspect_ai.dataset import Dataset

    function = load_function(name, "inspect")
    try:
        made = function(**arguments)
    except TypeError as error:
        raise ConfigError(f"inspect: task {name}: {error}") from error
    if not isinstance(made, Theirs):
        raise ConfigError(f"inspect: {name} returns no inspect_ai.Task")
    if not isinstance(made.dataset, Dataset):
        raise ConfigError(f"inspect: {name} makes samples while it runs: that is not supported")
    if made.sandbox is not None or made.setup is not None:
        raise ConfigError(f"inspect: {name} needs a sandbox or a set-up: that is not supported")
    return made


def _scorers(theirs: Any, name: str) -> dict[str, Any]:
    from inspect_ai._util.registry import registry_unqualified_name

    scorers = theirs.scorer or []
    names = [registry_unqualified_name(scorer) for scorer in scorers]
    # As Inspect calls several of one kind: match, match1.
    numbered = (f"{name}{names[:place].count(name) or ''}" for place, name in enumerate(names))
    found = dict(zip(numbered, scorers, strict=True))
    if not found:
        raise ConfigError(f"inspect: {name} has no scorer: nothing can be judged")
    for scorer in found:
        if scorer.startswith("model_graded"):
            raise ConfigError(f"inspect: {name} is scored by a model ({scorer}): not supported")
    return found


def _check(sample: Any, name: str) -> None:
    if sample.sandbox is not None or sample.files or sample.setup:
        raise ConfigError(f"inspect: samples of {name} need files or a sandbox: not supported")
    for message in [] if isinstance(sample.input, str) else sample.input:
        if message.role not in ("system", "user") or not isinstance(message.content, str):
            raise ConfigError(f"inspect: {name}: an input is text of a user, and no dialogue")
    if sample.choices and len(sample.choices) > len(string.ascii_uppercase):
        raise ConfigError(f"inspect: {name}: a sample has more choices than there are letters")


def _key(sample: Any) -> str:
    return identity(f"{_input(sample)}\n{sample.choices}")


def _input(sample: Any) -> str:
    if isinstance(sample.input, str):
        return sample.input
    return "\n\n".join(message.content for message in sample.input)


def _asked(key: str, sample: Any, instructions: str) -> Task:
    lettered = zip(string.ascii_uppercase, sample.choices or [], strict=False)
    choices = "\n".join(f"{letter}) {choice}" for letter, choice in lettered)
    parts = [instructions, _input(sample), choices]
    target = [sample.target] if isinstance(sample.target, str) else list(sample.target)
    if sample.choices:
        target = [", ".join(target)]
    return Task(
        key,
        "\n\n".join(part for part in parts if part),
        {"target": [one for one in target if one]},
        info={} if sample.id is None else {"sample": sample.id},
    )


def _target(sample: Any) -> Any:
    from inspect_ai.scorer import Target

    return Target(sample.target)


def _state(sample: Any, trajectory: Trajectory) -> Any:
    """The conversation as a solver leaves it."""
    from inspect_ai.model import (
        ChatMessageAssistant,
        ChatMessageTool,
        ChatMessageUser,
        ModelName,
        ModelOutput,
    )
    from inspect_ai.solver import TaskState

    messages: list[Any] = [ChatMessageUser(content=trajectory.prompt)]
    for turn in trajectory.turns:
        answer = turn.action.answer
        messages.append(
            ChatMessageAssistant(content=turn.action.text if answer is None else answer)
        )
        for result in turn.step.results if turn.step is not None else ():
            name = result.call.name
            messages.append(ChatMessageTool(content=result.content, function=name))
    answer = trajectory.answer or ""
    state = TaskState(
        model=ModelName(f"{MODEL}/{MODEL}"),
        sample_id=sample.id or trajectory.task.id,
        epoch=1,
        input=sample.input,
        messages=messages,
        target=_target(sample),
        choices=sample.choices,
        output=ModelOutput.from_content(MODEL, answer),
        completed=True,
        metadata=dict(sample.metadata or {}),
    )
    chosen = _letters(answer)
    for place, letter in enumerate(string.ascii_uppercase[: len(sample.choices or [])]):
        state.choices.mark_choice(place, letter in chosen)
    return state


def _letters(answer: str) -> frozenset[str]:
    """The choices of an answer that is letters, with commas or spaces between them, and no more.

    >>> sorted(_letters("b, D"))
    ['B', 'D']
    """
    words = answer.upper().replace(",", " ").split()
    letters = [word.removesuffix(")") for word in words]
    return frozenset(letters) if all(len(letter) == 1 for letter in letters) else frozenset()


def _number(name: str, score: Any) -> float:
    """A score's value as a number. Raises ValueError for any other value."""
    from inspect_ai.scorer import value_to_float

    value = None if score is None else score.value
    known = isinstance(value, int | float) or (
        isinstance(value, str) and (value.lower() in WORDS or value.lstrip("+-")[:1].isdigit())
    )
    if not known:
        raise ValueError(f"scorer {name} gave {value!r}, which is no number")
    return float(value_to_float()(value))


def _maker(target: str) -> Any:
    from inspect_ai.tool import ToolDef

    function = load_function(target, "inspect")
    try:
        ToolDef(function())
    except (TypeError, ValueError) as error:
        raise ConfigError(f"inspect: {target} makes no tool without arguments: {error}") from error
    return function


def _tool(maker: Any) -> Tool:
    from inspect_ai.tool import ToolDef
    from inspect_ai.tool import ToolError as TheirError

    made = ToolDef(maker())

    @functools.wraps(made.tool)
    async def run(*arguments: Any, **named: Any) -> str:
        try:
            return str(await made.tool(*arguments, **named))
        except TheirError as error:
            raise ToolError(str(error)) from None

    parameters = made.parameters.model_dump(exclude_none=True)
    schema = {"name": made.name, "description": made.description, "parameters": parameters}
    return Tool(made.name, made.description, schema, run)
