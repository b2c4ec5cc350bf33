"""The study of a reward model alone: its arms are recipes, and its table has every seed."""

from pathlib import Path

import pytest
from overoptimisation import ARMS, RECIPE, markdown, plot, settings, smoothed

from turnwise.config import load_recipe


@pytest.mark.wing("judges")
@pytest.mark.parametrize("arm", ARMS)
def test_an_arm_has_no_reward_but_the_models(arm: str) -> None:
    recipe = load_recipe(RECIPE, settings(arm, Path("runs/data")))
    assert recipe.reward.outcome == recipe.reward.failure == 0
    assert recipe.reward.used == {"reward_model"}
    assert recipe.reward_model.beside_policy is (arm != "frozen")


def test_means_over_steps() -> None:
    assert smoothed([1.0, 2.0, 3.0, 4.0, 10.0]) == [2.5, 10.0]


def test_the_table_and_the_plot_have_every_seed(tmp_path: Path) -> None:
    run = {
        "reward_model": {"accuracy": 0.75, "ranking": 0.8},
        "kl": [0.0, 4.0],
        "by_model": [0.2, 0.9],
        "success": [0.3, 0.1],
        "best_of": [[0.0, 0.25], [1.2, 0.5]],
        "heldout": [[0.25, 0.2, 0.3], [0.125, 0.1, 0.2]],
        "heldout_by_model": [0.2, 0.9],
    }
    found = {"frozen": [{"seed": 3, **run}, {"seed": 7, **run}]}
    lines = markdown(found).splitlines()
    assert len(lines) == 4
    assert lines[2].startswith("| frozen | 3 | 75.0%, ranks 0.80 |")
    assert lines[3].startswith("| frozen | 7 |")
    assert "| 30.0%, 30.0%, 10.0% | 0.20, 0.90 | 4.0 | 25.0% (20.0% to 30.0%)" in lines[2]
    plot(found, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 5000
