"""Experiment trackers: the metrics of a run, sent on to TensorBoard, W&B, MLflow or trackio.

The run folder has everything; a tracker gets a copy. Each works in a thread of its own, so that a
server that is slow, silent or gone neither holds up a run nor ends it: that is logged once, and
what was not delivered is counted. A resumed run goes on with the tracker's run that the folder
began, and sends the steps after its checkpoint again; they are the same numbers.
"""

import queue
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, redirect_stdout
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from turnwise.config import Recipe, flattened
from turnwise.errors import MissingExtraError
from turnwise.registry import Registry
from turnwise.storage.run_folder import RunFolder

CLOSING_SECONDS = 30.0
"""Time that the end of a run waits for what has not been delivered yet."""
MLFLOW_PARAMETERS = 100
"""Parameters that MLflow takes at once."""


@dataclass(frozen=True)
class TrackedRun:
    """The facts about a run that a tracker gets."""

    name: str
    """The recipe's."""
    label: str
    """The name of the run folder."""
    id: str
    """The run folder's, until it is overwritten."""
    folder: Path
    """For files of trackers."""
    config: Mapping[str, Any]
    """The recipe, as nested dictionaries."""
    step: int
    """The last one that is done; what a tracker has of later ones will be sent again."""


class Tracker(Protocol):
    """Takes the metrics of one step after another, and sends what is left when it is closed. May
    raise anything."""

    def log(self, metrics: Mapping[str, float], step: int) -> None: ...

    def close(self) -> None: ...


TRACKERS: Registry[Callable[[TrackedRun], Tracker]] = Registry(
    "tracker", callable, "give a class that takes a TrackedRun, with log and close"
)
"""The name of each built-in one is also that of the package it needs, and of the extra that
installs it."""


@TRACKERS.built_in("tensorboard")
class TensorBoard:
    """Event files in `trackers/tensorboard` of the run folder."""

    def __init__(self, run: TrackedRun) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # Steps after the last one that is done come again.
        self._writer: Any = SummaryWriter(run.folder / "tensorboard", purge_step=run.step + 1)

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


@TRACKERS.built_in("wandb")
class WeightsAndBiases:
    """A run of the project named like the recipe. Offline where WANDB_MODE says so."""

    def __init__(self, run: TrackedRun) -> None:
        import wandb

        self._run: Any = wandb.init(
            project=run.name,
            name=run.label,
            id=run.id,
            resume="allow",
            dir=str(run.folder),
            config=dict(run.config),
        )

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """W&B leaves out steps that it has already."""
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        self._run.finish()


@TRACKERS.built_in("mlflow")
class MLflow:
    """A run of the experiment named like the recipe, where MLFLOW_TRACKING_URI says."""

    def __init__(self, run: TrackedRun) -> None:
        from mlflow import MlflowClient

        self._client: Any = MlflowClient()
        self._id = self._find(run) or self._create(run)

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        batch = [Metric(name, value, now, step) for name, value in metrics.items()]
        self._client.log_batch(self._id, metrics=batch)

    def close(self) -> None:
        self._client.set_terminated(self._id)

    def _experiment(self, name: str) -> str:
        known = self._client.get_experiment_by_name(name)
        found = known.experiment_id if known is not None else self._client.create_experiment(name)
        return str(found)

    def _find(self, run: TrackedRun) -> str | None:
        experiment = self._experiment(run.name)
        found = self._client.search_runs([experiment], f"tags.`turnwise.id` = '{run.id}'")
        return str(found[0].info.run_id) if found else None

    def _create(self, run: TrackedRun) -> str:
        from mlflow.entities import Param

        tags = {"turnwise.id": run.id}
        made = self._client.create_run(self._experiment(run.name), tags=tags, run_name=run.label)
        parameters = [Param(key, str(one)) for key, one in flattened(run.config).items()]
        for start in range(0, len(parameters), MLFLOW_PARAMETERS):
            chunk = parameters[start : start + MLFLOW_PARAMETERS]
            self._client.log_batch(made.info.run_id, params=chunk)
        return str(made.info.run_id)


@TRACKERS.built_in("trackio")
class Trackio(WeightsAndBiases):
    """A run of the project named like the recipe."""

    def __init__(self, run: TrackedRun) -> None:
        import trackio

        self._run: Any = trackio.init(
            project=run.name, name=f"{run.label}-{run.id}", resume="allow", config=dict(run.config)
        )


def check_trackers(names: Sequence[str]) -> None:
    """Raise ConfigError for an unknown name, MissingExtraError for a tracker that is not installed.
    Imports no package of a tracker."""
    for name in names:
        TRACKERS.get(name)
        if name in TRACKERS.names() and find_spec(name) is None:
            raise MissingExtraError(name, name)


class Trackers:
    """All trackers of a run. Example: `Trackers(["wandb"], run, display.say).log(metrics, 1)`.

    What they print goes to standard error until they are closed: standard output is for results.
    """

    def __init__(self, names: Sequence[str], run: TrackedRun, say: Callable[[str], None]) -> None:
        self._say = say
        self._senders = [_Sender(name, run) for name in names]
        self._redirected = ExitStack()
        if names:
            self._redirected.enter_context(redirect_stdout(sys.stderr))

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Pass a step's metrics on, without waiting."""
        sent = {name: value for name, value in metrics.items() if name != "step"}
        for sender in self._senders:
            sender.queue.put((sent, step))
            self._tell(sender)

    def close(self) -> None:
        """Wait until everything is delivered, but not for long; say what is not."""
        deadline = time.monotonic() + CLOSING_SECONDS
        for sender in self._senders:
            sender.queue.put(None)
        for sender in self._senders:
            sender.join(deadline)
            self._tell(sender)
            if sender.undelivered:
                self._say(f"tracker {sender.name}: {sender.undelivered} steps were not delivered")
        self._senders = []
        self._redirected.close()

    def _tell(self, sender: "_Sender") -> None:
        """Log the first problem of a sender, once."""
        if sender.problem and not sender.told:
            sender.told = True
            self._say(
                f"warning: tracker {sender.name} fails ({sender.problem}); the run goes on, and "
                "its folder has everything"
            )


class _Sender:
    """One tracker and its thread, which opens it and passes on what is put into the queue, a step
    and its metrics, until None."""

    def __init__(self, name: str, run: TrackedRun) -> None:
        self.name, self._run = name, run
        self.problem = ""
        self.told = False
        self.undelivered = 0
        """Steps."""
        self.queue: queue.SimpleQueue[tuple[dict[str, float], int] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=f"tracker-{name}", daemon=True)
        self._thread.start()

    def join(self, deadline: float) -> None:
        """Wait for the thread; one that is not done by then is left behind."""
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            self.problem = self.problem or "it takes too long"
            # The None at the end stands for the step that it has taken and is still at.
            self.undelivered += self.queue.qsize()

    def _work(self) -> None:
        tracker: Tracker | None = None
        while (given := self.queue.get()) is not None:
            try:
                tracker = tracker or TRACKERS.get(self.name)(self._run)
                tracker.log(*given)
            except Exception as error:  # noqa: BLE001 - a tracker may raise anything
                self.undelivered += 1
                self._fail(error)
        try:
            if tracker is not None:
                tracker.close()
        except Exception as error:  # noqa: BLE001 - a tracker may raise anything
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        line = str(error).strip().partition("\n")[0]
        self.problem = self.problem or f"{type(error).__name__}: {line}"


def trackers_of(recipe: Recipe) -> Callable[[RunFolder, int, Callable[[str], None]], Trackers]:
    """The function that opens a recipe's trackers: for a run's folder, after so many steps, with
    what tells a person. Raises as `check_trackers`."""
    names = recipe.monitor.trackers
    check_trackers(names)
    return lambda folder, step, say: Trackers(names, tracked_run(recipe, folder, step), say)


def tracked_run(recipe: Recipe, folder: RunFolder, step: int) -> TrackedRun:
    """The facts about a run for its trackers; gives the folder an id if it has none."""
    file = folder.path / "trackers" / "id"
    if not file.is_file():
        folder.write_text("trackers/id", uuid.uuid4().hex[:12])
    return TrackedRun(
        name=recipe.name,
        label=folder.path.name,
        id=file.read_text(encoding="utf-8"),
        folder=file.parent,
        config=recipe.model_dump(mode="json"),
        step=step,
    )
