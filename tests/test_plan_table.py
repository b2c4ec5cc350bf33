"""The table of docs/how-to/plan.md is what its script prints."""

import pytest

from scripts.plan_table import PAGE, ROWS, head, row

NAMES = list(ROWS)


def test_the_page_has_the_table_with_a_row_for_each_plan() -> None:
    text = PAGE.read_text(encoding="utf-8").partition(head())[2].lstrip("\n").partition("\n\n")[0]
    assert [line.split(" | ")[0].removeprefix("| ") for line in text.splitlines()] == NAMES


@pytest.mark.long
@pytest.mark.parametrize("name", [NAMES[0], NAMES[-1]])
def test_a_row_is_what_the_script_prints(name: str) -> None:
    assert row(name, ROWS[name]) in PAGE.read_text(encoding="utf-8")
