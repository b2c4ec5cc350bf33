"""The claims of a recipe on models that judge: a use without a model."""

from collections.abc import Iterator

from turnwise.config import Recipe
from turnwise.conflicts import Claim
from turnwise_judges.preferences.settings import A_JUDGE

MODELS = {"judge": A_JUDGE, "reward_model": "a reward model"}
"""The need of each part of the reward that such a model measures."""


def claims_of(recipe: Recipe) -> Iterator[Claim]:
    """The needs of the parts that the reward names, and what the recipe does not describe."""
    used, described = set() if recipe.reward is None else recipe.reward.used, recipe.added()
    for name, need in MODELS.items():
        if name in used:
            yield Claim(f"reward.parts.{name}", (need,))
        if name not in described:
            remedy = f"describe one in [{name}]"
            yield Claim("the recipe", denies={need: "describes none"}, remedy=remedy)
