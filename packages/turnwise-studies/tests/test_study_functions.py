"""The functions of shipped studies: measures of a run's folder, and rewards."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.rewards.episodes import answer, call, episode
from turnwise.environments.registry import make_environment
from turnwise.rollout.demonstrations import Script, faithful
from turnwise.storage.trajectory_rows import SCHEMA
from turnwise.types import Task, Verdict
from turnwise_studies.shipped import kimi_k2, tool_use, webgpt


def evaluated(folder: Path, config: str, rows: list[dict[str, Any]]) -> Path:
    """A run with these episodes in its last evaluation."""
    file = folder / "trajectories" / "evaluation-trained.parquet"
    file.parent.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), file)
    (folder / "config.toml").write_text(f'name = "x"\n{config}\n')
    return folder


def of_both_tools(options: str) -> str:
    return f'[environment]\nname = "multi_tool"\noptions = {{ {options} }}'


@pytest.mark.wing("environments")
def test_both_tools_where_needed_and_where_not(tmp_path: Path) -> None:
    """Two questions of each kind; both tools are used in three of eight episodes."""
    tasks = make_environment("multi_tool", {"count": 8}).tasks("heldout")
    used = {"none": [1.0, 0.0], "search": [0.0, 0.0], "calculator": [0.0, 0.0], "both": [1.0, 1.0]}
    rows = [
        {"task": task.id, "parts": json.dumps({"both_used": used[task.info["needs"]].pop()})}
        for task in tasks
    ]
    run = evaluated(tmp_path, of_both_tools("count = 8"), rows)
    assert tool_use.both_where_needed(run) == 1.0
    assert tool_use.both_where_not_needed(run) == pytest.approx(1 / 6)


@pytest.mark.wing("environments")
def test_both_tools_of_an_evaluation_without_such_questions(tmp_path: Path) -> None:
    tasks = make_environment("multi_tool", {"count": 2, "kinds": ["both"]}).tasks("heldout")
    rows = [{"task": task.id, "parts": '{"both_used": 0.0}'} for task in tasks]
    run = evaluated(tmp_path, of_both_tools('count = 2, kinds = ["both"]'), rows)
    assert tool_use.both_where_needed(run) == 0.0
    assert tool_use.both_where_not_needed(run) is None


def test_success_at_calculations_alone_is_paid() -> None:
    cases = (("calculator", True, 1), ("calculator", False, 0), ("both", True, 0))
    for needs, right, paid in cases:
        task = Task("x", "What is 2 * 3?", info={"needs": needs})
        played = replace(episode(answer("6")), task=task, verdict=Verdict(1.0, right))
        assert kimi_k2.calculations(played) == paid


@pytest.fixture(scope="module")
def references() -> webgpt.References:
    return webgpt.References()


def judged(environment: webgpt.References, task: Task, given: str) -> Verdict:
    query = task.secret["chain"][0][0]
    found = environment.search(query)
    played = episode(call("search", found, query=query), answer(given))
    return asyncio.run(environment.verify(replace(played, task=task)))


@pytest.mark.long
@pytest.mark.parametrize(
    ("behaviour", "right"),
    [
        (faithful, True),
        (webgpt.misciting, False),
        (webgpt.misanswering, False),
        (webgpt.unreferenced, False),
    ],
)
def test_an_answer_needs_the_result_that_states_it(
    references: webgpt.References, behaviour: Callable[[Script, Script], Script], right: bool
) -> None:
    successes = 0
    for task in references.tasks("heldout")[:20]:
        script = references.oracle(task)
        verdict = judged(references, task, str(behaviour(script, script)[-1].answer))
        successes += verdict.success
    assert successes == 20 if right else successes <= 2  # a second result may state it, too


def test_a_wrong_answer_may_be_supported(references: webgpt.References) -> None:
    task = references.tasks("heldout")[0]
    titles = references.titles(task.secret["chain"][0][0])
    title = next(one for one in titles if one.split()[1] not in task.prompt)
    verdict = judged(references, task, f"{title.split()[1]} [{title}]")
    assert (verdict.success, verdict.parts["supported"]) == (False, 1.0)
    assert not judged(references, task, "unreferenced").success


@pytest.mark.parametrize(("best_of", "success"), [("reward_model", 0.5), ("", 0.75)])
def test_the_reward_model_chooses_one_answer_of_a_question(
    tmp_path: Path, best_of: str, success: float
) -> None:
    answers = [("a", 0.9, True), ("a", 0.1, True), ("b", 0.8, False), ("b", 0.2, True)]
    rows = [
        {
            "task": task,
            "success": right,
            "answer": "it [Class It]" if right else "it",
            "parts": json.dumps({"reward_model": number, "supported": float(right)}),
        }
        for task, number, right in answers
    ]
    chosen = f'[evaluation]\nepisodes_per_task = 2\nbest_of = "{best_of}"'
    evaluated(tmp_path, f'[environment]\nname = "search"\n{chosen}', rows)
    assert webgpt.success(tmp_path) == webgpt.supported(tmp_path) == success
    assert webgpt.cited(tmp_path) == 1.0
    assert webgpt.ranking(tmp_path) == (0.0 if best_of else None)
