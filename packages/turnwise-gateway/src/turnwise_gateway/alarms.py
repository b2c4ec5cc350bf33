"""The error of a run whose agent loses too much of what is sampled for it."""

from collections.abc import Iterable

from turnwise.capture import reasons, total
from turnwise.errors import RunStoppedError
from turnwise.types import Group


def check_coverage(groups: Iterable[Group], least: float) -> None:
    """Raise RunStoppedError where fewer than a share `least` of the tokens that were sampled for an
    agent, or for a role of it, are in its trajectories."""
    captures = [m.capture for group in groups for m in group.trajectories if m.capture is not None]
    if not captures:
        return
    found = total(captures)
    whole = {"the agent": (found.sampled, found.dropped, found.coverage)}
    roles = {
        f"role {name}": (counts["sampled"], reasons(counts), found.coverage_of(name))
        for name, counts in found.roles.items()
    }
    for name, (sampled, dropped, coverage) in (roles or whole).items():
        if coverage >= least:
            continue
        lost = ", ".join(f"{count} {reason}" for reason, count in dropped.items())
        raise RunStoppedError(
            f"{sampled - sum(dropped.values())} of {sampled} tokens sampled for {name} are in its "
            f"trajectories ({lost}), and agent.coverage asks for {least:g}: see "
            "why it hangs up on replies (turnwise agent check), or lower agent.coverage"
        )
