"""Control characters in what models and tools wrote are shown as text, wherever it is printed."""

import io
import json
import re
from collections.abc import Callable

import pytest
from rich.table import Table
from rich.text import Text

from turnwise.commands.terminal import STYLES
from turnwise.commands.words import words_text
from turnwise.monitor.display import Console, TerminalDisplay, visible

HOSTILE = "a\x1b]0;title\x07b\x9b2Jc\x08\x7f\rd"
OWN = re.compile(r"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\x1b\[\d*[AK]|\r")
"""Sequences of rich's own: styles, the cursor's, and those that draw a line again."""


def progress(console: Console) -> None:
    display = TerminalDisplay(console)
    display.phase(HOSTILE, 2)
    display.advance(HOSTILE)
    display.say(HOSTILE)
    display.close()


def row(console: Console) -> None:
    table = Table(HOSTILE, title=HOSTILE)
    table.add_row(Text(HOSTILE))
    console.print(table)


def words(console: Console) -> None:
    action = {"text": HOSTILE, "calls": [{"name": HOSTILE, "arguments": {HOSTILE: HOSTILE}}]}
    step = {"observation": [HOSTILE, 1]}
    told = {"prompt": HOSTILE, "actions": json.dumps([action]), "steps": json.dumps([step])}
    console.print(words_text(told, STYLES))


PRINTED: list[Callable[[Console], None]] = [
    lambda console: console.print(HOSTILE, markup=False),
    lambda console: console.rule(HOSTILE),
    progress,
    row,
    words,
]


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("printed", PRINTED)
def test_no_control_sequence_reaches_the_terminal(
    printed: Callable[[Console], None], terminal: bool
) -> None:
    file = io.StringIO()
    printed(Console(file=file, force_terminal=terminal, width=200))
    left = OWN.sub("", file.getvalue())
    assert "title" in left
    assert left == visible(left)


def test_what_is_written_out_can_be_read() -> None:
    assert visible(HOSTILE) == r"a\x1b]0;title\x07b\x9b2Jc\x08\x7f\x0dd"
    assert visible("ä\tb\r\nc\n") == "ä\tb\nc\n"
    console = Console(file=io.StringIO(), width=200)
    words(console)
    assert visible(HOSTILE) in console.file.getvalue()
