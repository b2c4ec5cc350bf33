"""Why a step taught nothing, from its metrics alone."""

import pytest

from turnwise.monitor import no_signal
from turnwise.monitor.no_signal import Expected, offline_reason, reason, summary

EXPECTED = Expected(learning_rate=1e-3, logprob_gap=0.001)
TAUGHT = {
    "rollout/episodes": 8.0,
    "rollout/ungraded": 0.0,
    "rollout/success": 0.5,
    "rollout/malformed": 0.1,
    "rollout/answer_cut": 0.0,
    "rollout/no_room": 0.0,
    "groups/all_equal": 0.5,
    "policy/updates": 1.0,
    "policy/skipped_updates": 0.0,
    "policy/learning_rate": 1e-3,
    "policy/gradient_norm": 0.3,
    "policy/weights_changed": 0.97,
    "policy/clip_fraction": 0.1,
    "policy/logprob_gap": 1e-6,
}
NO_UPDATE = {name: value for name, value in TAUGHT.items() if "policy/" not in name} | {
    "policy/updates": 0.0,
    "policy/skipped_updates": 0.0,
}
ALONE = {name: value for name, value in NO_UPDATE.items() if name != "groups/all_equal"}
EQUAL = NO_UPDATE | {"groups/all_equal": 1.0}
FAILED = EQUAL | {"rollout/success": 0.0}
WITHOUT = TAUGHT | {"policy/gradient_norm": 0.0, "policy/weights_changed": 0.0}
STILL = TAUGHT | {"policy/weights_changed": 0.002}


@pytest.mark.parametrize(
    ("metrics", "why"),
    [
        (TAUGHT, None),
        (NO_UPDATE | {"rollout/ungraded": 8.0}, no_signal.UNGRADED),
        (ALONE, no_signal.ALONE),
        (ALONE | {"rollout/ungraded": 5.0}, no_signal.MOSTLY_UNGRADED),
        (EQUAL, no_signal.ALL_EQUAL),
        (EQUAL | {"rollout/success": 1.0}, no_signal.ALL_SOLVED),
        (FAILED, no_signal.ALL_FAILED),
        (FAILED | {"outcome/truncated_turns": 8.0}, no_signal.ALL_TRUNCATED),
        (
            FAILED | {"outcome/truncated_turns": 5.0, "outcome/truncated_time": 3.0},
            no_signal.ALL_TRUNCATED,
        ),
        (FAILED | {"outcome/truncated_turns": 7.0}, no_signal.ALL_FAILED),
        (
            FAILED | {"outcome/truncated_turns": 7.0, "rollout/ungraded": 1.0},
            no_signal.ALL_TRUNCATED,
        ),
        (FAILED | {"rollout/no_room": 1.0}, no_signal.NO_ROOM),
        (FAILED | {"rollout/no_room": 0.9}, no_signal.ALL_FAILED),
        (FAILED | {"rollout/answer_cut": 0.5}, no_signal.ANSWERS_CUT),
        (FAILED | {"rollout/answer_cut": 0.4}, no_signal.ALL_FAILED),
        (FAILED | {"rollout/malformed": 1.0}, no_signal.ALL_MALFORMED),
        (NO_UPDATE | {"batch/left_out": 1.0}, no_signal.LEFT_OUT),
        (NO_UPDATE, no_signal.UNTRAINED),
        (NO_UPDATE | {"policy/skipped_updates": 1.0}, None),  # the run tells of it by itself
        (WITHOUT, no_signal.NO_GRADIENT),
        (WITHOUT | {"groups/all_equal": 1.0, "rollout/success": 0.0}, no_signal.ALL_FAILED),
        (WITHOUT | {"groups/all_equal": 1.0, "policy/clip_fraction": 1.0}, no_signal.CLIPPED),
        (WITHOUT | {"policy/clip_fraction": 1.0}, no_signal.CLIPPED),
        (WITHOUT | {"correction/rejected_fraction": 1.0}, no_signal.REJECTED),
        (WITHOUT | {"correction/rejected_fraction": 1.0, "staleness/max": 2}, no_signal.TOO_OLD),
        (WITHOUT | {"policy/filtered_fraction": 1.0}, no_signal.HELD_BACK),
        (TAUGHT | {"policy/clip_fraction": 1.0}, None),  # another term has a gradient
        (STILL, no_signal.UNMOVED),
        (STILL | {"policy/learning_rate": 1e-5}, no_signal.LOW_RATE),
        (TAUGHT | {"policy/learning_rate": 1e-5}, None),
        (TAUGHT | {"policy/weights_changed_rounded": 0.0}, no_signal.ROUNDED_AWAY),
        (TAUGHT | {"policy/weights_changed_rounded": 0.02}, None),
        (TAUGHT | {"policy/logprob_gap": 0.01}, no_signal.UNDELIVERED),
        ({"rollout/episodes": 8.0}, None),  # a critic is trained alone
    ],
)
def test_each_reason_has_its_sentence(metrics: dict[str, float], why: str | None) -> None:
    assert reason(metrics, EXPECTED) == why


def test_steps_sampled_ahead_may_differ_from_the_learner() -> None:
    assert reason(TAUGHT | {"policy/logprob_gap": 0.2}, Expected(1e-3)) is None


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
    told = [(1, "slow"), (2, "equal"), (3, "equal"), (5, "equal"), (6, "slow")]
    found = summary(7, [{"step": step, "reason": why} for step, why in told])
    assert found == {
        "steps": 7,
        "without": 5,
        "reasons": {"equal": 3, "slow": 2},
        "when": {"equal": "2-3, 5", "slow": "1, 6"},
    }
    assert list(found["reasons"]) == ["equal", "slow"]
    assert summary(0, []) == {"steps": 0, "without": 0, "reasons": {}, "when": {}}
