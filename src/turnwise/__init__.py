"""turnwise: reinforcement learning for language-model agents, over whole trajectories.

What is listed here is the public API (docs/reference/api.md); parts of one's own may import from
the modules in SEAMS too. Every other module is private, and may change at any time. Importing this
package does nothing: each name is imported when it is first asked for, and no model library before
a function needs one.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turnwise.api import (
        build,
        close,
        estimate,
        evaluate,
        load_recipe,
        load_weights,
        make_environment,
        make_learner,
        open_run,
        resume,
        sample_groups,
        train,
    )
    from turnwise.config import Recipe
    from turnwise.environments.base import Environment
    from turnwise.errors import ToolError
    from turnwise.learning.policy import PolicyLearner
    from turnwise.parts.components import Components
    from turnwise.storage.run import Run
    from turnwise.tokens import Source, Tokens
    from turnwise.tools.tool import tool
    from turnwise.types import (
        Action,
        Group,
        Observation,
        Outcome,
        Step,
        Task,
        ToolCall,
        Trajectory,
        Verdict,
    )

__version__ = "0.1.0"

_HOMES = {
    "api": "build close estimate evaluate load_recipe load_weights make_environment make_learner "
    "open_run resume sample_groups train",
    "config": "Recipe",
    "environments.base": "Environment",
    "errors": "ToolError",
    "learning.policy": "PolicyLearner",
    "storage.run": "Run",
    "tokens": "Source Tokens",
    "tools.tool": "tool",
    "parts.components": "Components",
    "types": "Action Group Observation Outcome Step Task ToolCall Trajectory Verdict",
}
"""Module -> the public names that are there."""
_MODULES = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [
    "Action",
    "Components",
    "Environment",
    "Group",
    "Observation",
    "Outcome",
    "PolicyLearner",
    "Recipe",
    "Run",
    "Source",
    "Step",
    "Task",
    "Tokens",
    "ToolCall",
    "ToolError",
    "Trajectory",
    "Verdict",
    "build",
    "close",
    "estimate",
    "evaluate",
    "load_recipe",
    "load_weights",
    "make_environment",
    "make_learner",
    "open_run",
    "resume",
    "sample_groups",
    "tool",
    "train",
]

SEAMS = (
    "turnwise.algorithms.estimators",
    "turnwise.algorithms.parts",
    "turnwise.config.wing_section",
    "turnwise.conflicts",
    "turnwise.engines.embedded",
    "turnwise.environments.base",
    "turnwise.errors",
    "turnwise.ranges",
    "turnwise.rewards.answer",
    "turnwise.rewards.parts",
    "turnwise.rollout.episode",
    "turnwise.rollout.runner",
    "turnwise.sandbox.base",
    "turnwise.sandbox.choice",
    "turnwise.sandbox.settings",
    "turnwise.scaffolds.tags",
    "turnwise.types",
    "turnwise.wings",
)
"""Modules that parts of one's own build on: what they have is kept, as the public names are."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'turnwise' has no attribute {name!r}")
    found = getattr(import_module(f"turnwise.{_MODULES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
