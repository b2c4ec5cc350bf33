"""vLLM's servers on the nodes of a cluster, each in a place of its own or beside a learner.

    check ─> every node has the same vLLM
    start ─> a process in the server's place ─> the server there, at the node's own address

A process in the place starts the server, ends it with all its children, and says whether it runs;
when the process, its node or the run ends, so does the server (`guard.py`).
"""

import asyncio
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from turnwise.engines.base import ActorHandle, PlaceLostError, ServerPlaces
from turnwise.errors import ConfigError, InfrastructureError
from turnwise_vllm import guard
from turnwise_vllm.process import LOOK_SECONDS, ServerProcess, ThisMachine, check_interpreter
from turnwise_vllm.settings import StartedServers

ANSWER_SECONDS = 30.0
"""A process that takes longer to say whether its server runs counts as lost."""
END_SECONDS = 4 * guard.PATIENCE
"""Deadline of a server's end, after which its process is killed."""


class Servant:
    """The process in a place, which starts a server there. Its methods are called from afar."""

    def __init__(self, folder: str) -> None:
        """`folder` is the run's working folder, from which relative paths are read."""
        if os.path.isdir(folder):
            os.chdir(folder)

    def look(self, python: str) -> tuple[str, str]:
        """The name of this node, and the version of vLLM there. Raises ConfigError without one."""
        node = platform.node()
        try:
            return node, check_interpreter(python)
        except ConfigError as error:
            raise ConfigError(f"on {node}: {error}") from None

    def start(
        self,
        python: str,
        arguments: Sequence[str],
        variables: Mapping[str, str],
        log: str,
        host: str,
        model: str,
    ) -> str:
        """Start a server; returns its address. Without a `host` it listens at the node's own."""
        address = host or _own_address()
        self._server = ServerProcess(python, arguments, variables, Path(log), address)
        asyncio.run(self._server.start(Path(model)))
        return self._server.url

    def running(self) -> bool:
        return asyncio.run(self._server.running())

    def problem(self) -> str:
        return asyncio.run(self._server.problem())

    def stop(self) -> None:
        asyncio.run(self._server.stop())


def _own_address() -> str:
    """The address of this node by which others reach it."""
    import ray

    return str(ray.util.get_node_ip_address())


class Nodes:
    """The nodes with places for servers, as `ThisMachine`."""

    def __init__(self, places: ServerPlaces, servers: StartedServers) -> None:
        self.count, self._places = places.count, places
        self._python, self._seconds = servers.python or sys.executable, places.start_seconds

    async def check(self) -> None:
        """Raise ConfigError unless all nodes with places have one vLLM."""
        held = [self._places.hold(index, Servant, os.getcwd()) for index in range(self.count)]
        try:
            found = await asyncio.gather(*map(self._look, held))
        finally:
            for each in held:
                each.end()
        versions = {version: node for node, version in found}
        if len(versions) > 1:
            told = ", ".join(f"{node} has {version}" for version, node in sorted(versions.items()))
            raise ConfigError(
                f"the servers of cluster.samplers are not of one vLLM: {told}; install the same in "
                f"{self._python} of all nodes"
            )

    async def _look(self, held: ActorHandle) -> tuple[str, str]:
        try:
            node, version = await held.call("look", self._seconds + LOOK_SECONDS, self._python)
        except (PlaceLostError, TimeoutError) as error:
            raise ConfigError(
                f"cluster.samplers: a node did not say within cluster.start_seconds = "
                f"{self._seconds:g} whether it has vLLM ({str(error) or 'no answer'})"
            ) from None
        return node, version

    def server(
        self, number: int, arguments: Sequence[str], variables: Mapping[str, str], log: Path
    ) -> "NodeServer":
        where = str(log.absolute()), self._places.host
        given = (self._python, tuple(arguments), dict(variables), *where)
        return NodeServer(self._places, number, given, self._seconds)


class NodeServer:
    """A server in a place, as `ServerProcess`."""

    def __init__(
        self, places: ServerPlaces, number: int, given: tuple[object, ...], seconds: float
    ) -> None:
        """`given` is what a Servant gets before the model."""
        self._places, self._number, self._given, self._seconds = places, number, given, seconds
        self._held: ActorHandle | None = None
        self.url = ""

    async def start(self, model: Path) -> None:
        """Raises InfrastructureError where there is no node for it."""
        try:
            try:
                self.url = await self._started(model)
            except PlaceLostError:  # Ray had not known yet that the place's node was lost
                self.url = await self._started(model)
        except TimeoutError:
            raise InfrastructureError(
                f"no node had room for vLLM server {self._number} within cluster.start_seconds = "
                f"{self._seconds:g}"
            ) from None
        except PlaceLostError as error:
            raise InfrastructureError(
                f"vLLM server {self._number} could not be started on its node: {error}"
            ) from None

    async def _started(self, model: Path) -> str:
        """The address of the server, which a new process in the place has begun to start."""
        held = self._held = self._places.hold(self._number, Servant, os.getcwd())
        url = await held.call("start", self._seconds, *self._given, str(model.absolute()))
        return str(url)

    async def running(self) -> bool:
        try:
            return self._held is not None and await self._held.call("running", ANSWER_SECONDS)
        except (PlaceLostError, TimeoutError):
            return False

    async def problem(self) -> str:
        assert self._held is not None  # nothing is asked before a start
        try:
            return str(await self._held.call("problem", ANSWER_SECONDS))
        except PlaceLostError as error:
            return f"its process or its node has ended ({error})"
        except TimeoutError:
            return "its node does not answer"

    async def stop(self) -> None:
        held, self._held = self._held, None
        if held is None:
            return
        try:
            await held.call("stop", END_SECONDS)
        except (PlaceLostError, TimeoutError):
            pass  # the guard ends what is left
        finally:
            held.end()


Server = ServerProcess | NodeServer
"""A server that the run starts and ends, on whichever machine."""
Machines = ThisMachine | Nodes
