"""Tasks of verifiers (its v1): a taskset's prompts and rewards; needs the extra `verifiers`.

    environment.name="verifiers"
    environment.options={ taskset = "my-taskset", config = { split = "train" } }

One turn: the prompt, then an answer, which the task's `@reward` and `@metric` functions see as the
model's reply. Not here: tasks that need a container or a runtime, tools (they are servers of the
task's own), judges, environments of several turns. A taskset with one of these is refused, and is
for verifiers' own rollout (examples/runners/verifiers.toml).
"""

import asyncio
import inspect
import json
import math
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from itertools import islice
from typing import Annotated, Any

from pydantic import ValidationError

from turnwise.environments.base import Environment, EnvironmentSpec
from turnwise.environments.tasksets import TaskSet
from turnwise.errors import ConfigError, NotSupportedError, unknown_name
from turnwise.ranges import Range, Share
from turnwise.registry import load_module
from turnwise.rewards.parts import RewardPart
from turnwise.tools.tool import in_thread
from turnwise.types import Action, Task, Trajectory, Verdict
from turnwise_environments.common import check_installed, identity

INSTEAD = "let verifiers play it (examples/runners/verifiers.toml)"


class Verifiers(Environment):
    """One prompt, one answer. Example: `Verifiers("mine.py:Sums", config={"difficulty": 3})`."""

    stateless = True

    def __init__(
        self,
        taskset: str,
        config: Mapping[str, Any] = {},
        success: float = 1.0,
        answer: str = "{answer}",
        count: Annotated[int, Range(0)] = 0,
        heldout_share: Share = 0.5,
    ) -> None:
        """`taskset` is the id of an installed one, `path/to/file.py:Class` or
        `package.module:Class`; `config` is its own. An episode succeeds with a reward of at least
        `success`. `answer` is the right reply, with fields of the task's data in braces, such as
        "<answer>{answer}</answer>". The first `count` tasks are taken, all if it is 0."""
        check_installed("verifiers", "verifiers")
        import verifiers.v1

        self._vf = verifiers.v1
        kind = _taskset(self._vf, taskset)
        made = kind(_config(self._vf, kind, taskset, config))
        if not (made.bounded or count):
            raise ConfigError(f"verifiers: {taskset} has no end: set environment.options.count")
        if kind.toolsets(made.config):
            raise ConfigError(f"verifiers: {taskset} has tools of its own: {INSTEAD}")
        self.name, self.success, self.answer = taskset, success, answer
        self._theirs: dict[str, Any] = {}
        for task in islice(made, count or None):
            _check(task, taskset)
            self._theirs.setdefault(_key(task), task)
        tasks = [self._task(key, task) for key, task in self._theirs.items()]
        content = json.dumps(sorted(self._theirs))
        self.task_set = TaskSet.shuffled(tasks, heldout_share, content=lambda _: content)
        names = sorted({name for one in self._theirs.values() for name in _measured(one)})
        parts = {name: RewardPart(description="the taskset's own") for name in names}
        self.facts = EnvironmentSpec(f"verifiers/{taskset}", version("verifiers"), parts=parts)

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """The task's own rewards and metrics. Whatever they raise leaves the episode ungraded."""
        theirs = self._theirs[trajectory.task.id]
        trace = self._trace(theirs, trajectory.answer or "")
        # In a thread: a reward that computes for long would stop all episodes and deadlines.
        await in_thread(lambda: asyncio.run(theirs.score(trace)))
        reward = float(trace.reward)
        rewards = {name: one.score for name, one in trace.rewards.items() if one is not None}
        parts = {**trace.metrics, **rewards}
        success = math.isfinite(reward) and reward >= self.success
        return Verdict(reward, success, parts, f"answered {trajectory.answer!r:.80}")

    def oracle(self, task: Task) -> Sequence[Action]:
        data = task.secret["data"].items()
        known = {name: one for name, one in data if isinstance(one, str | int | float)}
        try:
            return [Action("", answer=self.answer.format_map(known))]
        except (KeyError, ValueError, IndexError, AttributeError) as error:
            raise NotSupportedError(
                f"verifiers: environment.options.answer is {self.answer!r}, which fields of "
                f"{self.name} do not fill: {error}"
            ) from None

    def _task(self, key: str, theirs: Any) -> Task:
        prompt = "\n\n".join(text for _, text in _messages(theirs.data, self.name))
        return Task(key, prompt, {"data": theirs.data.model_dump(mode="json", exclude={"idx"})})

    def _trace(self, theirs: Any, reply: str) -> Any:
        from verifiers.v1.state import state_cls
        from verifiers.v1.trace import AgentInfo, Trace, TraceTask

        vf = self._vf
        kinds = {"system": vf.SystemMessage, "user": vf.UserMessage}
        said = [kinds[role](content=text) for role, text in _messages(theirs.data, self.name)]
        nodes = [
            vf.MessageNode(message=message, parent=place - 1 if place else None, timestamp=0.0)
            for place, message in enumerate(said)
        ]
        answered = vf.AssistantMessage(content=reply)
        nodes.append(
            vf.MessageNode(message=answered, parent=len(said) - 1, sampled=True, timestamp=0.0)
        )
        task = TraceTask(type=type(theirs).__name__, data=theirs.data, key=theirs.key)
        agent = AgentInfo(config=vf.AgentConfig())
        state = state_cls(type(theirs))()
        return Trace(id=theirs.key, task=task, agent=agent, nodes=nodes, state=state)


def _taskset(vf: Any, name: str) -> Any:
    place, separator, class_name = name.rpartition(":")
    if separator:
        module = load_module(place, "verifiers")
        known = {
            key: value
            for key, value in vars(module).items()
            if isinstance(value, type) and issubclass(value, vf.Taskset) and value is not vf.Taskset
        }
        if class_name not in known:
            raise ConfigError(f"verifiers: {place}: {unknown_name('taskset', class_name, known)}")
        return known[class_name]
    from verifiers.v1.utils.loaders import taskset_class

    try:
        kind = taskset_class(name)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ConfigError(f"verifiers: taskset {name}: {error}") from error
    if vf.environment_class(name) is not vf.SingleAgentEnv:
        raise ConfigError(f"verifiers: {name} has an environment of several turns: {INSTEAD}")
    return kind


def _config(vf: Any, kind: Any, name: str, values: Mapping[str, Any]) -> Any:
    from verifiers.v1.utils.generic import concrete_type

    config = concrete_type(kind, vf.TasksetConfig, origin=vf.Taskset) or vf.TasksetConfig
    try:
        return config.model_validate({"id": name, **values})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"verifiers: {name}: config.{where}: {first['msg']}") from None


def _key(theirs: Any) -> str:
    return identity(theirs.data.model_dump(mode="json", exclude={"idx"}))


def _messages(data: Any, name: str) -> list[tuple[str, str]]:
    """(role, text) of what stands before the reply. Raises ConfigError for more than text."""
    prompt = data.prompt
    said = [("system", data.system_prompt)] if data.system_prompt else []
    if isinstance(prompt, str):
        return [*said, ("user", prompt)]
    for message in prompt or []:
        if message.role not in ("system", "user") or not isinstance(message.content, str):
            raise ConfigError(f"verifiers: {name}: a prompt is text of a user, and no dialogue")
        said.append((message.role, message.content))
    if not said:
        raise ConfigError(f"verifiers: {name}: a task has no prompt")
    return said


def _measured(theirs: Any) -> list[str]:
    """Names of a task's rewards and metrics; a metric of several numbers has others."""
    return [hook.__name__ for kind in ("reward", "metric") for hook in theirs.hooks(kind)]


def _check(theirs: Any, name: str) -> None:
    from verifiers.v1.task import Task as Theirs

    kind = type(theirs)
    if kind.NEEDS_CONTAINER or theirs.data.image:
        raise ConfigError(f"verifiers: the tasks of {name} need a container: {INSTEAD}")
    if kind.toolsets(theirs.config):
        raise ConfigError(f"verifiers: the tasks of {name} have tools: {INSTEAD}")
    if kind.setup is not Theirs.setup or kind.finalize is not Theirs.finalize:
        raise ConfigError(f"verifiers: the tasks of {name} need a runtime (setup): {INSTEAD}")
    if theirs.plugged_judges():
        raise ConfigError(f"verifiers: the tasks of {name} have a judge: {INSTEAD}")
    if not theirs.hooks("reward"):
        raise ConfigError(f"verifiers: the tasks of {name} have no @reward: nothing can be judged")
    for function in (*theirs.hooks("reward"), *theirs.hooks("metric")):
        runtime = inspect.signature(function).parameters.get("runtime")
        if runtime is not None and runtime.default is inspect.Parameter.empty:
            raise ConfigError(f"verifiers: {name}: {function.__name__} needs a runtime: {INSTEAD}")
