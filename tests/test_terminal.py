"""What is printed for people."""

from turnwise.terminal import report_tables


def test_a_run_without_evaluations_has_no_tables() -> None:
    assert report_tables({"name": "demo", "recipe": {}}) == []
