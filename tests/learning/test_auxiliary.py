"""Auxiliary losses: which tokens, against a second computation in float64, and what must not move
them."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.learning.building import (
    change,
    learner,
    load_model,
    make_groups,
    put,
    random_tokens,
    update,
    worked_example,
)
from turnwise.algorithms import Algorithm, make_algorithm
from turnwise.learning.auxiliary import (
    auxiliary_terms,
    demonstration_terms,
    demonstrations_of_step,
    observed_tokens,
)
from turnwise.learning.selection import kept_groups
from turnwise.tokens import Source, Tokens
from turnwise.types import Group

COEFFICIENTS = ("observation_coefficient", "success_coefficient", "demonstration_coefficient")
RANDOM = np.random.default_rng(5)
DEMONSTRATIONS = [random_tokens(RANDOM) for _ in range(3)]
MIXED = demonstrations_of_step(DEMONSTRATIONS, 3, 0, 0)
REWARDS = [[1.0, 0.0, None], [0.0, 1.0, 0.0], [0.0, 0.0]]


def grpo(**coefficients: float) -> Algorithm:
    return make_algorithm("grpo", coefficients)


def wanted(
    term: str, groups: list[Group], demonstrations: list[Tokens]
) -> list[tuple[Tokens, list[int]]]:
    """Which tokens of which records a term is about, told apart by hand."""
    members = [m for group in groups for m in group.trajectories if m.reward is not None]
    if term == "observation_coefficient":
        sources, records = (Source.TOOL, Source.ENVIRONMENT), [m.tokens for m in members]
    elif term == "success_coefficient":
        sources, records = (Source.MODEL,), [m.tokens for m in members if m.reward == 1.0]
    else:
        sources, records = (Source.MODEL,), demonstrations
    return [(r, [t for t in range(1, len(r)) if r.source[t] in sources]) for r in records]


def by_hand(model: Any, chosen: list[tuple[Tokens, list[int]]]) -> tuple[float, torch.Tensor]:
    """Mean cross-entropy of those tokens, and its gradient, from full logits in float64."""
    model = model.double()
    losses = []
    for tokens, places in chosen:
        ids = torch.tensor(tokens.ids)
        logprobs = torch.log_softmax(model(ids[None]).logits[0], -1)
        losses += [-logprobs[t - 1, ids[t]] for t in places]
    loss = torch.stack(losses).sum() / len(losses)
    loss.backward()
    return loss.item(), torch.cat([p.grad.flatten() for p in model.parameters()])


@pytest.mark.long
@pytest.mark.parametrize("term", COEFFICIENTS)
@pytest.mark.parametrize("budget", [64, 100_000])
def test_each_term_adds_its_own_mean_over_its_own_tokens(term: str, budget: int) -> None:
    """The gradient with the term less that without it, against float64; whatever the split."""
    options = {"tokens_per_micro_batch": budget}
    groups = make_groups(REWARDS)
    with_term = learner(grpo(**{term: 0.3}), **options)
    total = change(with_term, groups, MIXED)
    plain = change(learner(grpo(), **options), make_groups(REWARDS), MIXED)
    _, expected = by_hand(load_model(), wanted(term, groups, DEMONSTRATIONS))
    difference = total - plain
    assert expected.norm() > 1e-2
    assert (difference - 0.3 * expected).norm() / (0.3 * expected).norm() < 1e-3


def test_metrics_are_means_over_all_tokens_of_all_updates() -> None:
    """Two updates with a learning rate of nearly nothing, so that the model stays the same."""
    algorithm = grpo(**dict.fromkeys(COEFFICIENTS, 0.5))
    trained = learner(algorithm, updates_per_step=2, learning_rate=1e-30)
    groups = make_groups(REWARDS)
    metrics = update(trained, groups, MIXED).metrics
    assert metrics["policy/updates"] == 2
    for term in COEFFICIENTS:
        chosen = wanted(term, groups, DEMONSTRATIONS)
        loss, _ = by_hand(load_model(), chosen)
        name = term.removesuffix("_coefficient")
        assert metrics[f"auxiliary/{name}_loss"] == pytest.approx(loss, rel=1e-5)
        assert metrics[f"auxiliary/{name}_tokens"] == sum(len(places) for _, places in chosen)


def test_observations_are_what_tools_and_environment_wrote() -> None:
    """What a branch shares is predicted in its parent."""
    whole = worked_example()
    branch = replace(whole, source=put(whole.source, slice(2, 5), Source.INHERITED))
    for tokens, places in ((whole, [4, 7]), (branch, [7]), (Tokens.empty(), [])):
        assert np.flatnonzero(observed_tokens(tokens)).tolist() == places


def test_filtered_groups_failures_and_the_ungraded_are_in_no_term() -> None:
    coefficients = {"observation_coefficient": 1.0, "success_coefficient": 1.0}
    dapo = make_algorithm("dapo", coefficients)
    observation, success = auxiliary_terms(kept_groups(make_groups(REWARDS), dapo), dapo)
    assert [e.name for e in observation.examples] == [
        "g0 episode 0",
        "g0 episode 1",
        "g1 episode 0",
        "g1 episode 1",
        "g1 episode 2",
    ]
    assert [e.name for e in success.examples] == ["g0 episode 0", "g1 episode 1"]
    for term in (observation, success):
        assert sum(e.weight * e.trained.sum() for e in term.examples) == pytest.approx(1.0)
    failed = make_groups([[0.0, 0.0]])
    assert [term.name for term in auxiliary_terms(failed, grpo(**coefficients))] == ["observation"]
    assert auxiliary_terms(make_groups([[None]]), grpo(**coefficients)) == []


def test_a_group_that_compares_nothing_still_predicts_its_observations() -> None:
    """Demonstrations alone make no update: they accompany what was sampled."""
    groups = make_groups([[1.0, 1.0], [0.5]])
    for term, updates in (("observation_coefficient", 1), ("demonstration_coefficient", 0)):
        algorithm = grpo(**{term: 0.1})
        metrics = update(learner(algorithm), groups, MIXED).metrics
        assert metrics["policy/updates"] == updates
        assert metrics["policy/trained_tokens"] == 0
        assert "policy/loss" not in metrics
        assert ("auxiliary/observation_loss" in metrics) is bool(updates)


def test_a_term_that_is_not_finite_is_skipped_and_named() -> None:
    trained = learner(grpo(observation_coefficient=0.1))
    with torch.no_grad():
        trained.model.lm_head.weight.fill_(torch.nan)
    report = update(trained, make_groups([[1.0, 1.0]]))
    assert report.metrics["policy/updates"] == 0
    assert report.problems[0].startswith("the loss is not finite in g0 episode")
    assert all(p.grad is None for p in trained.model.parameters())


def test_every_pass_mixes_in_each_demonstration_once() -> None:
    names = [
        e.name for step in range(3) for e in demonstrations_of_step(DEMONSTRATIONS, 2, step, 1)
    ]
    assert sorted(names[:3]) == sorted(names[3:]) == sorted(set(names))
    again = demonstrations_of_step(DEMONSTRATIONS, 2, 2, 1)
    assert names[4:] == [e.name for e in again]
    assert demonstration_terms(again, grpo()) == []
