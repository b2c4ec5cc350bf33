#!/usr/bin/env python3
"""Writes the pages of docs/reference that are made from the code: `make reference`.

A test makes the pages again and compares (tests/test_reference_pages.py). Not here: the pages
themselves (scripts/reference/), and the prose of the others.
"""

from pathlib import Path

from scripts.reference.afternoon import afternoon_page
from scripts.reference.algorithm_parts import parts_page
from scripts.reference.api import api_page
from scripts.reference.command_line import command_page
from scripts.reference.environment_options import options_page
from scripts.reference.recipe import recipe_page
from scripts.reference.reward_parts import reward_page
from turnwise.monitor.metrics import page as metrics_page

FOLDER = Path(__file__).resolve().parents[1] / "docs/reference"
MADE = "<!-- Made from the code: change its docstrings, then `make reference`. -->\n\n"
PAGES = {
    "afternoon.md": afternoon_page,
    "algorithm_parts.md": parts_page,
    "api.md": api_page,
    "command_line.md": command_page,
    "environment_options.md": options_page,
    "metrics.md": metrics_page,
    "recipe.md": recipe_page,
    "reward_parts.md": reward_page,
}


def main() -> None:
    """Write them."""
    for name, make in PAGES.items():
        (FOLDER / name).write_text(MADE + make())


if __name__ == "__main__":
    main()
