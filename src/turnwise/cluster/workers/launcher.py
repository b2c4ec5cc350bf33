"""Workers as processes on the nodes of a cluster.

Not here: places and processes (`turnwise.cluster.nodes`), which episodes a worker plays, and when
it is started anew (`pool.py`).
"""

from turnwise.cluster.nodes import Places
from turnwise.cluster.workers.worker import work


class RayLauncher:
    """See Launcher."""

    def __init__(self, host: str, places: Places) -> None:
        self.host, self._places = host, places

    async def run(self, index: int, port: int, secret: bytes) -> str:
        """See Launcher."""
        process = self._places.start(index, work, self.host, port, secret)
        try:
            return (await process.wait()).reason
        finally:
            process.end()
