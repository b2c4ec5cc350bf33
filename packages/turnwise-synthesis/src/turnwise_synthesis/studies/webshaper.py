"""A behaviour of the demonstrations of the study webshaper."""

from turnwise.rollout.demonstrations import Script, hasty, thoughtless


def early(script: Script, other: Script) -> Script:
    """Answers after one search, as `hasty` does, and writes no thoughts."""
    return thoughtless(hasty(script, other), other)
