"""The terminal during a run: its progress, and texts and curves that do no harm there.

What models and tools wrote could else set the title of a terminal, its clipboard, or hide lines.
"""

import re
import time
from collections.abc import Iterable, Sequence
from statistics import fmean

import rich.console
from rich.console import ConsoleOptions, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.segment import Segment

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def visible(text: str) -> str:
    r"""A text whose control characters are written out; lines and tabs stay.

    >>> print(visible("\x1b[2J gone?\r\n"))
    \x1b[2J gone?
    <BLANKLINE>
    """
    return CONTROL.sub(lambda one: f"\\x{ord(one[0]):02x}", text.replace("\r\n", "\n"))


class Console(rich.console.Console):
    """Writes styles of its own, and no control character of what it is given. Example: as rich's.
    rich drops some that stand in `Text`: write those out with `visible` before."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


BLOCKS = " ▁▂▃▄▅▆▇█"


def curve(values: Sequence[float], width: int, height: int = 1) -> list[str]:
    """Draw values as bars, in lines from the top: one column a value, or the mean of as many
    neighbours as it takes to need no more than `width`. Bars begin at 0 and end at 1, or at the
    least and the greatest value where one lies outside."""
    share = -(-len(values) // width)  # rounded up
    means = [fmean(values[at : at + share]) for at in range(0, len(values), share or 1)]
    low, high = min([0.0, *means]), max([1.0, *means])
    filled = [(mean - low) / (high - low) * height * (len(BLOCKS) - 1) for mean in means]
    return ["".join(_block(bar, row) for bar in filled) for row in reversed(range(height))]


def _block(bar: float, row: int) -> str:
    """The part of a bar, in eighths of a line, that stands in a row counted from the bottom; of the
    lowest row always something, so that each column can be seen."""
    full = len(BLOCKS) - 1
    return BLOCKS[min(full, max(int(row == 0), round(bar) - row * full))]


PLAIN_INTERVAL = 10.0
"""Seconds between two lines where the output is a file or a pipe."""


class Display:
    """The display of a long run's progress; says nothing by itself."""

    def phase(self, name: str, total: int) -> None:
        """A new phase of `total` units begins; the one before it is complete."""

    def advance(self, text: str = "") -> None:
        """One unit is done; `text` says how it went."""

    def say(self, text: str) -> None:
        """A line that stays."""

    def close(self) -> None:
        """The end of the last phase."""


class SilentDisplay(Display):
    """Says nothing: for tests and for programs that use turnwise as a library."""


class TerminalDisplay(Display):
    """A progress bar for people, a line every ten seconds for log files."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress: Progress | None = None
        self._name, self._total, self._done, self._text = "", 0, 0, ""
        self._began = self._spoke = 0.0

    def phase(self, name: str, total: int) -> None:
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
        self._done += 1
        self._text = text or self._text
        if self._progress is not None:
            self._progress.update(self._progress.task_ids[0], advance=1, text=self._text)
        elif time.monotonic() - self._spoke >= PLAIN_INTERVAL:
            self._spoke = time.monotonic()
            left = _time_left(time.monotonic() - self._began, self._done, self._total)
            self._line(f"{self._name}: {self._done}/{self._total}, {left}  {self._text}")

    def say(self, text: str) -> None:
        self._line(text)

    def close(self) -> None:
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
