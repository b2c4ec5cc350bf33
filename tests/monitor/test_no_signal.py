"""Why a step taught nothing, from its metrics alone."""

import pytest

from turnwise.monitor import no_signal
from turnwise.monitor.no_signal import offline_reason, reason, summary

TAUGHT = {
    "rollout/episodes": 8.0,
    "rollout/ungraded": 0.0,
    "groups/all_equal": 0.5,
    "policy/updates": 1.0,
    "policy/skipped_updates": 0.0,
    "policy/gradient_norm": 0.3,
    "policy/weights_changed": 0.97,
    "policy/clip_fraction": 0.1,
}
NO_UPDATE = {name: TAUGHT[name] for name in list(TAUGHT)[:5]} | {"policy/updates": 0.0}
WITHOUT = {"policy/gradient_norm": 0.0, "policy/weights_changed": 0.0}


@pytest.mark.parametrize(
    ("metrics", "why"),
    [
        (TAUGHT, None),
        (NO_UPDATE | {"rollout/ungraded": 8.0}, no_signal.UNGRADED),
        (NO_UPDATE | {"groups/all_equal": 1.0}, no_signal.ALL_EQUAL),
        (NO_UPDATE | {"batch/left_out": 1.0}, no_signal.LEFT_OUT),
        (NO_UPDATE, no_signal.UNTRAINED),
        (NO_UPDATE | {"policy/skipped_updates": 1.0}, None),  # the run tells of it by itself
        (TAUGHT | WITHOUT, no_signal.NO_GRADIENT),
        (TAUGHT | WITHOUT | {"policy/clip_fraction": 1.0}, no_signal.CLIPPED),
        (TAUGHT | WITHOUT | {"correction/rejected_fraction": 1.0}, no_signal.REJECTED),
        (TAUGHT | WITHOUT | {"policy/filtered_fraction": 1.0}, no_signal.HELD_BACK),
        (TAUGHT | {"policy/clip_fraction": 1.0}, None),  # another term has a gradient
        (TAUGHT | {"policy/weights_changed": 0.002}, no_signal.UNMOVED),
        ({"rollout/episodes": 8.0}, None),  # a critic is trained alone
    ],
)
def test_each_reason_has_its_sentence(metrics: dict[str, float], why: str | None) -> None:
    assert reason(metrics) == why


def test_nothing_to_compare() -> None:
    alone = {name: value for name, value in NO_UPDATE.items() if name != "groups/all_equal"}
    assert reason(alone | {"rollout/ungraded": 5.0}) == no_signal.ALONE


@pytest.mark.parametrize("learner", ["sft", "preferences"])
def test_stages_without_rollouts(learner: str) -> None:
    def step(skipped: float, norm: float, changed: float) -> str | None:
        names = ("skipped_updates", "gradient_norm", "weights_changed")
        values = zip(names, (skipped, norm, changed), strict=True)
        return offline_reason({f"{learner}/{name}": value for name, value in values}, learner)

    assert step(0, 0.3, 0.9) is None
    assert step(0, 0.0, 0.0) == no_signal.NO_GRADIENT
    assert step(0, 0.3, 0.001) == no_signal.UNMOVED
    assert step(1, float("nan"), 0.0) is None


def test_a_run_is_summed_up() -> None:
    equal = NO_UPDATE | {"groups/all_equal": 1.0}
    found = summary([equal, TAUGHT, equal, NO_UPDATE | {"rollout/ungraded": 8.0}])
    reasons = {no_signal.ALL_EQUAL: 2, no_signal.UNGRADED: 1}
    assert found == {"steps": 4, "without": 3, "reasons": reasons}
    assert summary([]) == {"steps": 0, "without": 0, "reasons": {}}
