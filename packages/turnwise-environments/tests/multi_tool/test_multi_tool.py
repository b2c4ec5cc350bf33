"""Several tools: what each kind of question needs, reference scores, and Tool-Star's reward."""

import asyncio
import re
from collections import Counter

import pytest

from environment_playing import answered, calling, judged, played, prototype
from tests.sandboxes import working
from turnwise.types import Action, Task
from turnwise_environments.multi_tool.environment import MultiTool
from turnwise_environments.multi_tool.tasks import KINDS, towns

made = prototype("multi_tool")


def of_kind(environment: MultiTool, kind: str) -> Task:
    return next(task for task in environment.tasks("heldout") if task.info["needs"] == kind)


def test_each_kind_needs_what_it_says(made: MultiTool) -> None:
    """The oracle sees all that the answer is made of; without a tool there is no such thing."""
    documents = {town.name: town.document for split in towns().values() for town in split}
    for task in made.tasks("heldout"):
        kind, secret = task.info["needs"], task.secret
        words = re.findall(r"\w+", task.prompt)
        assert bool(secret["searches"]) == (kind in ("search", "both"))
        assert bool(secret["sums"]) == (kind in ("calculator", "both"))
        assert (secret["answer"] in words) == (kind == "none")
        shown = " ".join(documents[name] for name in secret["searches"])
        assert (secret["answer"] in re.findall(r"\w+", shown)) == (kind == "search")
        for name in secret["searches"]:
            assert documents[name] in asyncio.run(made.search(name))
    for split in ("train", "heldout"):
        counts = Counter(task.info["needs"] for task in made.tasks(split))
        assert counts == dict.fromkeys(KINDS, 250)


def test_without_a_tool_what_needs_it_is_lost(made: MultiTool) -> None:
    for kind in KINDS:
        task = of_kind(made, kind)
        for name, needs in (("no_search", "searches"), ("no_interpreter", "sums")):
            variant = made.ablations()[name]
            seen = " ".join(played(variant, task, *made.oracle(task)).trajectory.observed)
            broken = "No results" in seen or "does not work now" in seen
            assert broken == bool(task.secret[needs])


def test_tool_stars_reward() -> None:
    made = MultiTool(count=8)
    task = of_kind(made, "both")
    script = list(made.oracle(task))

    def reward(*actions: Action) -> float:
        return judged(made, task, *actions).parts["both_tools"]

    assert reward(*script) == pytest.approx(1.1)
    assert reward(script[-1]) == 1.0
    assert reward(*script[:-1], answered("17")) == 0.0
    assert reward(*script[:-1]) == -1.0
    assert reward(Action("", error="broken"), *script) == -1.0
    failed = calling("calculator", expression="2 +")
    assert reward(*script[:1], failed, script[-1]) == 1.0


def test_hedges_and_lists_fail(made: MultiTool) -> None:
    task = of_kind(made, "both")
    for wrong in (f"not {task.secret['answer']}", f"{task.secret['answer']} or 3", "0 1 2 3", ""):
        assert judged(made, task, answered(wrong)).reward == 0.0


def test_the_other_interpreter(made: MultiTool) -> None:
    python = MultiTool(count=4, interpreter="python")
    assert [tool.name for tool in python.tools()] == ["python", "search"]
    assert [tool.name for tool in made.tools()] == ["calculator", "search"]
    play = played(python, python.tasks("train")[0], calling("calculator", expression="1 + 1"))
    assert play.trajectory.observed[0] == (
        "Error: there is no tool 'calculator'; tools: python, search"
    )
    working(python.sandbox)
    task = of_kind(python, "both")
    parts = judged(python, task, *python.oracle(task)).parts
    assert parts == {"correct": 1.0, "both_used": 1.0, "both_tools": 1.1}
    python.sandbox.close()


def test_some_kinds_of_question_only() -> None:
    few = MultiTool(count=8, kinds=["both", "search"])
    for split in ("train", "heldout"):
        counts = Counter(task.info["needs"] for task in few.tasks(split))
        assert counts == {"search": 4, "both": 4}
    assert few.spec.data_hash != MultiTool(count=8).spec.data_hash
