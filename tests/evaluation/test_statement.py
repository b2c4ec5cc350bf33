"""The facts below a report's figures: they are those of the recipe, the environment and the run."""

import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.fakes import Arms, Capitals
from turnwise.config import Recipe, check_recipe
from turnwise.evaluation.statement import computes_text, machine, statement, versions


def recipe(**tables: object) -> Recipe:
    values = {"name": "x", "model": {"name": "m"}, "environment": {"name": "search"}}
    return check_recipe({**values, **tables}, "recipe")


def facts(environment: object = None, **tables: object) -> dict[str, str]:
    made = environment if isinstance(environment, Arms | Capitals) else Capitals()
    return statement(recipe(**tables), made, made.tasks("heldout")[:2], "m, 5 parameters")


def test_it_names_all_that_a_figure_depends_on() -> None:
    found = facts(
        evaluation={"temperature": 0.5, "episodes_per_task": 3, "seed": 7},
        rollout={"max_tool_calls": 9, "top_p": 0.9},
        seed=4,
        threads=1,
    )
    assert found["policy"] == "m, 5 parameters"
    assert "at most 9 calls" in found["tools and budget"]
    assert "temperature 0.5, top_p 0.9, 3 episodes a task" in found["sampling"]
    assert "clustered by task" in found["sampling"]
    assert "seed 4 of training" in found["randomness"]
    assert "evaluation.seed 7" in found["randomness"]
    assert found["machine"].endswith("; threads: 1")
    assert "the reward is its own; known weaknesses: none stated" in found["verifier"]
    assert "min_p" not in facts()["sampling"]


def test_tasks_that_were_trained_on_are_counted() -> None:
    environment = Capitals()
    train, every = len(environment.tasks("train")), len(environment.tasks("heldout"))
    words = f"2 of {every} held-out ones, 0 of them are among the {train} training tasks, by"
    assert facts()["tasks"].startswith(words)
    assert "2 of them are among" in facts(Arms())["tasks"]
    assert "(the environment has no others)" in facts(Arms())["tasks"]


@pytest.mark.wing("judges")
def test_weaknesses_and_models_in_the_reward_are_told() -> None:
    weak = Capitals()
    weak.weaknesses = ["it pays for lists"]
    assert facts(weak)["verifier"].endswith("known weaknesses: it pays for lists")
    judge = {"form": "pointwise", "model": {"kind": "scripted"}}
    parts = {"helpful": {"use": "judge", "weight": 0.05}}
    found = facts(reward={"parts": parts}, judge=judge)
    assert (
        "put together by the recipe, with a language model's judgement in it" in found["verifier"]
    )
    parts = {"reward_model": {"weight": 0.05}}
    found = facts(reward={"parts": parts}, reward_model={"data": ["runs/a"]})
    assert "by the recipe, with a learned model's number in it" in found["verifier"]


def test_more_threads_than_cores_are_told() -> None:
    def told(threads: int) -> str:
        parts: Any = SimpleNamespace(recipe=recipe(threads=threads), why_compute_dtype="so")
        return computes_text(parts)

    assert told(1000).startswith("computing with 1000 threads on fewer cores, which is slower, up")
    assert told(1).startswith("computing with 1 thread, updates in")


def test_the_accelerator_is_that_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"card {device.index}")
    assert machine(torch.device("cuda", 1)).endswith(", card 1")


def test_machine_and_versions() -> None:
    assert re.fullmatch(r".+, \d+ cores, \d+ GiB, no GPU", machine(torch.device("cpu")))
    assert re.search(r"turnwise 0\.\S+ \(commit \S+\), Python 3\.\S+, torch 2", versions())
