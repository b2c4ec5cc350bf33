"""The rule by which the embedded engine begins with turns that wait, in numbers alone."""

ADMIT_SHARE = 8
"""Requests are prefilled together once there is one for every so many running ones."""
PATIENCE = 16
"""Forward passes after which to prefill anyway: few rows cost as much as many."""


def is_due(running: float, ready: float, passes: float) -> bool:
    """Whether to begin with `ready` turns beside the running ones, so many passes after the last
    ones."""
    if running == 0 or ready * ADMIT_SHARE >= running:
        return True
    return ready > 0 and passes >= PATIENCE
