"""The policy loss against a second computation in float64 numpy, on padded arrays with a mask."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.algorithms.declared import functions
from tests.algorithms.trained_tokens import trained_tokens
from turnwise.algorithms import Algorithm, make_algorithm
from turnwise.algorithms.aggregation import Totals
from turnwise.algorithms.kl import adapted_coefficient
from turnwise.algorithms.losses import TokenLosses, TrainedTokens, policy_loss

AGGREGATIONS = functions("aggregation")

FIELDS = ("logprob", "behaviour", "advantage", "reference", "entropy")
Padded = dict[str, np.ndarray]
"""Arrays [B, T]; what stands at places that the mask leaves out is arbitrary."""


def by_numpy(batch: Padded, algorithm: Algorithm) -> float:
    """The textbook form: loop over sequences, then over tokens, float64."""
    mask, per_sequence, tokens = batch["mask"], [], 0
    for row in range(len(mask)):
        trained = np.flatnonzero(mask[row])
        if not len(trained):
            continue
        log_ratios = (batch["logprob"] - batch["behaviour"])[row, trained]
        if algorithm.ratio_level == "sequence":
            log_ratios = np.full(len(trained), log_ratios.mean())
        losses = []
        for log_ratio, t in zip(log_ratios, trained, strict=True):
            ratio, advantage = np.exp(log_ratio), batch["advantage"][row, t]
            low, high = (
                algorithm.numbers_of("objective")[f"clip_{end}"] for end in ("low", "high")
            )
            clipped = min(max(ratio, 1 - low), 1 + high)
            x = batch["logprob"][row, t] - batch["reference"][row, t]
            losses.append(
                -min(ratio * advantage, clipped * advantage)
                + algorithm.kl_coefficient * (np.exp(-x) + x - 1)
                - algorithm.entropy_coefficient * batch["entropy"][row, t]
            )
        tokens += len(losses)
        per_sequence.append(losses)
    if algorithm.aggregation == "token_mean":
        return sum(map(sum, per_sequence)) / tokens
    if algorithm.aggregation == "sequence_mean_token_mean":
        return float(np.mean([np.mean(losses) for losses in per_sequence]))
    scale = algorithm.numbers_of("aggregation").get("length", 1.0)
    return float(np.mean([np.sum(losses) for losses in per_sequence])) / scale


def flat(batch: Padded, algorithm: Algorithm, reference: bool = True) -> TrainedTokens:
    mask = batch["mask"]
    counts = mask.sum(axis=1)
    tasks = ["one task"] * len(counts)
    weights = AGGREGATIONS[algorithm.aggregation](
        counts, tasks, Totals.of(counts, tasks), **algorithm.numbers_of("aggregation")
    )
    picked = {name: torch.tensor(batch[name][mask]) for name in FIELDS}
    return trained_tokens(
        picked["logprob"].requires_grad_(),
        picked["behaviour"],
        advantage=picked["advantage"],
        weight=torch.tensor(np.repeat(weights, counts)),
        sequence=torch.tensor(np.repeat(np.arange(len(mask)), counts)),
        entropy=picked["entropy"],
        reference_logprob=picked["reference"] if reference else None,
    )


ALGORITHMS = [
    make_algorithm("grpo", {}),
    make_algorithm("grpo", {"kl_coefficient": 0.04, "entropy_coefficient": 0.01}),
    make_algorithm("dapo", {"kl_coefficient": 0.1}),
    make_algorithm("dr_grpo", {}),
    make_algorithm("rloo", {}),
    make_algorithm("gspo", {"clip_low": 0.1, "clip_high": 0.2}),
    make_algorithm("gspo", {"aggregation": "token_mean"}),
]


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: f"{a.name}-{a.aggregation}")
def test_loss_matches_numpy_and_its_gradient_finite_differences(algorithm: Algorithm) -> None:
    """Advantages are equal within a sequence, as they are for GSPO proper; one has no token."""
    generator = np.random.default_rng(3)
    batch = {name: generator.normal(scale=0.3, size=(6, 5)) for name in FIELDS}
    batch["advantage"] = np.repeat(generator.normal(size=(6, 1)), 5, axis=1)
    batch["mask"] = generator.random((6, 5)) < 0.6
    batch["mask"][2] = False
    tokens = flat(batch, algorithm)
    loss = policy_loss(tokens, algorithm).losses.sum()
    assert loss.item() == pytest.approx(by_numpy(batch, algorithm), abs=1e-10)
    loss.backward()
    step = 1e-6
    for position, (row, column) in enumerate(np.argwhere(batch["mask"])):
        moved = []
        for sign in (1, -1):
            logprob = batch["logprob"].copy()
            logprob[row, column] += sign * step
            moved.append(by_numpy({**batch, "logprob": logprob}, algorithm))
        expected = (moved[0] - moved[1]) / (2 * step)
        assert tokens.logprob.grad[position].item() == pytest.approx(expected, abs=1e-8)


def one(ratio: float, advantage: float, algorithm: Algorithm) -> tuple[TokenLosses, float]:
    logprob = torch.tensor([np.log(ratio)], dtype=torch.float64, requires_grad=True)
    tokens = trained_tokens(logprob, [0.0], advantage=torch.tensor([advantage]))
    result = policy_loss(tokens, algorithm)
    result.losses.sum().backward()
    return result, logprob.grad.item()


@pytest.mark.parametrize("correction", functions("correction"))
def test_the_unbiased_divergence_is_that_with_every_correction(correction: str) -> None:
    """What a stale policy samples is listed; the gradient of KL(policy || reference) is that of
    the probabilities by finite differences, in float64 numpy."""
    logits, stale, old = np.array([0.9, -0.4, 0.1]), [0.5, 0.1, 0.4], [0.6, 0.15, 0.25]
    reference = np.array([0.2, 0.5, 0.3])

    def exact(moved: np.ndarray) -> float:
        policy = np.exp(moved) / np.exp(moved).sum()
        return float(policy @ np.log(policy / reference))

    steps = 1e-6 * np.eye(3)
    expected = [(exact(logits + one) - exact(logits - one)) / 2e-6 for one in steps]
    given_logits = torch.tensor(logits, requires_grad=True)
    tokens = trained_tokens(
        given_logits.log_softmax(-1),
        np.log(stale if correction == "bypass" else old),
        behaviour_logprob=torch.tensor(np.log(stale)),
        weight=torch.tensor(stale),
        reference_logprob=torch.tensor(np.log(reference)),
    )
    changes = {"kl_coefficient": 1.0, "divergence": "unbiased", "correction": correction}
    losses = policy_loss(tokens, make_algorithm("grpo", changes)).losses
    losses.sum().backward()
    assert losses.sum().item() == pytest.approx(exact(logits))
    assert given_logits.grad.tolist() == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_clipping_stops_the_gradient_in_the_improving_direction_only(level: str) -> None:
    algorithm = make_algorithm("dapo", {"ratio_level": level})
    for ratio, advantage, clipped in (
        (1.5, 1.0, True),
        (1.25, 1.0, False),
        (1.5, -1.0, False),
        (0.5, -1.0, True),
        (0.5, 1.0, False),
    ):
        result, gradient = one(ratio, advantage, algorithm)
        assert (gradient == 0) is clipped
        assert result.sums["policy/clip_fraction"] == float(clipped)
        assert result.maxima["policy/ratio_max"] == pytest.approx(ratio)


def test_extreme_log_ratios_stay_finite() -> None:
    other = torch.tensor([-1e4, 0.0])
    tokens = trained_tokens(
        torch.tensor([0.0, -1e4], requires_grad=True),
        other,
        advantage=torch.tensor([-1.0, 1.0]),
        reference_logprob=other,
    )
    for name in ("grpo", "gspo"):
        result = policy_loss(tokens, make_algorithm(name, {"kl_coefficient": 0.1}))
        assert torch.isfinite(result.losses).all()


def test_metrics_by_hand() -> None:
    batch = {name: np.zeros((1, 2)) for name in FIELDS}
    batch["mask"] = np.ones((1, 2), np.bool_)
    batch["logprob"] = np.log([[0.5, 0.25]])
    batch["behaviour"] = np.log([[0.25, 0.25]])
    batch["entropy"] = np.array([[1.0, 2.0]])
    algorithm = make_algorithm("grpo", {"kl_coefficient": 1.0})
    result = policy_loss(flat(batch, algorithm), algorithm)
    # KL(old || new): r - 1 - log r with r = 2 on one token and 1 on the other
    assert result.sums["policy/approx_kl"] == pytest.approx(1 - np.log(2))
    assert result.sums["policy/entropy"] == 3.0
    # k3 to a reference of probability 1: e^-x + x - 1
    expected = (2 + np.log(0.5) - 1) + (4 + np.log(0.25) - 1)
    assert result.sums["policy/kl_reference"] == pytest.approx(expected)
    assert result.minima["policy/ratio_min"] == pytest.approx(1.0)


def test_a_kl_term_without_reference_raises() -> None:
    batch = dict.fromkeys(FIELDS, np.zeros((1, 1))) | {"mask": np.ones((1, 1), np.bool_)}
    algorithm = replace(make_algorithm("grpo", {}), kl_coefficient=0.1)
    with pytest.raises(ValueError, match="no reference"):
        policy_loss(flat(batch, algorithm, reference=False), algorithm)


def test_no_trained_token_is_no_loss_and_no_metric() -> None:
    batch = {name: np.zeros((1, 1)) for name in FIELDS} | {"mask": np.zeros((1, 1), np.bool_)}
    for algorithm in (make_algorithm("grpo", {}), make_algorithm("gspo", {})):
        result = policy_loss(flat(batch, algorithm), algorithm)
        assert result.losses.shape == (0,)
        assert result.maxima == {}


@given(
    coefficient=st.floats(1e-4, 10),
    measured=st.floats(-1, 5),
    target=st.floats(0.01, 2),
    horizon=st.floats(100, 1e5),
    trajectories=st.integers(1, 400),
)
def test_a_coefficient_follows_the_divergence(
    coefficient: float, measured: float, target: float, horizon: float, trajectories: int
) -> None:
    adapted = adapted_coefficient(coefficient, measured, target, horizon, trajectories)
    miss = sorted((-0.2, measured / target - 1, 0.2))[1]
    assert adapted == pytest.approx(coefficient * (1 + miss * trajectories / horizon))
    assert adapted > 0
    assert adapted_coefficient(coefficient, target, target, horizon, trajectories) == coefficient
