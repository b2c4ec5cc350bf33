"""A terminal to which control sequences inside texts are only text.

What models and tools wrote could else set the title of a terminal, its clipboard, or hide lines.
"""

import re
from collections.abc import Iterable

import rich.console
from rich.console import ConsoleOptions, RenderableType
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
        """See rich."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)
