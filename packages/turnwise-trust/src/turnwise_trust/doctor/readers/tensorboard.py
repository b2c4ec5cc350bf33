"""Event files of TensorBoard (2.19 or later), scalars alone. Needs the extra tensorboard."""

import os
from collections.abc import Iterator
from pathlib import Path

from turnwise.errors import MissingExtraError
from turnwise_trust.doctor.log import Event, Measured, Remark

NUMBERS = (1, 2, 3, 9)
"""Types of a tensor that are float, double and whole numbers."""
PATTERN = "events.out.tfevents.*"


def event_files(folder: Path) -> list[Path]:
    """The event files in a folder and those in it, the oldest first."""
    return sorted(folder.glob(f"**/{PATTERN}"), key=lambda file: file.name)


def read_folder(folder: Path) -> Iterator[Event]:
    """All event files of a folder."""
    for file in event_files(folder):
        yield from read_events(file)


def read_events(file: Path) -> Iterator[Event]:
    """The scalars of a file, one at a time. Raises MissingExtraError without the package."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
        from tensorboard.util.tensor_util import make_ndarray
    except ImportError:
        raise MissingExtraError("tensorboard", "tensorboard") from None
    count = 0
    for event in EventFileLoader(str(file)).Load():
        for value in event.summary.value:
            if value.tensor.dtype in NUMBERS and not value.tensor.tensor_shape.dim:
                count += 1
                yield Measured(event.step, {value.tag: float(make_ndarray(value.tensor))})
    if not count:
        yield Remark(f"{file.name} has no scalars")
