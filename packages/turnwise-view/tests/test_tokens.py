"""Why tokens have no gradient, for each way in which that happens in an update."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dashboard_sample_run import rewrite, rows_of
from turnwise.tokens import Source
from turnwise_view.dashboard.index import Index
from turnwise_view.dashboard.tokens import Pieces, clip_range, tokens

Change = Callable[[dict[str, Any], int], None]
"""Changes a row of an episode; the number is the place of its first sampled token."""


def reason(run: Path, change: Change, number: int = 1) -> str | None:
    """The reason of the first sampled token of the episode, once its row has been changed."""
    rows = rows_of(run)
    place = rows[number]["source"].index(Source.MODEL)
    change(rows[number], place)
    rewrite(run, rows)
    found = tokens(run, "step-000003", number, (place, place + 1), Index(), Pieces())
    (at,) = found["columns"]["reason"]
    assert found["columns"]["trained"] == [at is None]
    return None if at is None else str(found["reasons"][at])


def with_ratio(ratio: float, advantage: float) -> Change:
    def change(row: dict[str, Any], place: int) -> None:
        row["trained_logprob"][place] = row["logprob"][place] + math.log(ratio)
        row["advantage"][place] = advantage

    return change


@pytest.mark.parametrize(
    ("ratio", "advantage", "clipped"),
    [(1.3, 1.0, True), (1.3, -1.0, False), (0.7, -1.0, True), (0.7, 1.0, False), (1.1, 1, False)],
)
def test_a_token_beyond_the_clip_range_says_so(
    run: Path, ratio: float, advantage: float, clipped: bool
) -> None:
    said = reason(run, with_ratio(ratio, advantage))
    assert said is None if not clipped else "clip range 0.8 to 1.2" in str(said)


def test_the_clip_range_is_that_of_the_recipe_and_unknown_for_other_ratios() -> None:
    def of(**overrides: object) -> tuple[float, float] | None:
        recipe = {"name": "x", "environment": {"name": "search"}}
        return clip_range(recipe | {"algorithm": {"name": "grpo", **overrides}})

    assert of(clip_high=0.28) == (0.8, 1.28)
    assert of(ratio_level="sequence") is None
    assert of(objective="policy_gradient") is None
    assert of(clip_hihg=0.28) is None


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"trained_logprob": math.nan}, "No update computed it"),
        ({"trained_logprob": []}, "filter of the algorithm"),
        ({"advantage": 0.0}, "Its advantage is 0"),
    ],
)
def test_a_token_without_a_gradient_says_why(run: Path, changed: dict[str, Any], said: str) -> None:
    def change(row: dict[str, Any], place: int) -> None:
        for name, value in changed.items():
            if isinstance(value, list):
                row[name] = value
            else:
                row[name][place] = value

    assert said in str(reason(run, change))
    assert reason(run, lambda row, place: None, number=0) is None  # which has one


def test_observations_are_trained_where_the_recipe_says_so(run: Path) -> None:
    config = run / "config.toml"

    def trained() -> set[str]:
        found = tokens(run, "step-000003", 1, (0, None), Index(), Pieces())
        columns = found["columns"]
        pairs = zip(columns["source"], columns["reason"], strict=True)
        return {found["sources"][source] for source, at in pairs if at is None}

    assert trained() == {"model"}
    text = config.read_text()
    config.write_text(text.replace("mask_observations = true", "mask_observations = false"))
    rows = rows_of(run)
    rows[1]["advantage"] = [-1.0] * len(rows[1]["ids"])
    rows[1]["trained_logprob"] = [-0.5] * len(rows[1]["ids"])
    rewrite(run, rows)
    assert trained() == {"model", "tool"}


def test_a_token_has_the_number_of_its_context(run: Path) -> None:
    rows = rows_of(run)
    rows[1]["contexts"] = [[0, 0], [5, 5]]
    rewrite(run, rows)
    columns = tokens(run, "step-000003", 1, (3, 8), Index(), Pieces())["columns"]
    assert columns["context"] == [0, 0, 1, 1, 1]
