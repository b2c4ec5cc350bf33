"""Which signals are made of a recipe and its algorithm."""

from types import SimpleNamespace
from typing import Any

import pytest

from turnwise.algorithms import make_algorithm
from turnwise.config import check_recipe
from turnwise.learning.signals.base import Signals
from turnwise.learning.signals.choice import auxiliary_loss_of, signals_of
from turnwise.learning.signals.hindsight import Hindsight
from turnwise.learning.signals.information_gain import InformationGain
from turnwise.learning.signals.kl_reward import KLReward
from turnwise.learning.signals.penalty import Penalty
from turnwise.learning.signals.score_norms import ScoreNorms

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
    ("algorithm", "kinds"),
    [
        (make_algorithm("grpo", {}), [Penalty]),
        (make_algorithm("hca", {}), [Penalty, Hindsight]),
        (make_algorithm("igpo", {}), [Penalty, InformationGain]),
        (make_algorithm("grpo", {"estimator": "otb"}), [Penalty, ScoreNorms]),
        (make_algorithm("dr_grpo", {"kl_reward_coefficient": 0.1}), [Penalty, KLReward]),
    ],
    ids=["grpo", "hca", "igpo", "otb", "kl"],
)
def test_an_algorithm_gets_what_it_asks_for(algorithm: Any, kinds: list[type]) -> None:
    scaffold: Any = object()
    made = signals_of(RECIPE, algorithm, LEARNER, scaffold, lambda task: [], (None, None))
    assert [type(signal) for signal in made] == kinds
    for signal in made:
        if isinstance(signal, KLReward):
            assert signal.coefficient == 0.25  # the learner's, as it is now
        elif not isinstance(signal, Penalty):
            assert signal.scored is LEARNER.score
        if isinstance(signal, InformationGain):
            assert signal.context == 64


def test_models_of_the_run_are_asked_too_and_put_no_loss_beside_the_policys() -> None:
    model, scaffold = Learned(), object()
    algorithm = make_algorithm("grpo", {})
    made = signals_of(RECIPE, algorithm, LEARNER, scaffold, lambda task: [], (None, model))  # type: ignore[arg-type]
    assert model in made
    assert auxiliary_loss_of(model, Signals()) is None
    assert auxiliary_loss_of(None, Signals()) is None
