"""vLLM's servers in places, with a stand-in: looked at, started, ended, lost."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest

from turnwise.engines.base import PlaceLostError, ServerPlaces
from turnwise.errors import ConfigError, InfrastructureError
from turnwise_vllm.nodes import Nodes, NodeServer
from turnwise_vllm.settings import StartedServers
from vllm_stand_in import stand_in


class Here:
    """An object of this process in place of one on a node. See ActorHandle."""

    def __init__(self, made: Any, answers: Sequence[Any]) -> None:
        """Of `answers`, each call takes one, and what is left is of the object itself."""
        self.made, self.answers = made, list(answers)
        self.ended = False

    async def call(self, method: str, seconds: float, *arguments: Any) -> Any:
        if not self.answers:
            return await asyncio.to_thread(getattr(self.made, method), *arguments)
        if isinstance(answer := self.answers.pop(0), Exception):
            raise answer
        return answer

    def end(self) -> None:
        self.ended = True


class PlacesHere:
    """See ServerPlaces. The objects in places give these answers."""

    def __init__(self, *answers: Sequence[Any]) -> None:
        self.answers = list(answers)
        self.held: list[Here] = []

    def hold(self, index: int, kind: type, *arguments: Any) -> Here:
        self.held.append(Here(kind(*arguments), self.answers.pop(0) if self.answers else []))
        return self.held[-1]


def nodes_of(places: PlacesHere, python: str = "python", count: int = 2) -> Nodes:
    return Nodes(ServerPlaces(count, places.hold, 120), StartedServers(python=python))


def server_of(places: PlacesHere, folder: Path, python: str = "python") -> NodeServer:
    return nodes_of(places, python).server(1, [], {}, folder / "log")


def test_nodes_have_one_vllm(tmp_path: Path) -> None:
    places = PlacesHere()
    asyncio.run(nodes_of(places, stand_in(tmp_path)).check())
    assert [held.ended for held in places.held] == [True, True]


def looked(*answers: Any) -> str:
    """The message about nodes that say so of their vLLM."""
    places = PlacesHere(*[[answer] for answer in answers])
    with pytest.raises(ConfigError) as caught:
        asyncio.run(nodes_of(places).check())
    assert [held.ended for held in places.held] == [True, True]
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_nodes_that_cannot_serve_together_are_one_line() -> None:
    there = ("node-a", "vllm 0.32.0")
    assert looked(there, ("node-b", "vllm 0.33.0")) == (
        "the servers of cluster.samplers are not of one vLLM: node-a has vllm 0.32.0, node-b has "
        "vllm 0.33.0; install the same in python of all nodes"
    )
    assert "has no vLLM" in looked(there, ConfigError("on node-b: python has no vLLM"))
    assert "start_seconds = 120 whether it has vLLM (no answer)" in looked(there, TimeoutError())
    assert "whether it has vLLM (its node died)" in looked(there, PlaceLostError("its node died"))


def test_a_node_without_vllm_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^on \S+: engine\.servers\.python: .*/none cannot be"):
        asyncio.run(nodes_of(PlacesHere(), str(tmp_path / "none")).check())


def test_a_server_is_started_and_ended_in_its_place(tmp_path: Path) -> None:
    places = PlacesHere()

    async def body() -> None:
        server = server_of(places, tmp_path, stand_in(tmp_path))
        await server.stop()
        assert not await server.running()
        await server.start(tmp_path)
        async with httpx2.AsyncClient(trust_env=False) as http, asyncio.timeout(120):
            while await server.running():
                try:
                    await http.get(f"{server.url}/health")
                    break
                except httpx2.TransportError:
                    await asyncio.sleep(0.05)
        assert await server.running()
        (held,) = places.held
        await server.stop()
        await server.stop()
        assert held.ended
        assert not await asyncio.to_thread(held.made.running)

    asyncio.run(asyncio.wait_for(body(), 240))


async def test_a_server_that_is_gone_does_not_run_and_ends(tmp_path: Path) -> None:
    gone = PlaceLostError("its node died")
    places = PlacesHere(["http://10.0.0.2:1", gone, gone, TimeoutError(), TimeoutError(), gone])
    server = server_of(places, tmp_path)
    await server.start(tmp_path)
    assert server.url == "http://10.0.0.2:1"
    assert not await server.running()
    assert await server.problem() == "its process or its node has ended (its node died)"
    assert not await server.running()
    assert await server.problem() == "its node does not answer"
    await server.stop()
    assert places.held[0].ended


def test_a_place_whose_node_was_lost_is_tried_once_more(tmp_path: Path) -> None:
    places = PlacesHere([PlaceLostError("its node died")], ["http://10.0.0.3:1"])
    server = server_of(places, tmp_path)
    asyncio.run(server.start(tmp_path))
    assert server.url == "http://10.0.0.3:1"
    assert len(places.held) == 2


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (TimeoutError(), "no node had room for vLLM server 1 within cluster.start_seconds = 120"),
        (PlaceLostError("it died"), "vLLM server 1 could not be started on its node: it died"),
    ],
)
def test_a_server_that_finds_no_place_is_lost(
    tmp_path: Path, answer: Exception, message: str
) -> None:
    server = server_of(PlacesHere([answer], [answer]), tmp_path)
    with pytest.raises(InfrastructureError, match=message):
        asyncio.run(server.start(tmp_path))
