"""Promise 6 for passes without a gradient: ranks score some of the texts each, as one process does
all of them."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from torch.distributed.tensor import DTensor

from cluster_tests.learners.comparing import REWARDS, WITH_REFERENCE, Bench, loaded, same
from turnwise.forward.logprobs import score_norms
from turnwise.learning.scoring import logprobs
from turnwise_cluster.learners.learner import DistributedLearner

pytestmark = pytest.mark.numbers


class Counted:
    """A part of a model, and how many texts pass through it here."""

    def __init__(self, model: Any) -> None:
        self.texts = 0
        model.get_input_embeddings().register_forward_pre_hook(self._count)

    def _count(self, module: Any, inputs: Any) -> None:
        self.texts += len(inputs[0])


@pytest.mark.long
@pytest.mark.parametrize("slices", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_two_ranks_score_what_one_does(bench: Bench, slices: int) -> None:
    """Texts of which nothing is wanted among them; one alone; none."""
    recipe = bench.recipe("qwen3", WITH_REFERENCE, slices=slices)
    one, two = bench.pair(recipe)
    generator = np.random.default_rng(0)
    texts = [
        (generator.integers(0, 50, length), generator.random(length) < 0.5)
        for length in (1, 30, 7, 50, 30)
    ]
    texts[1][1][:] = False
    for measure in (logprobs, score_norms):
        for given in (texts, texts[3:4], texts[:2], []):
            expected, found = (each.score(given, measure) for each in (one, two))
            assert len(found) == len(given)
            assert all(map(same, expected, found))


@pytest.mark.wing("algorithms")
@pytest.mark.long
def test_each_rank_scores_its_share(bench: Bench) -> None:
    """Of the reference, which here is the policy without its adapters, and of the policy."""
    from telling import Telling
    from turnwise_algorithms.signals.hindsight import Hindsight
    from turnwise_algorithms.signals.score_norms import ScoreNorms

    one, two = bench.pair(bench.recipe("gemma2", WITH_REFERENCE, lora_rank=2))
    groups = bench.groups(REWARDS)
    members = [member for group in groups for member in group.graded]
    counted = Counted(bench.team.parts.learner.model.get_base_model())
    assert all(map(same, one.reference_logprobs(members), two.reference_logprobs(members)))
    assert 0 < counted.texts < len(members)
    told: Any = partial(Hindsight, scaffold=Telling())
    for name, signal in {"score_norms": ScoreNorms, "hindsight_logprobs": told}.items():
        expected, found = (signal(each.score).measure(groups) for each in (one, two))
        for member in members:
            assert same(*(getattr(signals.of(member), name) for signals in (expected, found)))


@pytest.mark.wing("algorithms")
@pytest.mark.long
@pytest.mark.parametrize("slices", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_teacher_is_divided_and_says_the_same(bench: Bench, slices: int) -> None:
    """Another model than the policy; it scores whole rows where the policy has slices of them."""
    from turnwise_algorithms.signals.teacher import Teachers

    llama, name = bench.recipe("llama", {"name": "grpo"}), str(bench.models["llama"])
    distillation = {"name": "distillation", "teacher": {"model": name}}
    recipe = bench.recipe("qwen3", distillation, slices=slices)
    teachers = {name: loaded(llama, 3)}
    learner = DistributedLearner(bench.team, recipe, loaded(recipe, 1), None, None, teachers)
    two = learner.teacher
    assert two is not None
    divided = bench.team.parts.learner.teacher.models[name]
    counted = Counted(divided)
    one = Teachers(recipe, {name: loaded(llama, 3)})
    groups = bench.groups(REWARDS)
    for temperature in (1.0, 0.7):
        one.temperature = temperature
        learner.set_temperature(temperature)
        expected, found = (each.measure(groups) for each in (one, two))
        assert found.metrics == pytest.approx(expected.metrics, rel=1e-6)
        for member in (member for group in groups for member in group.graded):
            assert same(expected.of(member).teacher_logprobs, found.of(member).teacher_logprobs)
    assert slices > 1 or 0 < counted.texts < 2 * sum(len(group.graded) for group in groups)
    assert all(isinstance(weight, DTensor) for weight in divided.parameters())
