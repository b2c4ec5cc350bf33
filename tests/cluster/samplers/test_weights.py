"""New weights: kept for samplers that come later, on a connection that does not last."""

import asyncio
import gc
from pathlib import Path

import pytest
import torch

from tests.cluster.samplers.runs import Each, Kept
from tests.fakes import save_small_model
from turnwise.cluster.pool import ProcessLostError
from turnwise.cluster.samplers.engine import SamplerEngine
from turnwise.cluster.samplers.lane import Lane
from turnwise.cluster.samplers.link import Link
from turnwise.cluster.samplers.weights import send_weights
from turnwise.config import load_recipe
from turnwise.models.copies import trained_weights
from turnwise.models.load import load_model

MUCH = 16 * 2**20
"""Bytes that no socket takes at once."""


def test_a_connection_that_was_closed_with_bytes_on_their_way_is_an_error_of_it() -> None:
    async def played() -> None:
        closing, read = asyncio.Event(), asyncio.Event()

        async def read_late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await closing.wait()
            while await reader.read(MUCH):
                pass
            writer.close()
            await writer.wait_closed()
            read.set()

        async with asyncio.timeout(60):
            server = await asyncio.start_server(read_late, "127.0.0.1", 0)
            _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(bytes(MUCH))
            writer.close()
            closing.set()
            await writer.wait_closed()
            with pytest.raises(ConnectionResetError, match="was closed"):
                await send_weights(writer, {"weight": torch.zeros(3)})
            await read.wait()
            server.close()
            await server.wait_closed()

    asyncio.run(played())


def test_weights_do_not_wait_for_a_process_that_hangs_and_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def played() -> None:
        over = asyncio.Event()

        async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await over.wait()
            writer.close()

        async with asyncio.timeout(60):
            server = await asyncio.start_server(hang, "127.0.0.1", 0)
            _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            link = Link("sampler 0", writer, 0, Lane(repeats=True, lost=print))
            loading = asyncio.create_task(link.load({"weight": torch.zeros(MUCH)}, 1))
            while writer.transport.get_write_buffer_size() == 0:
                await asyncio.sleep(0)
            link.lose("it gives no sign of life")
            with pytest.raises(ProcessLostError, match=r"^sampler 0 was lost: it gives no sign"):
                await loading
            over.set()
            server.close()
            await server.wait_closed()

    asyncio.run(played())
    gc.collect()
    assert not caplog.records  # such as of an error that nobody has looked at


@pytest.mark.parametrize(
    ("in_files", "rank", "copied"), [(True, 0, False), (True, 2, True), (False, 0, True)]
)
def test_weights_in_files_are_kept_there(
    tmp_path: Path, in_files: bool, rank: int, copied: bool
) -> None:
    """Adapters are not: they are written in place."""
    save_small_model(tmp_path)
    given = f"model.name={tmp_path} model.device=cpu cluster.samplers=1 model.lora_rank={rank}"
    recipe = load_recipe("demo", given.split())
    model, tokenizer = load_model(recipe.model, in_files=in_files)
    kept = SamplerEngine(Each(Kept), recipe, model, tokenizer)._values()
    weights = trained_weights(model)
    assert kept.keys() == weights.keys()
    assert all((kept[n].data_ptr() != w.data_ptr()) == copied for n, w in weights.items())
