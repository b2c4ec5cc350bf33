"""The records of an RL step: a line of metrics, a line of times, trajectories, wings' monitors."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from turnwise.learning.selection import selection_metrics
from turnwise.monitor.display import curve
from turnwise.monitor.metrics import finite, rollout_metrics, step_text
from turnwise.monitor.no_signal import Expected, reason
from turnwise.parts.reward_source import RewardSource
from turnwise.rollout.pipeline import Played, staleness_metrics
from turnwise.training.alarms import NoSignalAlarm, SkippedUpdates, logprob_gap_bound
from turnwise.training.context import RunContext
from turnwise.training.learners import Learned
from turnwise.types import Group
from turnwise.wings import wings

WIDTH = 24
"""Columns of the reward curve beside the progress, at most."""


@dataclass(frozen=True)
class StepTimes:
    """Seconds of a step: sampling it, waiting for it, learning from it."""

    rollout: float
    waiting: float
    update: float


class Recorder:
    """Writes and sends what each step was.

    Args:
        step: steps that are done; what an interrupted process wrote of later ones is deleted.
    """

    def __init__(self, context: RunContext, step: int) -> None:
        self._context = context
        for name in ("metrics.jsonl", "timing.jsonl", "no_signal.jsonl"):
            context.folder.rewind(name, step)
        context.folder.forget_trajectories(step)
        self.history: list[Mapping[str, float]] = list(context.folder.lines("metrics.jsonl"))
        """The metrics of every step from the first one on."""
        opened = context.folder, step, context.display.say
        self._monitors = [opening(*opened) for opening in wings().monitors(context.recipe)]
        self._no_signal = NoSignalAlarm(context.display, "RL")
        recipe = context.recipe
        self._expected = Expected(recipe.learning.learning_rate, logprob_gap_bound(recipe))
        self._skipped = SkippedUpdates(context.display)
        self._sources = context.components.reward_sources.values()
        before = context.folder.lines("timing.jsonl")
        self._alarms = [source.alarm(before) for source in self._sources]

    def record(
        self,
        step: int,
        played: Played,
        learned: Learned,
        times: StepTimes,
        others: Mapping[str, float],
    ) -> None:
        """Write down a step, counted from 1, with other metrics. Raises RunStoppedError as
        SkippedUpdates does."""
        context, folder = self._context, self._context.folder
        groups, refinement = played.groups, played.refinement
        everything = [*groups, *refinement]
        metrics = {
            "step": step,
            **rollout_metrics(groups),
            **selection_metrics(learned.groups, context.algorithm),
            **others,
            **self._of_sources(lambda source: source.refinement_metrics(refinement)),
            **self._staleness(everything, step),
            **finite(learned.update.metrics),
        }
        timing = {
            "step": step,
            **_timing(metrics, times),
            **self._of_sources(lambda source: source.timing()),
            **self._processes(),
        }
        folder.write_trajectories(
            f"step-{step:06d}",
            [*learned.groups, *refinement],
            learned.signals,
            learned.credits,
            learned.update.tokens,
        )
        folder.append("metrics.jsonl", metrics)
        self.history.append(metrics)
        folder.append("timing.jsonl", timing)
        self.log(step, {**metrics, **timing})
        why = reason(metrics, self._expected)
        drawn = curve([of["reward/mean"] for of in self.history if "reward/mean" in of], WIDTH)
        context.display.advance("  ".join(filter(None, [*drawn, step_text(metrics, why)])))
        if why is not None:
            self.log_no_signal(step, why)
        for warning in filter(None, (alarm(step) for alarm in self._alarms)):
            context.display.say(f"warning: {warning}")
        # Last: it may end the run, and by now the step is written down.
        self._skipped.count("; ".join(learned.update.problems))

    def log_no_signal(self, step: int, why: str) -> None:
        """Write down, and say once, why a step has taught the policy nothing."""
        self._context.folder.append("no_signal.jsonl", {"step": step, "reason": why})
        self._no_signal.check(step, why)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Send what was measured to the wings' monitors, such as trackers."""
        if values:
            for monitor in self._monitors:
                monitor.log(dict(values), step)

    def close(self) -> None:
        for monitor in self._monitors:
            monitor.close()

    def _of_sources(self, measured: Callable[[RewardSource], dict[str, float]]) -> dict[str, float]:
        found: dict[str, float] = {}
        for source in self._sources:
            found |= measured(source)
        return found

    def _processes(self) -> dict[str, float]:
        """Counts of what was lost of the processes that play, since this process began."""
        workers = self._context.components.workers
        return {} if workers is None else workers.metrics()

    def _staleness(self, groups: Sequence[Group], step: int) -> dict[str, float]:
        """How old the tokens were, where they can be older than the step."""
        if not self._context.recipe.train.max_staleness:
            return {}
        # Steps count from 1 here, and the first was learned from with version 0.
        return staleness_metrics(groups, step - 1)


def _timing(metrics: Mapping[str, float], times: StepTimes) -> dict[str, float]:
    sampled = metrics["rollout/tokens_sampled"] + sum(
        metrics.get(others, 0.0)
        for others in (
            "baseline_rollouts/tokens_sampled",
            "oversampled/tokens_sampled",
            "judge/refinement_tokens_sampled",
        )
    )
    trained = metrics["rollout/tokens"] + metrics.get("judge/refinement_tokens", 0.0)
    return {
        "seconds/rollout": times.rollout,
        "seconds/waiting": times.waiting,
        "seconds/update": times.update,
        # Not the rollout's seconds, a part of which may go by during updates.
        "seconds/step": times.waiting + times.update,
        "rollout/sampled_tokens_per_second": sampled / times.rollout,
        "update/tokens_per_second": trained / times.update,
    }
