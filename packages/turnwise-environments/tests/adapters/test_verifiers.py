"""verifiers: the real package, with tasksets of this file's own."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from environment_contract import another_process_has_the_same, keeps_its_word
from environment_playing import judged, module
from turnwise.environments.registry import make_environment
from turnwise.errors import ConfigError, NotSupportedError
from turnwise.types import Action
from turnwise_environments.adapters.verifiers import Verifiers
from turnwise_environments.choosing import all_tasks

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        find_spec("verifiers") is None,
        reason="verifiers is not installed: pip install 'turnwise[verifiers]'",
    ),
]
OWN = """
import itertools
import verifiers.v1 as vf

class Sum(vf.TaskData):
    answer: str

class SumTask(vf.Task[Sum]):
    @vf.reward(weight=0.9)
    async def right(self, trace: vf.Trace) -> float:
        return float(trace.last_reply == self.data.answer)
    @vf.reward(weight=0.1)
    async def short(self, trace: vf.Trace) -> float:
        assert [message.role for message in trace.messages] == ["system", "user", "assistant"]
        return float(len(trace.last_reply) < 10)
    @vf.metric
    async def length(self, trace: vf.Trace) -> float:
        return float(len(trace.last_reply))

class SumsConfig(vf.TasksetConfig):
    most: int = 30

class Sums(vf.Taskset[SumTask, SumsConfig]):
    def load(self):
        for n in range(self.config.most):
            data = Sum(prompt=f"{n} + 1 =", system_prompt="Add.", answer=str(n + 1))
            yield SumTask(data, self.config.task)

class Endless(Sums):
    INFINITE = True
    def load(self):
        for n in itertools.count():
            data = Sum(prompt=f"{n // 2} + 1 =", system_prompt="Add.", answer=str(n // 2 + 1))
            yield SumTask(data, self.config.task)

class Broken(SumTask):
    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        raise OSError("disk")

class Failing(Sums):
    def load(self):
        yield Broken(Sum(prompt="1 + 1 =", system_prompt="Add.", answer="2"), self.config.task)

class Boxed(SumTask):
    @vf.reward
    async def inside(self, trace: vf.Trace, runtime: vf.Runtime) -> float:
        return 1.0

class Needy(Sums):
    def load(self):
        yield Boxed(Sum(prompt="1 + 1 =", answer="2"), self.config.task)

class Contained(Sums):
    def load(self):
        yield SumTask(Sum(prompt="1 + 1 =", answer="2", image="box"), self.config.task)

class Unjudged(Sums):
    def load(self):
        yield vf.Task(vf.TaskData(prompt="?"), self.config.task)
"""


own = module("sums.py", OWN)


def test_rewards_and_metrics_are_the_tasks_own(own: Path) -> None:
    environment = Verifiers(f"{own}:Sums", config={"most": 8})
    train, heldout = environment.tasks("train"), environment.tasks("heldout")
    assert len({task.prompt for task in [*train, *heldout]}) == len(train) + len(heldout) == 8
    task = train[0]
    assert task.prompt.startswith("Add.\n\n")
    answer = task.secret["data"]["answer"]
    right = judged(environment, task, Action("", answer=answer))
    assert (right.reward, right.success) == (1.0, True)
    assert right.parts == {"right": 1.0, "short": 1.0, "length": float(len(answer))}
    wrong = judged(environment, task, Action("", answer="none"))
    assert (wrong.reward, wrong.success) == (0.1, False)
    assert judged(environment, task, Action("", answer="no" * 10)).reward == 0.0
    marked = Verifiers(f"{own}:Sums", answer="<a>{answer}</a>")
    assert marked.oracle(task)[0].answer == f"<a>{answer}</a>"


@pytest.mark.slow
def test_the_contract(own: Path) -> None:
    options = {"taskset": f"{own}:Sums"}
    environment = make_environment("verifiers", options)
    assert len(all_tasks(environment)) == 30
    assert environment.restorable
    keeps_its_word(environment, most=8, compared=8)
    another_process_has_the_same(("verifiers", options))


def test_an_endless_taskset_is_bounded_and_the_same_task_is_one(own: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no end: set environment\.options\.count"):
        Verifiers(f"{own}:Endless")
    assert len(all_tasks(Verifiers(f"{own}:Endless", count=10))) == 5


def test_a_reward_that_raises_is_not_a_zero(own: Path) -> None:
    environment = Verifiers(f"{own}:Failing")
    (task,) = all_tasks(environment)
    from verifiers.v1 import TaskError  # takes seconds

    with pytest.raises(TaskError, match="disk"):
        judged(environment, task, Action("", answer="2"))
    for answer in ("{nothing}", "{", "{}", "{answer.none}"):
        environment.answer = answer
        with pytest.raises(NotSupportedError, match="do not fill"):
            environment.oracle(task)


@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        ("Sum", {}, "unknown taskset 'Sum': did you mean 'Sums'"),
        ("Sums", {"mots": 3}, "config.mots"),
        ("Sums", {"most": "many"}, "config.most"),
        ("Needy", {}, "inside needs a runtime"),
        ("Contained", {}, "need a container"),
        ("Unjudged", {}, "no @reward"),
    ],
)
def test_what_is_refused(own: Path, name: str, config: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_environment("verifiers", {"taskset": f"{own}:{name}", "config": config})


def test_a_taskset_by_its_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_sums.py").write_text(f"{OWN}\n__all__ = ['Sums']\n")
    monkeypatch.syspath_prepend(tmp_path)
    environment = Verifiers("own-sums", config={"most": 4})
    assert environment.spec.name == "verifiers/own-sums"
    assert len(all_tasks(environment)) == 4
    for missing in ("no-such-taskset", "textarena"):
        with pytest.raises(ConfigError, match=f"verifiers: taskset {missing}: "):
            make_environment("verifiers", {"taskset": missing})
