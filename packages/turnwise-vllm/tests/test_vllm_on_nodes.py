"""vLLM's servers on the nodes of a cluster, with a stand-in: lost with their process or their node,
and gone with the run.
"""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.fakes import byte_tokenizer, small_model
from tests.small_runs import start, write_recipe
from turnwise.config import load_recipe
from turnwise.engines.base import Sampling
from turnwise_vllm.make import checked_nodes, make_vllm
from vllm_stand_in import alive, soon, stand_in, starts

pytest.importorskip("turnwise_cluster")
from cluster_tests.several_nodes import Nodes as Cluster
from cluster_tests.several_nodes import several_nodes
from turnwise_cluster.resources import allocated

pytestmark = pytest.mark.slow
TABLES = """
engine = { name = "vllm", parity_bound = 1e9, start_seconds = 120 }
rollout = { max_turns = 1, max_turn_tokens = 4, max_tokens = 64 }
train = { steps = 1, tasks_per_step = 1 }
evaluation.tasks = 0
cluster.samplers = 2
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes, of which the run's own has no GPU; what their processes start is noted."""
    noted = tmp_path_factory.mktemp("notes") / "notes.jsonl"
    os.environ["FAKE_VLLM_NOTES"] = str(noted)
    try:
        with several_nodes(1, cpus=1) as found:
            found.add(cpus=1, gpus=1)
            found.add(cpus=1, gpus=1)
            yield found
    finally:
        del os.environ["FAKE_VLLM_NOTES"]


def machines(urls: list[str]) -> list[str | None]:
    """The addresses of the machines, in order."""
    return sorted(str(urlsplit(url).hostname) for url in urls)


@pytest.mark.slow
def test_servers_that_are_lost_come_back_where_there_is_room(
    cluster: Cluster, tmp_path: Path
) -> None:
    notes = Path(os.environ["FAKE_VLLM_NOTES"])
    recipe = write_recipe(tmp_path, "Letters", TABLES)
    asked = (f"engine.servers.python={stand_in(tmp_path)}", "engine.servers.gpus=1")
    loaded = load_recipe(str(recipe), [*asked, f"cluster.address={cluster.address}"])

    async def body(engine: Any) -> None:
        async def sample(version: int) -> None:
            turn = await engine.generate([70, 71], Sampling(3, seed=1), session="one")
            assert (turn.tokens, turn.version) == ([5, 5, 5], [version] * 3)

        def urls() -> list[str]:
            return [replica.url for replica in engine.fleet.replicas if replica.up]

        async def back() -> None:
            async with asyncio.timeout(240):
                while len(urls()) < 2:
                    await asyncio.sleep(0.05)

        await engine.load_weights({}, 0)
        assert machines(urls()) == ["127.0.0.2", "127.0.0.3"]
        engine.open("one")
        await sample(0)
        first = starts(notes)
        os.kill(first[0][0], signal.SIGKILL)
        while len(urls()) == 2:
            await sample(0)
        await back()
        assert machines(urls()) == ["127.0.0.2", "127.0.0.3"]
        cluster.add(cpus=1, gpus=1)
        cluster.lose(0)
        while len(urls()) == 2:
            await sample(0)
        await back()
        assert machines(urls()) == ["127.0.0.3", "127.0.0.4"]
        await engine.load_weights({}, 1)
        await sample(1)
        assert engine.fleet.restarts == 2

    async def drive(places: Any) -> None:
        tokenizer = byte_tokenizer()
        given = (small_model(tokenizer), tokenizer, 64, tmp_path / "vllm")
        machines = await asyncio.to_thread(checked_nodes, places, loaded.engine)
        engine = make_vllm(loaded.engine, *given, machines=machines)
        try:
            await asyncio.wait_for(body(engine), 500)
        finally:
            await engine.stop()

    (tmp_path / "vllm").mkdir()
    with allocated(loaded, tmp_path / "vllm") as found:
        asyncio.run(drive(found.servers))
    assert soon(lambda: not any(alive(process) for process, _ in starts(notes)))


def test_servers_end_with_a_run_that_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    notes = Path(os.environ["FAKE_VLLM_NOTES"])
    before = len(starts(notes))
    recipe = write_recipe(tmp_path, "Letters", TABLES)
    python = f"engine.servers.python={stand_in(tmp_path)}"
    address = f"cluster.address={cluster.address}"
    process = start("train", recipe, python, address, "--run", tmp_path / "run")
    try:
        assert soon(lambda: process.poll() is not None or len(starts(notes)) == before + 2)
        assert process.poll() is None, process.communicate()[1]
    finally:
        process.kill()
        process.communicate()
    servers = [number for number, _ in starts(notes)[before:]]
    assert soon(lambda: not any(map(alive, servers)))
