"""Which signals are made of a recipe and its algorithm."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.marked import marked
from turnwise.algorithms import make_algorithm
from turnwise.config import check_recipe
from turnwise.learning.signals.base import Signals
from turnwise.learning.signals.makers import signals_of
from turnwise.learning.signals.reward_terms import KLReward, Penalty

RECIPE = check_recipe({"name": "r", "environment": {"name": "e"}}, "test")
TEXTS = SimpleNamespace(max_position_embeddings=64)
LEARNER: Any = SimpleNamespace(
    model=SimpleNamespace(config=SimpleNamespace(get_text_config=lambda: TEXTS)),
    kl_coefficient=0.25,
    score=lambda sequences: [],
    reference_logprobs=lambda members: [],
)


class Learned:
    """What a model of the run measures."""

    def measure(self, groups: Any) -> Signals:
        """Nothing."""
        return Signals()


@pytest.mark.parametrize(
    ("name", "overrides", "kinds"),
    marked(
        [
            ("grpo", {}, ["Penalty"]),
            ("hca", {}, ["Penalty", "Hindsight"]),
            ("igpo", {}, ["Penalty", "InformationGain"]),
            ("grpo", {"estimator": "otb"}, ["Penalty", "ScoreNorms"]),
            ("dr_grpo", {"kl_reward_coefficient": 0.1}, ["Penalty", "KLReward"]),
        ]
    ),
)
def test_an_algorithm_gets_what_it_asks_for(
    name: str, overrides: dict[str, Any], kinds: list[str]
) -> None:
    algorithm = make_algorithm(name, overrides)
    scaffold: Any = object()
    made = signals_of(RECIPE, algorithm, LEARNER, scaffold, lambda task: [], (None, None))
    assert [type(signal).__name__ for signal in made] == kinds
    for signal in made:
        if isinstance(signal, KLReward):
            assert signal.coefficient == 0.25  # the learner's, as it is now
        elif not isinstance(signal, Penalty):
            assert vars(signal)["scored"] is LEARNER.score
        if "context" in vars(signal):
            assert vars(signal)["context"] == 64


def test_models_of_the_run_are_asked_too() -> None:
    model, scaffold = Learned(), object()
    algorithm = make_algorithm("grpo", {})
    made = signals_of(RECIPE, algorithm, LEARNER, scaffold, lambda task: [], (None, model))
    assert model in made
