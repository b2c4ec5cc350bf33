"""Progress in the terminal: one live line per phase, and a plain line without a terminal.

Not here: what is measured (metrics.py) and what is kept (run_folder.py).
"""

import time
from typing import Protocol

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from turnwise.monitor.console import Console

PLAIN_INTERVAL = 10.0
"""Seconds between two lines where the output is a file or a pipe."""


class Display(Protocol):
    """The display of a long run's progress."""

    def phase(self, name: str, total: int) -> None:
        """A new phase of `total` units begins; the one before it is complete."""
        ...

    def advance(self, text: str = "") -> None:
        """One unit is done; `text` says how it went."""
        ...

    def say(self, text: str) -> None:
        """A line that stays."""
        ...

    def close(self) -> None:
        """The end of the last phase."""
        ...


class SilentDisplay:
    """Says nothing: for tests and for programs that use turnwise as a library."""

    def phase(self, name: str, total: int) -> None:
        """See Display."""

    def advance(self, text: str = "") -> None:
        """See Display."""

    def say(self, text: str) -> None:
        """See Display."""

    def close(self) -> None:
        """See Display."""


class TerminalDisplay:
    """A progress bar for people, a line every ten seconds for log files."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress: Progress | None = None
        self._name, self._total, self._done, self._text = "", 0, 0, ""
        self._began = self._spoke = 0.0

    def phase(self, name: str, total: int) -> None:
        """See Display."""
        self.close()
        self._name, self._total, self._done, self._text = name, total, 0, ""
        self._began = self._spoke = time.monotonic()
        if self._console.is_terminal:
            self._progress = Progress(
                TextColumn("{task.description:<26}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[text]}"),
                console=self._console,
            )
            self._progress.start()
            self._progress.add_task(name, total=total, text="")

    def advance(self, text: str = "") -> None:
        """See Display."""
        self._done += 1
        self._text = text or self._text
        if self._progress is not None:
            self._progress.update(self._progress.task_ids[0], advance=1, text=self._text)
        elif time.monotonic() - self._spoke >= PLAIN_INTERVAL:
            self._spoke = time.monotonic()
            left = _time_left(time.monotonic() - self._began, self._done, self._total)
            self._line(f"{self._name}: {self._done}/{self._total}, {left}  {self._text}")

    def say(self, text: str) -> None:
        """See Display."""
        self._line(text)

    def close(self) -> None:
        """See Display."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
        elif self._name:
            seconds = time.monotonic() - self._began
            self._line(f"{self._name}: {self._done}/{self._total} in {seconds:.0f} s  {self._text}")
        self._name = ""

    def _line(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def _time_left(seconds: float, done: int, total: int) -> str:
    """Say how long the rest takes if it goes on as so far. Example: "3 min left"."""
    left = seconds / done * (total - done)
    return f"{left:.0f} s left" if left < 90 else f"{left / 60:.0f} min left"
