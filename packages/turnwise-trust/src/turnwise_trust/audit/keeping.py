"""The file of an audit that goes on: what was found, and what was not measured yet.

An audit that was stopped, or had no time for all of its probes, tries those again that had not
begun; it takes the others from its file, as they are for the same environment, options and seed.
"""

import json
from dataclasses import asdict
from pathlib import Path

from turnwise.errors import ConfigError, DataError
from turnwise.storage.audits import Finding
from turnwise.storage.run_folder import writing
from turnwise_trust.audit.probes import PROBES
from turnwise_trust.audit.quick import CODE, Told

NOTHING: Told = ([], [*PROBES])


def kept(file: Path | None, title: str) -> Told:
    """Read what a file has; nothing without one. Raises ConfigError for the audit of something
    else, DataError for a damaged file."""
    if file is None or not file.exists():
        return NOTHING
    try:
        held = json.loads(file.read_text(encoding="utf-8"))
        found = [Finding(**one) for one in held["findings"]]
        whose, unmeasured = held["title"], list(held["unmeasured"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise DataError(f"{file} is no audit that was kept: {error!r}") from None
    if whose != title:
        raise ConfigError(f"{file} keeps the audit of {whose}: give {title} a file of its own")
    # What stood still is tried again.
    return [one for one in found if one.check != CODE], unmeasured


def keep(file: Path | None, title: str, told: Told) -> None:
    """Write what there is into a file, if there is one."""
    if file is not None:
        found, unmeasured = told
        rows = {"title": title, "findings": [*map(asdict, found)], "unmeasured": unmeasured}
        with writing(file):
            file.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


def joined(before: Told, after: Told) -> Told:
    """Both together; what `after` has not measured, and the probes that ended halfway before. A
    check that was made again counts as it is now."""
    halfway = [one for one in before[1] if one not in PROBES]
    again = {one.check for one in after[0]}
    return [*(one for one in before[0] if one.check not in again), *after[0]], [*halfway, *after[1]]
