"""reasoning-gym: the real package, its scorers in a real sandbox."""

from importlib.util import find_spec
from typing import Any

import pytest

from environment_playing import judged
from turnwise.environments.registry import make_environment
from turnwise.errors import ConfigError, NotSupportedError
from turnwise.types import Action, Task
from turnwise_environments.adapters.reasoning_gym import ReasoningGym
from turnwise_environments.adapters.reasoning_gym_program import is_tame
from turnwise_environments.choosing import all_tasks


def needed(test: Any) -> Any:
    """A test of the real package, which is slow."""
    absent, why = find_spec("reasoning_gym") is None, "needs turnwise[reasoning-gym]"
    return pytest.mark.slow(pytest.mark.skipif(absent, reason=why)(test))


NAMES = ["bitwise_arithmetic", "countdown", "knights_knaves", "n_queens"]
COUNT = 4


@pytest.fixture(scope="module")
def several() -> ReasoningGym:
    return ReasoningGym(NAMES, count=COUNT)


def one_of(environment: ReasoningGym, name: str) -> Task:
    return next(task for task in all_tasks(environment) if task.info["dataset"] == name)


def succeeds(environment: ReasoningGym, name: str, answer: str) -> bool:
    return judged(environment, one_of(environment, name), Action("", answer=answer)).success


@needed
def test_splits_share_no_question_and_seeds_are_hashed(several: ReasoningGym) -> None:
    train, heldout = several.tasks("train"), several.tasks("heldout")
    assert len(train) + len(heldout) == COUNT * len(NAMES)
    assert not {task.prompt for task in train} & {task.prompt for task in heldout}
    seeds = [task.secret["settings"]["seed"] for task in [*train, *heldout]]
    assert min(abs(a - b) for a in seeds for b in seeds if a != b) > 1
    assert not any(str(task.secret["answer"]) in str(task.data) for task in train)


@needed
@pytest.mark.parametrize("name", NAMES)
def test_the_own_answer_is_right_and_nothing_around_it(several: ReasoningGym, name: str) -> None:
    answer = one_of(several, name).secret["answer"]
    assert succeeds(several, name, f" {answer}\n")
    for wrong in ("", "?", f"not {answer}", f"{answer}\n{answer}"):
        assert not succeeds(several, name, wrong)


@needed
def test_another_right_answer_is_right(several: ReasoningGym) -> None:
    answer = one_of(several, "countdown").secret["answer"]
    assert succeeds(several, "countdown", f"({answer})")
    assert not succeeds(several, "countdown", f"{answer} + 1 - 1")
    bits = one_of(several, "bitwise_arithmetic").secret["answer"]
    assert succeeds(several, "bitwise_arithmetic", bits.replace("0x", "0x0"))


@needed
def test_an_answer_is_not_run(several: ReasoningGym) -> None:
    code = "[globals().update(eval=1) or __import__('os')._exit(0)]"
    for name in ("n_queens", "countdown"):
        assert not succeeds(several, name, code)


@needed
def test_datasets_without_answers_have_no_oracle() -> None:
    environment = ReasoningGym({"graph_color": {"num_colors": 4}}, count=2)
    task = all_tasks(environment)[0]
    assert not judged(environment, task, Action("", answer="{}")).success
    with pytest.raises(NotSupportedError, match="tell no answers"):
        environment.oracle(task)


@needed
@pytest.mark.parametrize(
    ("datasets", "message"),
    [
        ("countdwn", "unknown dataset 'countdwn': did you mean 'countdown'"),
        ([], "names none"),
        ({"countdown": {"seed": 1}}, "countdown.seed is set by turnwise"),
        ({"countdown": {"colour": 1}}, "settings of countdown: .*colour"),
    ],
)
def test_bad_options(datasets: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_environment("reasoning_gym", {"datasets": datasets, "count": 2})


def test_what_sympy_may_see() -> None:
    for tame in ("x**2/5 - 107*x**4/10 + C", "3*x*atan(2*x) - log(4*x**2 + 1)", "(1 + 2)*3^2"):
        assert is_tame(tame), tame
    for wild in ("9**9**9", "2**(9**9)", "2**9999", "open('x')", "x.__class__", "[1]*9", "9!"):
        assert not is_tame(wild), wild
