"""What has become of processes."""

import os
import time
from collections.abc import Iterable
from pathlib import Path


def ended(processes: Iterable[int]) -> bool:
    """Whether none of them runs any more, after a moment in which killed ones vanish."""
    left = list(processes)
    assert left, "no process is named"
    for _ in range(100):
        left = [one for one in left if _runs(one)]
        if not left:
            return True
        time.sleep(0.05)
    return False


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"
