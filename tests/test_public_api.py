"""The public API: that its examples run, also from where an event loop runs already, as in a
notebook. Not here: which names there are, and how they are called, which their page holds
(test_reference_pages.py)."""

import asyncio
import doctest
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import turnwise
from tests.fakes import Letters
from tests.small_runs import figures, write_recipe
from turnwise.errors import ConfigError, DataError

TABLES = """
rollout = { max_turns = 2, max_turn_tokens = 8, max_tokens = 150 }
train = { steps = 1, tasks_per_step = 2, group_size = 2 }
evaluation = { tasks = 2 }
"""
ORDER = ["train", "resume", "build", "make_learner", "sample_groups", "estimate"]
"""Examples that others go on from, as they stand on the page."""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recipe(tmp_path_factory.mktemp("public"), Letters.__name__, TABLES)


def test_names_are_listed_and_no_other_is_there() -> None:
    assert set(turnwise.__all__) <= set(dir(turnwise))
    with pytest.raises(AttributeError, match="no attribute 'trane'"):
        turnwise.trane  # noqa: B018


@pytest.mark.long
def test_every_name_has_an_example_that_runs(recipe: Path, tmp_path: Path) -> None:
    names = {name: getattr(turnwise, name) for name in turnwise.__all__}
    given = {**names, "turnwise": turnwise, "recipe": recipe, "path": tmp_path / "run"}
    given["Segment"] = sys.modules["turnwise.tokens"].Segment
    runner, said = doctest.DocTestRunner(verbose=False), []
    for name in [*ORDER, *(each for each in turnwise.__all__ if each not in (*ORDER, "close"))]:
        text = inspect.getdoc(names[name]) or ""
        test = doctest.DocTestParser().get_doctest(text, {}, name, None, 0)
        assert test.examples, f"{name} has no example"
        test.globs = given
        runner.run(test, out=said.append, clear_globs=False)
    assert not runner.failures, "".join(said)
    turnwise.close(given["components"])


def in_a_notebook(work: Callable[[], Any]) -> Any:
    """Call where an event loop runs in the thread."""

    async def cell() -> Any:
        return work()

    return asyncio.run(cell())


@pytest.mark.long
def test_training_from_a_notebook_is_the_same(recipe: Path, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    turnwise.train(recipe, run=here, progress=False)
    in_a_notebook(lambda: turnwise.train(recipe, run=there, progress=False))
    assert (here / "metrics.jsonl").read_bytes() == (there / "metrics.jsonl").read_bytes()
    report = in_a_notebook(lambda: turnwise.evaluate(there, progress=False))
    again = turnwise.evaluate(here, progress=False)
    assert figures(report) == figures(again)


@pytest.mark.long
def test_steps_by_hand_are_those_of_a_run(recipe: Path, tmp_path: Path) -> None:
    """The first step samples the same tokens, and gives them the same advantages."""
    turnwise.train(recipe, run=tmp_path, progress=False)

    def by_hand() -> list[tuple[str, list[int], list[float]]]:
        components = turnwise.build(recipe)
        learner = turnwise.make_learner(components)
        groups = turnwise.sample_groups(components)
        credits = turnwise.estimate(components, learner, groups)
        turnwise.close(components)
        members = [member for group in groups for member in group.trajectories]
        return [
            (member.group, member.tokens.ids.tolist(), credits.advantages[member.id].tolist())
            for member in members
        ]

    rows = turnwise.open_run(tmp_path).trajectories(1).to_pylist()
    recorded = [(row["group"], row["ids"], row["advantage"]) for row in rows]
    assert in_a_notebook(by_hand) == by_hand() == recorded


def test_recipes_from_tables(recipe: Path) -> None:
    changes = {"train.steps": 5, "engine": "scripted"}
    from_file = turnwise.load_recipe(recipe, "seed=3", changes)
    assert (from_file.train.steps, from_file.seed, from_file.engine.name) == (5, 3, "scripted")
    tables = {"name": "mine", "environment": {"name": "search"}}
    assert turnwise.load_recipe(tables).environment.name == "search"
    assert tables == {"name": "mine", "environment": {"name": "search"}}
    assert turnwise.load_recipe(from_file, "train.steps=6").train.steps == 6
    tables["algorithm"] = {"name": "ppo", "critic": "head"}
    tables["engine"] = {"max_sequences": 3}
    given = turnwise.load_recipe(tables, "algorithm.critic.clip=0.25", "engine=vllm")
    assert (given.engine.name, given.engine.max_sequences) == ("vllm", 3)
    assert given.algorithm.critic.model_dump(include={"kind", "clip"}) == {
        "kind": "head",
        "clip": 0.25,
    }
    with pytest.raises(ConfigError, match=r"train\.step"):
        turnwise.load_recipe(recipe, {"train.step": 5})
    with pytest.raises(ConfigError, match="is a value, not a table"):
        turnwise.load_recipe(recipe, {"name.steps": 5})


def test_what_needs_a_second_model_is_refused(recipe: Path) -> None:
    components = turnwise.build(recipe, "algorithm.name=ppo")
    with pytest.raises(ConfigError, match=r"critic.*turnwise\.train"):
        turnwise.make_learner(components)
    with pytest.raises(ConfigError, match="give no overrides"):
        turnwise.evaluate(components, "evaluation.tasks=1")
    turnwise.close(components)


@pytest.mark.long
def test_what_a_run_did_not_measure_is_null(recipe: Path, tmp_path: Path) -> None:
    turnwise.train(recipe, run=tmp_path, progress=False)
    run = turnwise.open_run(tmp_path)
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"step": 2, "new": 0.5}\n')
    assert run.metrics().to_pylist() == [{"step": 1, "new": None}, {"step": 2, "new": 0.5}]
    assert run.metrics("cold_start").num_rows == 0
    assert "evaluation-trained" in run.recorded
    with pytest.raises(ConfigError, match="unknown step"):
        run.trajectories(2)
    with pytest.raises(ConfigError, match="unknown log"):
        run.metrics("metric")
    with pytest.raises(DataError, match="not a run folder"):
        turnwise.open_run(tmp_path / "nothing")
