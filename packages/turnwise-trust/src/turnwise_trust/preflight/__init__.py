"""The preflight of a recipe: episodes of the untrained policy, and whether RL is what it needs."""
