"""The loop of a synthesis: attempts in their order, until there are the items that are wanted.

An attempt is kept, or refused with a reason: the method's own, that an item with its key is there
already, or that it holds what is held out.
"""

from collections import Counter
from collections.abc import Sequence

from turnwise.errors import RunStoppedError
from turnwise.monitor.display import Display
from turnwise_synthesis.folder import Folder
from turnwise_synthesis.heldout import HeldOut
from turnwise_synthesis.items import Method, Refused
from turnwise_synthesis.settings import SynthesisConfig

DUPLICATE, CONTAMINATED = "duplicate", "held out"
FIRST_ATTEMPTS = 100
"""Attempts before the share of refused ones counts."""


def synthesise(
    settings: SynthesisConfig, method: Method, heldout: HeldOut, folder: Folder, display: Display
) -> None:
    """Fill a folder up to the items of its settings. Raises RunStoppedError where too large a share
    of the attempts is refused."""
    keys = {line["key"] for line in folder.items}
    display.phase("items", settings.items - len(folder.items))
    while len(folder.items) < settings.items:
        _check_share(folder, settings.max_refused_share)
        try:
            _attempt(method, heldout, folder, keys)
        except Refused as reason:
            folder.refuse(folder.next_attempt, str(reason))
        else:
            display.advance(f"{len(folder.refused)} refused")
    display.close()


def _attempt(method: Method, heldout: HeldOut, folder: Folder, keys: set[str]) -> None:
    """Keep the item of the next attempt. Raises Refused."""
    item = method.propose(folder.next_attempt)
    if item.key in keys:
        raise Refused(DUPLICATE)
    if heldout.holds([item.key, item.data]):
        raise Refused(CONTAMINATED)
    folder.keep(folder.next_attempt, item.key, item.data)
    keys.add(item.key)


def _check_share(folder: Folder, most: float) -> None:
    attempts = len(folder.items) + len(folder.refused)
    share = len(folder.refused) / max(attempts, FIRST_ATTEMPTS)
    if share > most:
        raise RunStoppedError(
            f"{share:.0%} of {attempts} attempts were refused ({reasons(folder)}), and "
            f"synthesis.max_refused_share is {most:g}: {len(folder.items)} items are in "
            f"{folder.path}; change the method's options or its model, or raise the share"
        )


def reasons(folder: Folder) -> str:
    """The counts of refused attempts by reason. Example: "12 duplicate, 3 malformed"."""
    counted: Sequence[tuple[str, int]] = Counter(
        line["reason"] for line in folder.refused
    ).most_common()
    return ", ".join(f"{count} {reason}" for reason, count in counted) or "none refused"
