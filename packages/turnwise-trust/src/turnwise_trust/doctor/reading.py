"""Reads one run from the files and folders that hold it, in whatever formats they are."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from turnwise.errors import DataError
from turnwise_trust.doctor.gathering import gathered
from turnwise_trust.doctor.log import Event, Log
from turnwise_trust.doctor.readers.choosing import Choice, chosen

Tick = Callable[[str], None]
UNKNOWN = (
    "none of its numbers has a name that is known. Of JSON lines of your own name the fields: "
    "turnwise doctor LOG reward=FIELD step=FIELD"
)
EVERY = 5.0
"""Seconds between two lines of progress."""


def read(
    paths: Sequence[Path],
    mapping: Mapping[str, str],
    tick: Tick = lambda text: None,
    see: Callable[[Event], None] = lambda event: None,
) -> Log:
    """The log that stands in the paths together, each event of which is shown to `see` too. Raises
    DataError for what cannot be read, or holds neither numbers nor episodes."""
    choices = [(path, chosen(path, mapping)) for path in paths]
    source = ", ".join(f"{path} ({choice[0]})" for path, choice in choices)
    framework = next((choice[1] for _, choice in choices if choice[1]), "")
    log = gathered(source, framework, _events(choices, tick, see))
    if not (log.steps or log.rollouts or log.broken or log.reasons or log.alarms):
        why = "; ".join(one.rstrip(".") for one in log.remarks) or UNKNOWN
        raise DataError(f"{source}: nothing can be said of it: {why}")
    return log


def _events(
    choices: Iterable[tuple[Path, Choice]], tick: Tick, see: Callable[[Event], None]
) -> Iterator[Event]:
    count, spoke = 0, time.monotonic()
    for path, (_, _, reader) in choices:
        for event in reader(path):
            count += 1
            if time.monotonic() - spoke >= EVERY:
                spoke = time.monotonic()
                tick(f"{path.name}: {count:,} lines read")
            see(event)
            yield event
