"""Numbers that describe one step's rollouts, under the names the field uses.

What the update measures (`policy/…`) comes from the learner. Times are not here: they are kept
apart so that the metrics of two runs with the same seed are the same, byte for byte.
"""

from collections import Counter
from collections.abc import Sequence
from statistics import fmean, pstdev

from turnwise.monitor.repetition import repetition_metrics
from turnwise.types import Group, Trajectory


def rollout_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Rewards, outcomes, lengths and tool use of one step. Ungraded episodes are counted apart."""
    members = [member for group in groups for member in group.trajectories]
    graded = [member for group in groups for member in group.graded]
    rewards = [member.reward for member in graded if member.reward is not None]
    spreads = [_spread(group) for group in groups if group.graded]
    lengths = [int(m.tokens.mask.sum()) for m in members]
    metrics = {
        "reward/mean": fmean(rewards or [0.0]),
        "reward/std": pstdev(rewards or [0.0]),
        "reward/group_std": fmean(spreads or [0.0]),
        "groups/all_equal": fmean([spread == 0.0 for spread in spreads] or [0.0]),
        "rollout/success": fmean(
            [m.verdict is not None and m.verdict.success for m in graded] or [0]
        ),
        "rollout/episodes": float(len(members)),
        "rollout/ungraded": float(len(members) - len(graded)),
        "rollout/turns": fmean([len(m.turns) for m in members] or [0]),
        "rollout/tool_calls": fmean([m.tool_calls for m in members] or [0]),
        "rollout/tool_success": _tool_success(groups),
        "rollout/malformed": fmean(
            [turn.action.error is not None for m in members for turn in m.turns] or [0]
        ),
        "rollout/tokens": float(sum(len(m.tokens) for m in members)),
        "rollout/tokens_sampled": float(sum(lengths)),
        "rollout/length_mean": fmean(lengths or [0]),
        "rollout/length_max": float(max(lengths, default=0)),
    }
    contexts = [len(m.tokens.contexts) for m in members]
    if max(contexts, default=1) > 1:
        metrics["rollout/contexts"] = fmean(contexts)
    outcomes = Counter(str(m.outcome) for m in members)
    metrics |= _beside([member for group in groups for member in group.beside])
    metrics |= _spare([member for group in groups for member in group.spare])
    metrics |= repetition_metrics(groups)
    return metrics | {f"outcome/{name}": float(count) for name, count in sorted(outcomes.items())}


def _spread(group: Group) -> float:
    return pstdev([member.reward for member in group.graded if member.reward is not None])


def _beside(members: Sequence[Trajectory]) -> dict[str, float]:
    """What the episodes cost that were played beside the groups, where there are any."""
    if not members:
        return {}
    return {
        "beside/episodes": float(len(members)),
        "beside/tokens_sampled": float(sum(int(m.tokens.mask.sum()) for m in members)),
        "beside/reward": fmean([m.reward for m in members if m.reward is not None] or [0.0]),
    }


def _spare(members: Sequence[Trajectory]) -> dict[str, float]:
    """What the episodes cost that were begun in excess and not used, where there are any."""
    if not members:
        return {}
    return {
        "spare/episodes": float(len(members)),
        "spare/tokens_sampled": float(sum(int(m.tokens.mask.sum()) for m in members)),
    }


def _tool_success(groups: Sequence[Group]) -> float:
    results = [
        result.ok
        for group in groups
        for member in group.trajectories
        for turn in member.turns
        if turn.step is not None
        for result in turn.step.results
    ]
    return fmean(results or [0.0])
