"""Processes of a pool on the nodes of a cluster.

Not here: places and processes (`placement.py`), what a process does, and when it is started anew
(`pool.py`).
"""

from collections.abc import Callable

from turnwise_cluster.placement import PlacementGroup


class RayLauncher:
    """See Launcher. Example: `RayLauncher(cluster.host, places, work)`."""

    def __init__(
        self, host: str, places: PlacementGroup, work: Callable[[str, int, bytes], None]
    ) -> None:
        """A process calls `work`, a module's function, with host, port and secret."""
        self.host, self._places, self._work = host, places, work

    async def run(self, index: int, port: int, secret: bytes) -> str:
        """See Launcher."""
        process = self._places.start(index, self._work, self.host, port, secret)
        try:
            return (await process.wait()).reason
        finally:
            process.end()
