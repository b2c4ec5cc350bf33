"""The costs of episodes and of the run that would follow, at the speed that was measured."""

from collections.abc import Iterator
from statistics import fmean

from turnwise.storage.audits import Finding
from turnwise_trust.preflight.facts import Facts
from turnwise_trust.preflight.rehearsal import Rehearsal
from turnwise_trust.preflight.updating import Update


def costs(played: Rehearsal, facts: Facts, update: Update) -> Iterator[Finding]:
    """Findings that nothing depends on: tokens and seconds."""
    episodes, train = played.episodes, played.recipe.train
    each = episode_seconds(played)
    sampled = fmean(int(one.tokens.mask.sum()) for one in episodes)
    tokens = fmean(len(one.tokens) for one in episodes)
    yield Finding("tokens of an episode", tokens, note=f"{sampled:.0f} of them sampled, on average")
    note = "a step's wall-clock time by its episodes, which are played side by side"
    yield Finding("seconds of an episode", each, note=note)
    signal = facts["signal"].figure if "signal" in facts else 0.0
    if signal:
        group = train.group_size * each / signal
        spent = f"{train.group_size * tokens / signal:,.0f} tokens"
        note = f"{spent}; a group is informative where its rewards differ"
        yield Finding("seconds of an informative group", group, note=note)
    yield from _run(played, each, tokens, update)


def episode_seconds(played: Rehearsal) -> float:
    """The time of an episode among those of a step, from the waves that are most like one."""
    most = max(len(wave.groups) for wave in played.waves)
    alike = [wave.seconds for wave in played.waves if len(wave.groups) == most]
    return fmean(alike) / (most * played.recipe.train.group_size)


def _run(played: Rehearsal, each: float, tokens: float, update: Update) -> Iterator[Finding]:
    train, evaluation = played.recipe.train, played.recipe.evaluation
    sampling = each * train.tasks_per_step * train.group_size
    learning = update.seconds or 0.0
    most = max(len(wave.groups) for wave in played.waves)
    waves = "" if most == train.tasks_per_step else f" with {most} groups; rather less at once"
    said = f"without the update: {update.note}"
    if update.seconds:
        said = f"{learning:.2g} s of updating ({update.note})"
    yield Finding(
        "seconds of a step",
        sampling + learning,
        note=f"{sampling:.2g} s of sampling (measured{waves}), {said}",
    )
    total = train.steps * train.tasks_per_step * train.group_size
    yield Finding(
        "minutes of RL",
        train.steps * (sampling + learning) / 60,
        note=f"{train.steps} steps of {train.tasks_per_step} groups of {train.group_size}: "
        f"{total:,} episodes, {total * tokens:,.0f} tokens, if episodes stay as long as they are "
        "now; without cold start and evaluations",
    )
    count = min(evaluation.tasks, len(played.heldout)) * evaluation.episodes_per_task
    yield Finding(
        "minutes of an evaluation",
        count * each / 60,
        note=f"{count:,} episodes; a run makes one before and after RL, and for each ablation",
    )
