"""Texts of agents: first-order ones of questions, higher-order ones of trajectories."""

from pathlib import Path
from typing import Any

import pytest

from tests.small_runs import train, write_recipe
from tests.training.test_stages import TABLES
from turnwise.api import load_recipe
from turnwise.errors import ConfigError
from turnwise.storage.run_folder import RunFolder
from turnwise_synthesis.founder import MALFORMED, FirstOrder, HigherOrder
from turnwise_synthesis.items import Material, Refused
from turnwise_synthesis.settings import SynthesisConfig


def material(method: str, **model: Any) -> Material:
    recipe = load_recipe("search", "model.name=tiny_search", f"synthesis.method={method}")
    settings = SynthesisConfig.model_validate({"method": method, **model})
    return Material(recipe, settings)


def says_nothing(messages: Any) -> str:
    del messages
    return "I do not know"


@pytest.mark.long
def test_first_order_texts_have_a_call_that_is_not_executed_or_an_answer_from_knowledge() -> None:
    method = FirstOrder(material("first_order"))
    items = [method.propose(attempt).data for attempt in range(40)]
    for planning, reasoning in zip(items[::2], items[1::2], strict=True):
        assert planning["text"].endswith("</search>")
        assert "<information>" not in planning["text"]
        assert "</think><answer>" in reasoning["text"]
        question = planning["text"].partition("?")[0]
        assert reasoning["text"].startswith(question)
    again = FirstOrder(material("first_order"))
    assert again.propose(7).data == items[7]


@pytest.mark.long
def test_a_model_that_is_malformed_is_refused_and_the_oracle_has_one_analysis() -> None:
    script = {"kind": "scripted", "script": f"{__file__}:says_nothing"}
    method = FirstOrder(material("first_order", model=script), analyses=3, by="model")
    with pytest.raises(Refused, match=MALFORMED):
        method.propose(0)
    with pytest.raises(ConfigError, match="one analysis"):
        FirstOrder(material("first_order"), analyses=2)


@pytest.mark.long
def test_higher_order_texts_have_choices_at_each_step_and_the_outcome(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, "Letters", TABLES)
    train(recipe, RunFolder.new(tmp_path / "run"), "train.steps=1", "evaluation.tasks=1")
    method = HigherOrder(material("higher_order"), str(tmp_path / "run"))
    outcomes = {bool(row["success"]) for row in method.rows}
    kinds = set()
    for attempt, row in enumerate(method.rows):
        data = method.propose(attempt).data
        kinds.add(data["kind"] == "success")
        assert data["text"].count("Choices:") == len(method._turns(row))
        for turn in method._turns(row):
            assert data["text"].count(turn) >= 2  # among the choices, and as what was done
        assert data["text"].endswith(f"Outcome: {data['kind']}")
    assert kinds == outcomes
