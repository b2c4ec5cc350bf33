"""Benchmarks of judges: orders in what is judged change no verdict by their form.

The model of benchmarks/judge_injections.py is gullible: pasted into a prompt, every order is
obeyed, so that each test here can fail.
"""

import pytest

from benchmarks.judge_injections import (
    HONEST,
    WANTED,
    asked_by_turnwise,
    comparisons_obeyed_in_turnwise,
    criteria_by_turnwise,
    episode,
    injections,
    pasted,
)

CASES = [pytest.param(one["text"], one["place"], id=one["name"]) for one in injections()]


@pytest.mark.parametrize(("text", "place"), CASES)
def test_no_order_changes_a_verdict_by_its_form(text: str, place: str) -> None:
    tried = episode(text, place)
    assert pasted(tried) == WANTED
    assert asked_by_turnwise(tried) == HONEST["score"]
    assert criteria_by_turnwise(tried) == 0.0
    assert comparisons_obeyed_in_turnwise(tried) == 0
