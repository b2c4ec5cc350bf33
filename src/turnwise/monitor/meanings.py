"""The meaning of each number that a run writes, as docs/reference/metrics.md has it.

The page is made from `metrics.md` beside this file. Not here: how the numbers are measured.
"""

import re
from importlib import resources

ROW = re.compile(r"^- (?P<names>`[^`]+`(?:, `[^`]+`)*): (?P<meaning>.+)$", re.MULTILINE)


def page() -> str:
    """The whole page on metrics, in Markdown."""
    return (resources.files("turnwise.monitor") / "metrics.md").read_text(encoding="utf-8")


def meanings() -> dict[str, str]:
    """The meaning of each name, without marks. `NAME` in a name stands for any word."""
    return {
        name: row["meaning"].replace("`", "")
        for row in ROW.finditer(page())
        for name in re.findall(r"`([^`]+)`", row["names"])
    }
