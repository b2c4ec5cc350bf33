"""The study of a cost's limit: its arms can run, and its table has every seed."""

import pytest
from cost_limit import ALLOWED, ARMS, LIMIT, STUDY, markdown

from tests.environments.playing import opened
from turnwise.config import load_recipe
from turnwise.rewards.composition import make_reward


@pytest.mark.parametrize("arm", ARMS)
def test_an_arm_is_a_recipe_that_can_run(arm: str) -> None:
    (environment,) = opened("search", {"tasks": {"inverse": False}})
    recipe = load_recipe(STUDY.recipe, STUDY.settings(arm))
    assert recipe.rollout.max_tool_calls == ALLOWED
    if recipe.reward is None:
        assert arm == "no cost"
        return
    reward = make_reward(recipe.reward, environment.spec.parts, recipe.rollout.max_turns)
    limits = [term.cost.limit for term in reward.costs if term.cost is not None]
    assert limits == ([LIMIT / ALLOWED] if arm == "limit" else [])
    assert [term.name for term in reward.terms] == ["calls"]


def test_the_table_has_every_seed() -> None:
    row = {
        "arm": "limit",
        "calls in all steps": [0.7, 1.1],
        "calls at the end": [0.8, 0.9],
        "calls": [0.75, 1.0],
        "success": [[0.5, 0.4, 0.6], [0.7, 0.6, 0.8]],
        "multiplier": [1.25, None],
    }
    table = markdown([row])
    assert (
        "| 0.70, 1.10 | 0.80, 0.90 | 0.75, 1.00 | 50% (40% – 60%), 70% (60% – 80%) | 1.25, – |"
        in table
    )
