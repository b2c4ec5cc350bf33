"""The facts that a verdict rests on: shares of groups and episodes, each with its 95% interval.

Groups and episodes of one task are alike, so intervals are clustered by task. What could not be
measured is not there.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from turnwise.evaluation.evaluate import successes_by_task
from turnwise.evaluation.intervals import clustered, wilson
from turnwise.rewards.answer import states
from turnwise.types import Group, Trajectory
from turnwise_trust.audit.attempts import graded, in_time
from turnwise_trust.preflight.rehearsal import Rehearsal

ANSWER_WORDS = 20
"""Words of an answer up to which it can hold no reasoning."""
EQUAL = 1e-9
"""Rewards that are nearer to each other than this are equal."""


class Rate(NamedTuple):
    """A share, or another figure, with its interval. Example: Rate(0.5, 0.4, 0.6, 90)."""

    figure: float
    low: float
    high: float
    number: int
    """The number of what was counted."""


def exactly(figure: float, count: int = 1) -> Rate:
    """A figure that is no estimate."""
    return Rate(figure, figure, figure, count)


Facts = Mapping[str, Rate]


def facts_of(played: Rehearsal) -> dict[str, Rate]:
    """All that is known, by name; a name that is not there could not be measured."""
    found = dict(_facts(played))
    return {name: rate for name, rate in found.items() if rate.number}


def _facts(played: Rehearsal) -> Iterator[tuple[str, Rate]]:
    episodes, train = played.episodes, played.recipe.train
    yield "groups", exactly(len(played.groups))
    yield "signal", _signal(played)
    yield "mixed successes", _of_groups(played.groups, _has_both_outcomes)
    yield "success", _success(episodes)
    yield "solved", _solved(episodes)
    yield "ungraded", _share(episodes, lambda one: one.reward is None)
    yield "malformed", _share(episodes, malformed)
    yield "truncated", _share(episodes, truncated)
    yield "in form", _success([one for one in episodes if not (malformed(one) or truncated(one))])
    yield "stated", _stated(episodes)
    yield "turns", exactly(median(len(one.turns) for one in episodes), len(episodes))
    yield "calls", exactly(median(one.tool_calls for one in episodes), len(episodes))
    yield "turn signal", _of_groups(played.groups, _parts_differ)
    yield "tools", exactly(len(played.runner.environment.tools()))
    yield "answers alone", _share(episodes, _answers_alone)
    yield (
        "labels",
        exactly(sum("answers" in task.secret for task in played.train) / len(played.train)),
    )
    yield "idle", _of_tasks(played.idle)
    yield "oracle", _of_tasks(played.oracle)
    yield "agreement", _agreement(played)
    yield "beyond chance", _beyond_chance(played)
    yield "groups of a step", exactly(train.tasks_per_step)


def malformed(one: Trajectory) -> bool:
    """Whether the last turn could not be read: the agent did not get over it."""
    return bool(one.turns) and one.turns[-1].action.error is not None


def truncated(one: Trajectory) -> bool:
    """Whether a budget ended the episode, and not the agent."""
    return one.outcome.truncated and not malformed(one)


def _share(episodes: Sequence[Trajectory], holds: Callable[[Trajectory], bool]) -> Rate:
    return _by_task([(one.task.id, holds(one)) for one in episodes])


def _by_task(found: Sequence[tuple[str, bool]]) -> Rate:
    """The share of what holds, clustered by task."""
    tasks: dict[str, list[bool]] = defaultdict(list)
    for task, holds in found:
        tasks[task].append(holds)
    if not found:
        return exactly(0, 0)
    interval = clustered([sum(one) for one in tasks.values()], [len(one) for one in tasks.values()])
    return Rate(sum(holds for _, holds in found) / len(found), *interval, len(found))


def _success(episodes: Sequence[Trajectory]) -> Rate:
    return _by_task([(one.task.id, one.verdict.success) for one in graded(episodes) if one.verdict])


def _solved(episodes: Sequence[Trajectory]) -> Rate:
    """The share of tasks that any episode has solved."""
    counts = successes_by_task(episodes).values()
    return _by_itself([successes > 0 for grades, successes in counts if grades])


def _of_tasks(episodes: Sequence[Trajectory]) -> Rate:
    """Success of scripts that play a task once."""
    return _by_itself([one.verdict.success for one in in_time(episodes) if one.verdict])


def _by_itself(found: Sequence[bool]) -> Rate:
    """The share of what holds, where none is like another."""
    share = sum(found) / max(len(found), 1)
    return Rate(share, *wilson(sum(found), len(found)), len(found))


def _signal(played: Rehearsal) -> Rate:
    """The share of groups with different rewards. A group of one is compared with all others: then
    that of the episodes whose reward is not the most frequent one."""
    if played.recipe.train.group_size == 1:
        rewards = [(one.task.id, one.reward) for one in played.episodes if one.reward is not None]
        values = [round(reward, 9) for _, reward in rewards]
        usual = [value for value, _ in Counter(values).most_common(1)]
        return _by_task([(task, round(reward, 9) not in usual) for task, reward in rewards])
    player = played.runner.player
    compared = played.groups if player is None else player.compared(played.groups)
    return _of_groups(compared, _rewards_differ)


def _of_groups(groups: Sequence[Group], holds: Callable[[Group], bool]) -> Rate:
    """The share of the groups that have episodes to compare."""
    found = [group for group in groups if len(group.graded) > 1]
    return _by_task([(group.trajectories[0].task.id, holds(group)) for group in found])


def _rewards_differ(group: Group) -> bool:
    return _differ([one.reward for one in group.graded if one.reward is not None])


def _differ(numbers: Sequence[float]) -> bool:
    return bool(numbers) and max(numbers) - min(numbers) > EQUAL


def _has_both_outcomes(group: Group) -> bool:
    """Whatever the rewards are."""
    return len({one.verdict.success for one in group.graded if one.verdict}) > 1


def _parts_differ(group: Group) -> bool:
    """Whether numbers of turns, or parts of the verdict, do."""
    numbers: dict[str, list[float]] = defaultdict(list)
    for one in group.graded:
        rewards, verdict = one.turn_rewards, one.verdict
        numbers["turn rewards"] += [] if rewards is None else [float(rewards.sum())]
        for name, values in verdict.turn_parts.items() if verdict else ():
            numbers[f"turns {name}"].append(sum(values))
        for name, value in verdict.parts.items() if verdict else ():
            numbers[name].append(value)
    return any(_differ(values) for values in numbers.values())


def _answers_alone(one: Trajectory) -> bool:
    """Whether an episode is an answer and nothing else: no call, no thought, no second turn."""
    action = one.turns[0].action if len(one.turns) == 1 else None
    if action is None or action.answer is None or action.thought.strip():
        return False
    return len(action.answer.split()) <= ANSWER_WORDS


def _stated(episodes: Sequence[Trajectory]) -> Rate:
    """The share of malformed episodes in whose text an accepted answer stands, where a task has a
    list of those."""
    found = []
    for one in episodes:
        answers = one.task.secret.get("answers")
        if malformed(one) and isinstance(answers, list | tuple):
            written = "\n".join(turn.action.text for turn in one.turns)
            found.append((one.task.id, states(written, [str(answer) for answer in answers])))
    return _by_task(found)


def _agreement(played: Rehearsal) -> Rate:
    return _by_itself([first == second for first, second in _verdicts(played)])


def _beyond_chance(played: Rehearsal) -> Rate:
    """Cohen's kappa of verdicts that were given twice: 0 where they agree no more than two coins
    of the same means, 1 where they always do. Not there where all verdicts are alike."""
    pairs = _verdicts(played)
    count = max(len(pairs), 1)
    first, second = (sum(pair[place] for pair in pairs) / count for place in (0, 1))
    chance = first * second + (1 - first) * (1 - second)
    if chance > 1 - EQUAL:
        return exactly(0, 0)
    agreed = _agreement(played)
    kappa = [(share - chance) / (1 - chance) for share in agreed[:3]]
    return Rate(kappa[0], kappa[1], kappa[2], len(pairs))


def _verdicts(played: Rehearsal) -> list[tuple[bool, bool]]:
    """Verdicts of the same actions, given twice."""
    return [
        (first.verdict.success, second.verdict.success)
        for first, second in played.again
        if first.verdict is not None and second.verdict is not None
    ]
