"""What an update records of each trained token, against computations by hand."""

from typing import Any

import numpy as np
import pytest
import torch

from tests.learning.building import learner, load_model, make_groups, members_of, update
from turnwise.algorithms import make_algorithm
from turnwise.learning.credits import estimate
from turnwise.learning.signals.base import Signals, together

pytestmark = pytest.mark.numbers

REWARDS = [[1.0, 0.0, 0.3], [0.0, 1.0]]


@pytest.mark.parametrize("share_prefixes", [False, True])
def test_entropies_are_those_of_the_distribution_that_was_sampled(share_prefixes: bool) -> None:
    """At the sampling temperature, before the update, whatever comes after the first pass."""
    model, groups = load_model(), make_groups(REWARDS)
    trained = learner(temperature=0.7, epochs=2, share_prefixes=share_prefixes)
    found = update(trained, groups).tokens
    for member in members_of(groups):
        places = np.flatnonzero(member.tokens.mask)
        with torch.no_grad():
            logits = model(torch.tensor(member.tokens.ids)[None]).logits[0] / 0.7
        logprobs = logits.double().log_softmax(-1)[places - 1].numpy()
        expected = -(np.exp(logprobs) * logprobs).sum(-1)
        np.testing.assert_allclose(found[member.id]["entropy"][places], expected, atol=1e-5)
        others = found[member.id][~member.tokens.mask]
        assert all(np.isnan(others[name]).all() for name in found[member.id].dtype.names or ())


def test_weights_are_the_aggregation_s_where_nothing_else_is_chosen() -> None:
    """One over the sequences of the optimizer batch, shared by a sequence's own tokens; two updates
    are two batches."""
    groups = make_groups(REWARDS)
    algorithm = make_algorithm("grpo", {"aggregation": "sequence_mean_token_mean"})
    found = update(learner(algorithm, updates_per_step=2), groups).tokens
    for group in groups:
        for member in group.graded:
            own = found[member.id]["loss_weight"][member.tokens.mask]
            expected = 1 / (len(group.graded) * member.tokens.mask.sum())
            np.testing.assert_allclose(own, expected, rtol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize(
    "changes",
    [
        {"correction": "truncated", "cap": 1.1},
        {"correction": "masked"},
        {"token_filter": "clip_cov", "share": 0.2, "covariance_low": 0.0},
    ],
)
def test_weights_are_what_is_left_after_filters_and_corrections(changes: dict[str, Any]) -> None:
    """Where every ratio is 1, as in the first update of a decoupled objective, the loss is the sum
    of weight times advantage, with its sign turned."""
    groups = make_groups(REWARDS)
    algorithm = make_algorithm("grpo", {"correction": "none", **changes})
    credits = estimate(groups, Signals(), algorithm)
    report = learner(algorithm).update(groups, credits)
    rows = [
        (report.tokens[member.id]["loss_weight"], credits.advantages[member.id])
        for member in members_of(groups)
    ]
    loss = -sum(float(np.nansum(weights * advantages)) for weights, advantages in rows)
    assert report.metrics["policy/loss"] == pytest.approx(loss, abs=1e-6)
    weights = np.concatenate([row[np.isfinite(row)] for row, _ in rows])
    assert len(set(weights.round(7))) > 1  # not the aggregation's alone


def test_ranks_join_what_each_has_computed() -> None:
    kind = [("loss_weight", np.float32), ("entropy", np.float32)]
    first, second = ({"a": np.array(rows, kind)} for rows in (ROWS, ROWS[::-1]))
    (joined,) = together([first, second]).values()
    assert joined.tolist() == [(0.5, 1.0), (0.5, 1.0)]


ROWS = [(np.nan, np.nan), (0.5, 1.0)]
