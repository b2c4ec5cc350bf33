"""turnwise: reinforcement learning for language-model agents, over whole trajectories.

Importing this package loads no model library and does nothing else. What a user's own environment
needs is here; everything else is imported from where it lives.
"""

from turnwise.environments.base import Environment
from turnwise.errors import ToolError
from turnwise.tokens import Source
from turnwise.tools.tool import tool
from turnwise.types import Action, Observation, Outcome, Step, Task, ToolCall, Trajectory, Verdict

__version__ = "0.1.0"
__all__ = [
    "Action",
    "Environment",
    "Observation",
    "Outcome",
    "Source",
    "Step",
    "Task",
    "ToolCall",
    "ToolError",
    "Trajectory",
    "Verdict",
    "tool",
]
