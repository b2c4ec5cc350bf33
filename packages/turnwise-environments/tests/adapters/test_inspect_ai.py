"""Inspect: the real package, with tasks of this file's own."""

from pathlib import Path

import pytest

pytest.importorskip(
    "inspect_ai", reason="inspect-ai is not installed: pip install 'turnwise[inspect]'"
)

from environment_contract import another_process_has_the_same, keeps_its_word
from environment_playing import answered, calling, judged, module, played, verdict_of
from turnwise.environments.registry import make_environment
from turnwise.errors import ConfigError, NotSupportedError
from turnwise_environments.adapters.inspect_ai import Inspect
from turnwise_environments.choosing import all_tasks

OWN = '''
from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessageSystem, ChatMessageUser
from inspect_ai.scorer import Score, accuracy, choice, exact, match, model_graded_qa, scorer
from inspect_ai.solver import generate, system_message
from inspect_ai.tool import ToolError, tool
from inspect_ai.util import store

@scorer(metrics=[accuracy()])
def talk():
    async def score(state, target):
        roles = [message.role for message in state.messages]
        return Score(value=float(roles.count("tool")))
    return score

@scorer(metrics=[accuracy()])
def odd():
    async def score(state, target):
        return Score(value={"a": 1} if state.output.completion else "fine")
    return score

@task
def sums(count: int = 20):
    samples = [Sample(input=f"{n} + 1 =", target=[str(n + 1), f"{n}+1"], id=n)
               for n in range(count)]
    return Task(MemoryDataset(samples), solver=[system_message("Add."), generate()],
                scorer=[exact(), talk()])

@task
def chosen():
    messages = [ChatMessageSystem(content="One is right."), ChatMessageUser(content="1 + 1 =")]
    return Task([Sample(input=messages, choices=["one", "two", "three"], target="B")],
                scorer=choice())

@task
def graded():
    return Task([Sample(input="1 + 1 =", target="2")], scorer=model_graded_qa())

@task
def strange():
    return Task([Sample(input="1 + 1 =")], scorer=odd())

@task
def twice():
    return Task([Sample(input="1 + 1 =", target="2")],
                scorer=[match(location="begin"), match(location="end")])

@task
def boxed():
    return Task([Sample(input="1 + 1 =", target="2")], scorer=exact(), sandbox="local")

@task
def unjudged():
    return Task([Sample(input="1 + 1 =", target="2")])

@tool
def counter():
    calls = []
    async def execute(number: int, again: int = 0) -> str:
        """Count.

        Args:
            number: What to add.
            again: What to add, too.
        """
        if number < 0:
            raise ToolError("not below 0")
        calls.append(number + again)
        store().set("calls", store().get("calls", 0) + 1)
        return f"{sum(calls)} in {store().get('calls')}"
    return execute

def nothing():
    return None
'''


own = module("own_tasks.py", OWN)


def test_scores_are_the_tasks_own(own: Path) -> None:
    environment = Inspect(f"{own}:sums", {"count": 8}, instructions="Add.")
    tasks = all_tasks(environment)
    assert len(tasks) == 8
    assert not {task.id for task in environment.tasks("train")} & {
        task.id for task in environment.tasks("heldout")
    }
    task = tasks[0]
    assert task.prompt == f"Add.\n\n{task.info['sample']} + 1 ="
    for right in task.secret["target"]:
        assert judged(environment, task, answered(right)).reward == 1.0
    wrong = judged(environment, task, answered("none"))
    assert (wrong.reward, wrong.success, wrong.parts) == (0.0, False, {"exact": 0.0, "talk": 0.0})


def test_choices_are_shown_and_letters_answer(own: Path) -> None:
    environment = Inspect(f"{own}:chosen")
    (task,) = all_tasks(environment)
    assert task.prompt.endswith("1 + 1 =\n\nA) one\nB) two\nC) three")
    assert task.prompt.startswith("One is right.")
    for answer, right in {"B": 1, "b)": 1, "A": 0, "A, B": 0, "two": 0, "": 0, "not B": 0}.items():
        assert judged(environment, task, answered(answer)).reward == right, answer


def test_two_scorers_of_one_kind_are_both_asked(own: Path) -> None:
    environment = Inspect(f"{own}:twice")
    (task,) = all_tasks(environment)
    verdict = judged(environment, task, answered("2 of 3"))
    assert (verdict.reward, verdict.parts) == (1.0, {"match": 1.0, "match1": 0.0})


def test_tools_are_the_episodes_own(own: Path) -> None:
    environment = Inspect(f"{own}:sums", tools=[f"{own}:counter"])
    (tool,) = environment.tools()
    assert tool.schema["parameters"]["required"] == ["number"]
    assert tool.description == "Count."
    task = environment.tasks("train")[0]
    calls = [{"number": 2}, {"number": 3, "again": 1}, {"number": -1}, {"number": "x"}, {}]
    script = [calling("counter", **call) for call in calls]
    for _ in range(2):
        play = played(environment, task, *script, answered("?"))
        said = play.trajectory.observed
        assert said[:3] == ["2 in 1", "6 in 2", "Error: not below 0"]
        assert all(text.startswith("Error: counter: argument 'number'") for text in said[3:5])
        assert verdict_of(play).parts["talk"] == 5.0
    assert not environment.restorable
    with pytest.raises(NotSupportedError):
        environment.snapshot()


def test_the_contract(own: Path) -> None:
    options = {"task": f"{own}:sums"}
    environment = make_environment("inspect", options)
    assert len(all_tasks(environment)) == 20
    assert environment.restorable
    keeps_its_word(environment, most=8, compared=8)
    another_process_has_the_same(("inspect", options))


def test_a_score_that_is_no_number_is_not_a_zero(own: Path) -> None:
    environment = Inspect(f"{own}:strange")
    (task,) = all_tasks(environment)
    for answer in ("", "2"):
        with pytest.raises(ValueError, match=r"scorer odd gave .* which is no number"):
            judged(environment, task, answered(answer))
    with pytest.raises(NotSupportedError, match="without a target"):
        environment.oracle(task)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "sum"}, "unknown function 'sum': did you mean 'sums'"),
        ({"task": "nothing"}, r"returns no inspect_ai\.Task"),
        ({"task": "sums", "arguments": {"cout": 1}}, "unexpected keyword argument 'cout'"),
        ({"task": "graded"}, "scored by a model"),
        ({"task": "boxed"}, "needs a sandbox"),
        ({"task": "unjudged"}, "has no scorer"),
        ({"task": "sums", "tools": ["nothing"]}, "makes no tool"),
    ],
)
def test_what_is_refused(own: Path, options: dict[str, object], message: str) -> None:
    given = {**options, "task": f"{own}:{options['task']}"}
    if "tools" in options:
        given["tools"] = [f"{own}:nothing"]
    with pytest.raises(ConfigError, match=message):
        make_environment("inspect", given)
