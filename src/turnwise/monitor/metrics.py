"""Numbers that describe one step's rollouts, under the names the field uses, and their meanings.

What the update measures (`policy/…`) comes from the learner. Times are not here: they are kept
apart so that the metrics of two runs with the same seed are the same, byte for byte. The page
docs/reference/metrics.md is made from `metrics.md` beside this file.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from importlib import resources
from statistics import fmean, pstdev

from turnwise.capture import UNTRAINED, Capture, total
from turnwise.monitor.repetition import repetition_metrics
from turnwise.types import Group, Trajectory


def rollout_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Rewards, outcomes, lengths and tool use of one step. Ungraded episodes are counted apart, and
    what nothing was measured for is absent: a mean reward without a grade, how far rewards are
    apart in groups of which none has two grades."""
    members = [member for group in groups for member in group.trajectories]
    graded = [member for group in groups for member in group.graded]
    rewards = [member.reward for member in graded if member.reward is not None]
    spreads = [_spread(group) for group in groups if len(group.graded) > 1]
    lengths = [int(m.tokens.mask.sum()) for m in members]
    means: dict[str, Sequence[float]] = {
        "reward/mean": rewards,
        "reward/group_std": spreads,
        "groups/all_equal": [spread == 0.0 for spread in spreads],
        "rollout/success": [m.verdict is not None and m.verdict.success for m in graded],
        "rollout/turns": [len(m.turns) for m in members],
        "rollout/tool_calls": [m.tool_calls for m in members],
        "rollout/calling": [m.tool_calls > 0 for m in members],
        "rollout/tool_success": [ok for m in members for ok in _worked(m)],
        "rollout/recovered": [
            any(after) for after in map(_after_failure, members) if after is not None
        ],
        "rollout/answer_cut": [m.answer_cut for m in graded],
        "rollout/no_room": [m.no_room for m in graded],
        "rollout/malformed": [t.action.error is not None for m in members for t in m.turns],
        "rollout/length_mean": lengths,
    }
    metrics = {
        **{name: float(fmean(values)) for name, values in means.items() if values},
        "rollout/episodes": float(len(members)),
        "rollout/ungraded": float(len(members) - len(graded)),
        "rollout/tokens": float(sum(len(m.tokens) for m in members)),
        "rollout/tokens_sampled": float(sum(lengths)),
        "rollout/length_max": float(max(lengths, default=0)),
    }
    if rewards:
        metrics["reward/std"] = pstdev(rewards)
    contexts = [len(m.tokens.contexts) for m in members]
    if max(contexts, default=1) > 1:
        metrics["rollout/contexts"] = fmean(contexts)
    captures = [m.capture for m in members if m.capture is not None]
    metrics |= _captured(captures) | _by_role(captures, graded)
    outcomes = Counter(str(m.outcome) for m in members)
    beside = [member for group in groups for member in group.baseline_rollouts]
    metrics |= _beside("baseline_rollouts", beside)
    found = [member.reward for member in beside if member.reward is not None]
    metrics |= {"baseline_rollouts/reward": fmean(found)} if found else {}
    metrics |= _beside("oversampled", [one for group in groups for one in group.oversampled])
    metrics |= repetition_metrics(groups) | _parts(graded) | _by_environment(members)
    return metrics | {f"outcome/{name}": float(count) for name, count in sorted(outcomes.items())}


def _captured(captures: Sequence[Capture]) -> dict[str, float]:
    """Requests of an agent of the user's own, and its sampled tokens; empty without one."""
    if not captures:
        return {}
    found = total(captures)
    return {
        "agent/calls": found.calls / len(captures),
        "agent/refused": float(sum(found.refused.values())),
        "agent/retried": float(found.retried),
        "agent/undelivered": float(found.dropped.get("undelivered", 0)),
        "agent/coverage": found.coverage,
    }


def _by_role(captures: Sequence[Capture], graded: Sequence[Trajectory]) -> dict[str, float]:
    """Calls, sampled tokens, coverage and reward of each role of an agent; a role that is not
    trained has neither coverage nor a reward. Empty where there are no roles."""
    metrics: dict[str, float] = {}
    found = total(captures)
    for name, counts in sorted(found.roles.items()):
        metrics[f"role/{name}/calls"] = counts["calls"] / len(captures)
        metrics[f"role/{name}/tokens_sampled"] = float(counts["sampled"])
        if set(counts) & set(UNTRAINED):
            continue
        metrics[f"role/{name}/coverage"] = found.coverage_of(name)
        rewards = [
            one.verdict.roles.get(name, one.verdict.reward)
            for one in graded
            if one.verdict is not None and any(turn.role == name for turn in one.turns)
        ]
        if rewards:
            metrics[f"role/{name}/reward"] = fmean(rewards)
    return metrics


def _by_environment(members: Sequence[Trajectory]) -> dict[str, float]:
    """Share of the episodes, success and reward of each environment in joint RL, where tasks are
    labelled with theirs."""
    found: dict[str, list[Trajectory]] = defaultdict(list)
    for member in members:
        if "environment" in member.task.info:
            found[str(member.task.info["environment"])].append(member)
    metrics: dict[str, float] = {}
    for name, own in sorted(found.items()):
        metrics[f"environment/{name}/share"] = len(own) / len(members)
        verdicts = [
            one.verdict for one in own if one.reward is not None and one.verdict is not None
        ]
        if verdicts:
            metrics[f"environment/{name}/success"] = fmean(one.success for one in verdicts)
            metrics[f"environment/{name}/reward"] = fmean(one.reward for one in verdicts)
    return metrics


def _spread(group: Group) -> float:
    return pstdev([member.reward for member in group.graded if member.reward is not None])


def _parts(graded: Sequence[Trajectory]) -> dict[str, float]:
    found: dict[str, list[float]] = defaultdict(list)
    for member in graded:
        if member.verdict is not None:
            for name, value in member.verdict.parts.items():
                found[f"reward/parts/{name}"].append(value)
            for name, values in member.verdict.turn_parts.items():
                found[f"reward/turn_parts/{name}"].append(float(sum(values)))
        if member.turn_rewards is not None:
            found["reward/turns"].append(float(member.turn_rewards.sum()))
    return {name: float(fmean(values)) for name, values in sorted(found.items())}


def _beside(name: str, members: Sequence[Trajectory]) -> dict[str, float]:
    """The cost of episodes, if any, played beside the groups, or begun in excess."""
    if not members:
        return {}
    sampled = float(sum(int(m.tokens.mask.sum()) for m in members))
    return {f"{name}/episodes": float(len(members)), f"{name}/tokens_sampled": sampled}


def _worked(member: Trajectory) -> list[bool]:
    """List for each tool call whether it was no mistake of the agent's."""
    steps = [turn.step for turn in member.turns if turn.step is not None]
    return [result.ok for step in steps for result in step.results]


def _after_failure(member: Trajectory) -> list[bool] | None:
    """List for each result after a first failed call whether it worked; None without one."""
    worked = _worked(member)
    return worked[worked.index(False) + 1 :] if False in worked else None


def step_text(metrics: Mapping[str, float], why: str | None) -> str:
    """Write a step's progress: only what was measured, and why it taught nothing."""
    words = []
    if "reward/mean" in metrics:
        words.append(f"reward {metrics['reward/mean']:.2f}")
    if "rollout/turns" in metrics:
        words.append(f"turns {metrics['rollout/turns']:.1f}")
    if why is not None:
        words.append(f"nothing learned: {why.partition(': ')[0]}")
    elif metrics.get("policy/updates") == 0:
        words.append("no update")
    elif "policy/weights_changed" in metrics:
        words.append(f"weights changed {metrics['policy/weights_changed']:.0%}")
    return "  ".join(words)


def finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """Leave out NaN and infinity: the loss of an update that was skipped for it."""
    return {name: value for name, value in metrics.items() if math.isfinite(value)}


ROW = re.compile(r"^- (?P<names>`[^`]+`(?:, `[^`]+`)*): (?P<meaning>.+)$", re.MULTILINE)


def page() -> str:
    """The whole page on metrics, in Markdown."""
    return (resources.files("turnwise.monitor") / "metrics.md").read_text(encoding="utf-8")


def meanings() -> dict[str, str]:
    """The meaning of each name, without marks. `NAME` in a name stands for any word."""
    return {
        name: row["meaning"].replace("`", "")
        for row in ROW.finditer(page())
        for name in re.findall(r"`([^`]+)`", row["names"])
    }
