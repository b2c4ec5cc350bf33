"""The functions that made repositories consist of, by name, and the modules that they stand in.

Not here: the templates themselves, and how repositories are put together (`packages.py`).
"""

from turnwise_environments.repair.blocks_of_records import LINES, ROWS, TOTALS
from turnwise_environments.repair.blocks_of_values import REPORT, RULES, TEXT

BLOCKS = {block.name: block for block in (*LINES, *ROWS, *TOTALS, *RULES, *TEXT, *REPORT)}
MODULES = {
    "lines": "Reads $rows from text.",
    "rows": "Chooses among $rows.",
    "totals": "Sums and counts of $rows.",
    "rules": "Rules for numbers.",
    "text": "Makes text for people.",
    "report": "What is told of a text with $rows.",
}
