"""Questions of reasoning-gym, with a strict verifier; needs the extra `reasoning-gym`.

    environment.name="reasoning_gym"
    environment.options={ datasets = ["countdown", "zebra_puzzles"] }

The package makes question i of a dataset from seed + i, so datasets of neighbouring seeds share
nearly all; here every question has a hashed seed, and splits are made by what is asked. The
package's scorers give marks for an answer that stands somewhere in a text, and evaluate what a
model wrote; here an answer is the dataset's own, or one that its scorer, asked in a sandbox, gives
full marks to and that has nothing at its ends that could be left out. Not here: partial marks,
curricula.
"""

import asyncio
import json
import random
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from turnwise.environments.base import Environment, EnvironmentSpec
from turnwise.environments.tasksets import SOLVED, TaskSet
from turnwise.environments.turn_parts import share
from turnwise.errors import ConfigError, InfrastructureError, NotSupportedError, unknown_name
from turnwise.ranges import Count, Share
from turnwise.sandbox.base import CodeSandbox
from turnwise.sandbox.choice import make_sandbox
from turnwise.sandbox.result import Result, Status
from turnwise.sandbox.settings import MEBIBYTE, Limits
from turnwise.seeds import derive
from turnwise.types import Action, Task, Trajectory, Verdict
from turnwise_environments.adapters import reasoning_gym_program
from turnwise_environments.common import check_installed, identity, ids_with

SEEDS = 2**31
PARTS = {"correct": share("whether the answer is right")}
MOST_CHARACTERS = 10_000
"""Longest answer, in characters; a longer one is wrong."""
LIMITS = Limits(seconds=20.0, cpu_seconds=20.0, memory=4096 * MEBIBYTE)
"""Limits of a scorer."""
MAKING = Limits(seconds=1800.0, cpu_seconds=1800.0, memory=4096 * MEBIBYTE)
"""Limits of the program that makes all questions."""
PROGRAM = Path(reasoning_gym_program.__file__)


class ReasoningGym(Environment):
    """One question, one answer, no tools. Example: `ReasoningGym({"countdown": {"max_numbers": 4}},
    count=500)`."""

    stateless = True
    sandbox: CodeSandbox

    def __init__(
        self,
        datasets: str | Sequence[str] | Mapping[str, Mapping[str, Any]],
        count: Count = 1000,
        heldout_share: Share = 0.5,
        sandbox: Mapping[str, Any] = {},
    ) -> None:
        """Names of `datasets`, or a table of their settings by name; `count` questions of each, in
        both splits together, fewer where a dataset has not so many different ones. `sandbox` is a
        table of `make_sandbox`."""
        check_installed("reasoning-gym", "reasoning-gym")
        self._settings = _by_name(datasets)
        name = f"reasoning_gym/{'+'.join(self._settings)}"
        self.facts = EnvironmentSpec(name, version("reasoning-gym"), parts=PARTS)
        self.sandbox = make_sandbox({"packages": _packages(), "warm": 0, **sandbox}, limits=LIMITS)
        self._datasets = self._made(count)
        tasks = [task for name in self._settings for task in self._tasks_of(name)]
        self._known = all(task.secret["answer"] is not None for task in tasks)
        scores = SOLVED if self._known else {"noop": 0.0}
        self.task_set = TaskSet.shuffled(tasks, heldout_share, scores, content=ids_with("answer"))
        self._answers: dict[str, list[str]] = {name: [] for name in self._settings}
        for task in self.tasks("train"):
            self._answers[task.info["dataset"]].append(str(task.secret["answer"]))

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """1 for the dataset's own answer, or one that its scorer fully accepts and that is minimal.
        Raises InfrastructureError where the scorer does not work."""
        secret, answer = trajectory.task.secret, _normal(trajectory.answer or "")
        wanted = secret["answer"]
        success = bool(answer) and wanted is not None and answer == _normal(wanted)
        scores = self._datasets[secret["dataset"]]["scores"]
        if not success and answer and len(answer) <= MOST_CHARACTERS and scores:
            success = await asyncio.to_thread(self._accepted, secret, answer)
        return Verdict(float(success), success, {"correct": float(success)}, f"{answer[:80]!r}")

    def oracle(self, task: Task) -> Sequence[Action]:
        if not self._known:
            raise NotSupportedError("reasoning_gym: some of these datasets tell no answers")
        return [Action("", answer=task.secret["answer"])]

    def random_actions(self, task: Task, stream: random.Random) -> Sequence[Action]:
        """The answer to some training question of the same dataset."""
        return [Action("", answer=stream.choice(self._answers[task.info["dataset"]] or [""]))]

    def _made(self, count: int) -> dict[str, Any]:
        # Twice as many seeds as questions, for some seeds ask the same.
        seeds = {
            name: [derive("reasoning_gym", name, number) % SEEDS for number in range(2 * count)]
            for name in self._settings
        }
        asked = {"make": self._settings, "seeds": seeds, "count": count}
        result = self._ask(asked, MAKING)
        if result.status is not Status.OK:
            said = result.stderr.text.strip().rpartition("\n")[2]
            raise ConfigError(f"reasoning_gym: no questions can be made: {result.status}: {said}")
        made: dict[str, Any] = json.loads(result.files[reasoning_gym_program.MADE])
        if "unknown" in made:
            raise ConfigError(
                f"reasoning_gym: {unknown_name('dataset', made['unknown'], made['known'])}"
            )
        if "error" in made:
            raise ConfigError(f"reasoning_gym: settings of {made['error']}")
        return made

    def _tasks_of(self, name: str) -> list[Task]:
        tasks = []
        for seed, question, answer in self._datasets[name]["items"]:
            settings = {**self._settings[name], "seed": seed, "size": 1}
            secret = {"answer": answer, "dataset": name, "settings": settings}
            key = identity(f"{name}\n{question}")
            tasks.append(Task(key, question, secret, info={"dataset": name}))
        return tasks

    def _accepted(self, secret: Mapping[str, Any], answer: str) -> bool:
        where = self._datasets[secret["dataset"]]
        asked = {key: where[key] for key in ("module", "dataset", "config")}
        result = self._ask({**asked, "settings": secret["settings"], "answer": answer}, None)
        return _score(result, secret["dataset"]) >= 1

    def _ask(self, asked: Mapping[str, Any], limits: Limits | None) -> Result:
        return self.sandbox.run_python(
            PROGRAM.read_text(encoding="utf-8"),
            stdin=json.dumps(asked).encode(),
            environment={"PYTHONHASHSEED": "0"},
            collect=() if "answer" in asked else (reasoning_gym_program.MADE,),
            limits=limits,
        ).checked()


def _score(result: Result, name: str) -> float:
    """The score that was printed; 0 beyond the limits. Raises InfrastructureError for a failure."""
    if result.status is not Status.OK:
        if result.status is Status.NONZERO:
            reason = result.stderr.text.strip().rpartition("\n")[2]
            raise InfrastructureError(f"reasoning_gym: the scorer of {name} failed: {reason}")
        return 0.0
    return float(json.loads(result.stdout.text.strip().rpartition("\n")[2])["score"])


def _normal(text: str) -> str:
    """An answer without space around it and at the ends of its lines."""
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def _packages() -> list[str]:
    return [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]


def _by_name(
    datasets: str | Sequence[str] | Mapping[str, Mapping[str, Any]],
) -> dict[str, dict[str, Any]]:
    if isinstance(datasets, str):
        datasets = [datasets]
    if not datasets:
        raise ConfigError("reasoning_gym: environment.options.datasets names none")
    named: dict[str, dict[str, Any]] = (
        {name: dict(settings) for name, settings in datasets.items()}
        if isinstance(datasets, Mapping)
        else {name: {} for name in datasets}
    )
    for name, settings in named.items():
        for key in ("seed", "size"):
            if key in settings:
                raise ConfigError(f"reasoning_gym: {name}.{key} is set by turnwise: use count")
    return named
