"""The names that frameworks give to numbers of a step, and turnwise's for the same.

The meaning is the same where the name is; else the name is one of these, which turnwise's own logs
have no number for:

    rollout/truncated        share of episodes that a budget cut off
    rollout/ungraded_share   share of episodes without a grade
    groups/all_failed, groups/all_solved   shares of groups
    groups/equal_reward      mean reward of groups whose rewards are all equal
    batch/all_equal          1 where all rewards of a step are equal
    reward/disagreement      share of a group's repeated texts that get another reward
    repetition/words         share of a text's 4-grams of words that it has had before
    policy/mismatch_kl       divergence of the learner's policy from the one that sampled, nats

Read from: TRL 1.16 (`trainer/grpo_trainer.py`), verl 0.8 (`trainer/ppo/metric_utils.py`,
`workers/actor/dp_actor.py`), prime-rl 0.8 (`orchestrator/metrics.py`, `trainer/rl/train.py`).
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

TRL = {
    r"reward": "reward/mean",
    r"reward_std": "reward/group_std",  # a group's, in the mean
    r"frac_reward_zero_std": "groups/all_equal",
    r"rewards/([^/]+)(?:/mean)?": "reward/parts/{}",
    r"completions/mean_length|completion_length": "rollout/length_mean",
    r"completions/max_length": "rollout/length_max",
    r"completions/clipped_ratio": "rollout/truncated",
    r"tools/call_frequency": "rollout/tool_calls",
    r"tools/failure_frequency": "1-rollout/tool_success",
    r"grad_norm": "policy/gradient_norm",
    r"learning_rate": "policy/learning_rate",
    r"loss": "policy/loss",
    r"entropy": "policy/entropy",
    r"kl": "policy/kl_reference",
    r"clip_ratio(?:/region_mean)?": "policy/clip_fraction",
    r"sampling/sampling_logp_difference/mean": "policy/logprob_gap",
    r"sampling/importance_sampling_ratio/mean": "correction/weight",
    r"eval_reward|eval/reward": "validation/reward",
}
VERL = {
    r"critic/score/mean": "reward/mean",  # from critic/rewards a penalty may be taken off
    r"actor/entropy(?:_loss)?": "policy/entropy",
    r"actor/grad_norm": "policy/gradient_norm",
    r"actor/lr": "policy/learning_rate",
    r"actor/pg_loss": "policy/loss",
    r"actor/pg_clipfrac": "policy/clip_fraction",
    r"actor/ppo_kl": "policy/approx_kl",
    r"actor/kl_loss|actor/reward_kl_penalty": "policy/kl_reference",
    r"response_length/mean": "rollout/length_mean",
    r"response_length/max": "rollout/length_max",
    r"response_length/clip_ratio": "rollout/truncated",
    r"num_turns/mean": "rollout/turns",
    r"tool_call_counts/mean": "rollout/tool_calls",
    r"rollout_corr/rollout_is_mean": "correction/weight",
    r"rollout_corr/kl": "policy/mismatch_kl",
    r"critic/vf_explained_var": "critic/explained_variance",
    r"val-core/.*/mean@\d+|val/test_score/.*": "validation/reward",
}
PRIME = {
    r"train/agg/all/[^/]+/reward/mean": "reward/mean",
    r"train/agg/all/[^/]+/(?:metrics|rewards)/([^/]+)/mean": "reward/parts/{}",
    r"train/agg/all/[^/]+/is_truncated/mean": "rollout/truncated",
    r"train/agg/all/[^/]+/has_error/mean": "rollout/ungraded_share",
    r"train/agg/all/[^/]+/num_output_tokens/mean": "rollout/length_mean",
    r"train/agg/all/[^/]+/num_turns/mean": "rollout/turns",
    r"train/agg/all/[^/]+/solved_none": "groups/all_failed",
    r"train/agg/all/[^/]+/solved_all": "groups/all_solved",
    r"eval/[^/]+/effective/[^/]+/avg@\d+": "validation/reward",
    r"optim/grad_norm": "policy/gradient_norm",
    r"optim/lr": "policy/learning_rate",
    r"loss/mean": "policy/loss",
    r"entropy/all/mean": "policy/entropy",
    r"mismatch_kl/all/mean": "policy/mismatch_kl",
    r"off_policy/mean": "staleness/mean",
    r"off_policy/max": "staleness/max",
}
OWN = {
    r"((?:reward|groups|batch|rollout|outcome|repetition)/.+)": "{}",
    r"((?:staleness|policy|correction|validation)/.+)": "{}",
}
STEP_NAMES = (
    *("training/global_step", "train/global_step", "trainer/global_step", "global_step"),
    *("step", "Step", "_step"),
)
"""Names of the step, the surest first: a tracker's own counts its rows."""
TABLES = {"verl": VERL, "prime-rl": PRIME, "trl": TRL, "turnwise": OWN}
"""Tables by framework: the first one that knows a name decides it."""


class Translator:
    """Translates names, and remembers whose they were."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, str] | None] = {}
        self._votes = Counter[str]()

    def __call__(self, values: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
        """The numbers that have a name here, under it."""
        for name, value in values.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if name not in self._known:
                self._known[name] = _translated(name)
            if (found := self._known[name]) is not None:
                framework, ours = found
                self._votes[framework] += 1
                inverse = ours.startswith("1-")
                yield ours.removeprefix("1-"), 1 - value if inverse else float(value)
        yield from _together(values)

    @property
    def framework(self) -> str:
        """The framework whose names most of them were; "" without any."""
        return self._votes.most_common(1)[0][0] if self._votes else ""


def _translated(name: str) -> tuple[str, str] | None:
    """The framework and turnwise's name of a number; None for one that no rule knows."""
    for framework, table in TABLES.items():
        for pattern, ours in table.items():
            for spelled in (name, name.removeprefix("train/")):
                if found := re.fullmatch(pattern, spelled):
                    return framework, ours.format(*found.groups())
    return None


def _together(values: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Numbers that follow from others of a log."""
    low, high = values.get("critic/score/min"), values.get("critic/score/max")
    spread = values.get("reward_std", values.get("train/reward_std"))
    if low is not None and high is not None:
        yield "batch/all_equal", float(low == high)
    elif isinstance(spread, int | float):
        yield "batch/all_equal", float(spread == 0)
