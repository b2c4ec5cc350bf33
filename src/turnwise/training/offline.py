"""Steps of a learner that needs no rollouts: the loop of every stage but RL and evaluation."""

import asyncio

from turnwise.learning.learner import OfflineLearner
from turnwise.monitor.metrics import finite
from turnwise.monitor.no_signal import offline_reason
from turnwise.training.alarms import NoSignalAlarm, SkippedUpdates
from turnwise.training.context import RunContext


async def learn_offline(
    context: RunContext, learner: OfflineLearner, stage: str, file: str, checkpoint_every: int
) -> None:
    """Do all steps that are left, with a line in `file` for each, and save the last. Cancelled, it
    saves and ends."""
    folder, display = context.folder, context.display
    no_signal = NoSignalAlarm(display, stage.replace("_", " "))
    skipped = SkippedUpdates(display)
    folder.rewind(file, learner.steps_done)
    for _ in range(learner.steps_done):
        display.advance()
    try:
        while not learner.finished:
            metrics = learner.step()
            folder.append(file, {"step": learner.steps_done, **finite(metrics)})
            no_signal.check(learner.steps_done, offline_reason(metrics, learner.name))
            not_finite = metrics[f"{learner.name}/skipped_updates"]
            skipped.count("a loss or gradient is not finite" if not_finite else "")
            display.advance(f"loss {metrics[f'{learner.name}/loss']:.3f}")
            if learner.steps_done % checkpoint_every == 0 or learner.finished:
                save_offline(context, learner, stage)
            await asyncio.sleep(0)  # lets a cancellation through
    except asyncio.CancelledError:
        save_offline(context, learner, stage)
        raise


def save_offline(context: RunContext, learner: OfflineLearner, stage: str) -> None:
    context.save(learner, stage, learner.steps_done, learner.state())
