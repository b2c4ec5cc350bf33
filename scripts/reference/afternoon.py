"""afternoon.md: the files to read in order, each of which names the next."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import turnwise

HOUSE = Path(turnwise.__file__).parent
FIRST = "types.py"
NEXT = re.compile(r"^Next: `([\w/]+\.py)`\.$", re.MULTILINE)
INTRODUCTION = (
    "# The afternoon\n\n"
    "These {count} files, {lines:,} lines, are a run from its recipe to its weights: what an "
    "episode is made of, how it is played, graded, credited and learned from. Read them in this "
    "order; the last line of each docstring names the next file. All else is another part of the "
    "same kinds, or a wing ([Architecture](../concepts/architecture.md)).\n\n"
)


def afternoon_page() -> str:
    """The files of the way, with lines (to the nearest ten) and the first sentence of each."""
    files = [(file, (HOUSE / file).read_text()) for file in way()]
    counts = [round(len(text.splitlines()), -1) for _, text in files]
    shown = [
        f"{number}. `{file}` ({count} lines): {_sentence(text)}\n"
        for number, ((file, text), count) in enumerate(zip(files, counts, strict=True), 1)
    ]
    return INTRODUCTION.format(count=len(files), lines=sum(counts)) + "".join(shown)


def way() -> Iterator[str]:
    """The files of the way in order: from `types.py` to the one that names no next."""
    file: str | None = FIRST
    while file is not None:
        yield file
        found = NEXT.search(_docstring((HOUSE / file).read_text()))
        file = found[1] if found else None


def _docstring(text: str) -> str:
    return ast.get_docstring(ast.parse(text)) or ""


def _sentence(text: str) -> str:
    paragraph = " ".join(_docstring(text).partition("\n\n")[0].split())
    sentence = re.split(r"(?<=\.)\s", paragraph)[0].rstrip(".")
    return re.sub(r"<\w+>.*?</\w+>", r"`\g<0>`", sentence)
