"""Copying from observations."""

import json

import pytest

from turnwise_trust.copying import copied_share


def row(*turns: tuple[str, str | None]) -> dict[str, str]:
    """A trajectory: what the policy writes in each turn, and what comes back."""
    steps = [{"observation": None if shown is None else [shown, 3]} for _, shown in turns]
    return {
        "actions": json.dumps([{"text": text} for text, _ in turns]),
        "steps": json.dumps(steps),
    }


def test_words_count_that_were_shown_before() -> None:
    shown = "the quick brown fox jumps"
    parrot = row(("search fox", shown), ("the quick brown fox jumps", None))
    reader = row(("search fox", shown), ("an animal leaps over things", None))
    assert copied_share([parrot]) == 1.0
    assert copied_share([reader]) == 0.0
    assert copied_share([parrot, reader]) == pytest.approx(0.5)


def test_what_is_shown_later_is_not_copied() -> None:
    early = row(("the quick brown fox jumps", "the quick brown fox jumps"), ("yes", None))
    assert copied_share([early]) is None
