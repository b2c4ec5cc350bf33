"""turnwise: reinforcement learning for language-model agents, over whole trajectories.

Importing this package loads no model library and does nothing else. What a user's own environment
needs is here; everything else is imported from where it lives.
"""

from turnwise.errors import ToolError
from turnwise.types import Action, Observation, Outcome, Step, Task, Trajectory, Verdict

__version__ = "0.1.0"
__all__ = ["Action", "Observation", "Outcome", "Step", "Task", "ToolError", "Trajectory", "Verdict"]
