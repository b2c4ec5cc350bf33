"""Recipes of which nothing is there but their settings."""

from collections.abc import Callable

from turnwise.algorithms import Algorithm
from turnwise.config import Recipe

RECIPE = """
name = "nothing there"
threads = 1
model = { name = "/nowhere/model" }
environment = { name = "/nowhere/environment.py:Nothing" }
train = { steps = 1, tasks_per_step = 2, group_size = 4, checkpoint_every = 1 }
rollout = { max_tokens = 200 }
"""

Made = Callable[[str], tuple[Recipe, Algorithm]]
"""A recipe with overrides, and its algorithm; "{model}" in them is a model on disk."""
