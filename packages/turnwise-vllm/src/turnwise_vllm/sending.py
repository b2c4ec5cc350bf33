"""New weights from this process's GPU to a server's, by vLLM's own weight transfer.

    /init_weight_transfer_engine   once for each start of a server, beside `Sender.join`
    /start_weight_update ─> /update_weights, beside `Part.send`, and so on ─> /finish_weight_update

What is collective runs in a thread of its own, which may wait for ever; the requests beside it have
deadlines. A server has a connection of its own, so that a lost one takes no other with it.
"""

import asyncio
import base64
import pickle
import shutil
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.multiprocessing import reductions
from transformers import PreTrainedModel

from turnwise.errors import TurnwiseError
from turnwise.models.copies import is_in_files
from turnwise_vllm.client import Client, Json, ServerLostError, ServerRefusedError, ServerSlowError
from turnwise_vllm.transports import Files, merged_weights, save_base

NCCL: Any = torch.cuda.nccl  # which has no annotations
HANDLES: Any = reductions
BUFFER_BYTES = 2**29
"""Weights that are in the shared memory at once, unless a single one is larger."""


@dataclass(frozen=True)
class Part:
    """A part of an update."""

    info: Json
    """The `update_info` of the request for it."""
    send: Callable[[], None]
    """Blocks until this process's side of it is done."""


class Sent:
    """Weights that are kept in this process's memory, for servers that are started again too, and
    sent. Example: `Sent(folder, 600, NcclSender)`."""

    def __init__(self, root: Path, seconds: float, sender: "Callable[[], Sender]") -> None:
        """Write the first weights below `root`, to start servers with; `seconds` is the deadline of
        each step of an update."""
        self._base, self._seconds, self._sender = root / "base", seconds, sender
        self._kept: dict[Path, dict[str, Tensor]] = {}
        # A server that is brought up again has a new client, and so no connection.
        self._connections: WeakKeyDictionary[Client, Sender] = WeakKeyDictionary()
        self._number = 0
        self._turn = asyncio.Lock()
        """Two collectives at once on one GPU may wait for each other."""

    def write(self, model: PreTrainedModel, tokenizer: Any, version: int) -> Path:
        weights = merged_weights(model)
        save_base(model, tokenizer, dict(weights), self._base)  # which saving empties
        self._number += 1
        name = self._base.with_name(f"{self._number:06d}-version-{version}")
        copied = not is_in_files(model)  # nothing changes files
        with torch.no_grad():
            kept = {key: each.to("cpu", copy=copied) for key, each in weights.items()}
        self._kept[name] = kept
        return name

    def served(self, folder: Path) -> Path:
        return self._base

    async def take(
        self, client: Client, folder: Path, label: str, before: str, started: bool
    ) -> str | None:
        async with self._turn:
            try:
                sender = await self._connection(client)
                await self._begin(client)
                parts = sender.parts(self._kept[folder])
                while part := await asyncio.to_thread(next, parts, None):
                    request = client.update_weights(part.info, self._seconds)
                    await beside(part.send, request, self._seconds, client.url)
                await client.finish_update(self._seconds)
            except (TurnwiseError, asyncio.CancelledError):
                self._connections.pop(client, None)
                await _clear(client)
                raise
        return None

    async def _connection(self, client: Client) -> "Sender":
        """The connection to a server, made now if it has none since it was brought up."""
        if client not in self._connections:
            with suppress(TurnwiseError):  # one that somebody else has left behind
                await client.leave_transfer()
            sender = self._sender()
            invitation = sender.invitation(await client.workers())
            request = client.join_transfer(invitation, self._seconds)
            await beside(sender.join, request, self._seconds, client.url)
            self._connections[client] = sender
        return self._connections[client]

    async def _begin(self, client: Client) -> None:
        """Begin an update; one that another process has left half done is ended first."""
        try:
            await client.start_update(self._seconds)
        except ServerRefusedError:
            with suppress(ServerRefusedError):
                await client.finish_update(self._seconds)
            await client.start_update(self._seconds)

    def keep_only(self, folder: Path) -> None:
        self._kept = {folder: self._kept[folder]}

    def clear(self) -> None:
        self._kept.clear()
        self._connections.clear()
        shutil.rmtree(self._base, ignore_errors=True)


async def _clear(client: Client) -> None:
    """Leave no update half done, and no connection, as far as the server still answers."""
    with suppress(TurnwiseError):
        await client.finish_update(None)
    with suppress(TurnwiseError):
        await client.leave_transfer()


async def beside(
    work: Callable[[], None], request: Awaitable[object], seconds: float, url: str
) -> None:
    """Do blocking work in a thread while a server answers the request that goes with it.

    Raises the request's error at once, ServerLostError where the work fails, and ServerSlowError
    where both are not done in time: the thread may wait for ever then.
    """
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    problems: list[RuntimeError] = []

    def blocking() -> None:
        try:
            work()
        except RuntimeError as error:  # torch's, for whatever CUDA and NCCL report
            problems.append(error)
        with suppress(RuntimeError):  # the loop may be closed by now
            loop.call_soon_threadsafe(done.set)

    threading.Thread(target=blocking, name="turnwise-weights", daemon=True).start()
    asked = asyncio.ensure_future(request)
    waited = asyncio.ensure_future(done.wait())
    try:
        async with asyncio.timeout(seconds):
            await asyncio.wait({asked, waited}, return_when=asyncio.FIRST_COMPLETED)
            if asked.done():
                await asked
            await waited
            if problems:
                raise ServerLostError(f"weights for vLLM at {url} cannot be sent: {problems[0]}")
            await asked
    except TimeoutError:
        raise ServerSlowError(
            f"vLLM at {url} did not receive weights within engine.start_seconds = {seconds:g}"
        ) from None
    finally:
        asked.cancel()
        waited.cancel()
        await asyncio.gather(asked, waited, return_exceptions=True)


class NcclSender:
    """Broadcasts each weight to all workers of a server, whose GPUs are others than this one.

    The group is joined by an id that goes to the server with the invitation. vLLM's workers begin
    with a sum over one number, and so does this side.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._id: bytes = NCCL.unique_id()
        self._size = 0
        self._group: Any = None

    def invitation(self, workers: int) -> Json:
        """The `init_info` for a server with so many workers. Raises ServerRefusedError where
        these cannot be reached."""
        self._size = 1 + workers
        shared = base64.b64encode(self._id).decode()
        return {"nccl_unique_id_b64": shared, "rank_offset": 1, "world_size": self._size}

    def join(self) -> None:
        """Connect; blocks until the server has."""
        with torch.cuda.device(self._device):
            self._group = NCCL.init_rank(self._size, self._id, 0)
            one = torch.zeros(1, device=self._device)
            NCCL.all_reduce([one], streams=[None], comms=[self._group])
            torch.cuda.current_stream().synchronize()

    def parts(self, weights: Mapping[str, Tensor]) -> Iterator[Part]:
        """The parts of an update; the next one is taken when one is done."""

        def send() -> None:
            with torch.cuda.device(self._device):
                for weight in weights.values():
                    there = weight.to(self._device).contiguous()  # NCCL sends memory as it lies
                    NCCL.broadcast([there], streams=[None], comms=[self._group])
                    torch.cuda.current_stream().synchronize()

        yield Part(described(weights), send)


class IpcSender:
    """Puts weights into memory that a server's only worker, on the same GPU, maps into its own; see
    `NcclSender`."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def invitation(self, workers: int) -> Json:
        if workers != 1:
            raise ServerRefusedError(
                f"engine.transport=ipc reaches the learner's own GPU alone, and the server has "
                f"{workers}: set engine.transport=nccl or files"
            )
        return {"packed": True}

    def join(self) -> None:
        pass

    def parts(self, weights: Mapping[str, Tensor]) -> Iterator[Part]:
        largest = max(weight.numel() * weight.element_size() for weight in weights.values())
        size = max(BUFFER_BYTES, largest)
        buffer = torch.empty(size, dtype=torch.uint8, device=self._device)
        gpu = str(torch.cuda.get_device_properties(self._device).uuid)
        shared = {gpu: HANDLES.reduce_tensor(buffer)[1]}
        handle = base64.b64encode(pickle.dumps(shared)).decode()
        for batch in batches(weights, size):
            # Filled again only when the server has answered, and so has copied the part before.
            info = {"tensor_sizes": _fill(buffer, batch), "ipc_handles_pickled": handle}
            yield Part(described(batch) | info, lambda: None)


Sender = NcclSender | IpcSender
"""This process's side of the connection to one server, on a GPU."""
Transport = Files | Sent
"""The way of new weights to a server."""


def described(weights: Mapping[str, Tensor]) -> Json:
    """Names, types and shapes of weights, as vLLM asks for them."""
    return {
        "names": list(weights),
        "dtype_names": [str(weight.dtype).removeprefix("torch.") for weight in weights.values()],
        "shapes": [list(weight.shape) for weight in weights.values()],
    }


def batches(weights: Mapping[str, Tensor], most: int) -> Iterator[dict[str, Tensor]]:
    """The weights in order, in groups of at most so many bytes; one that is larger is alone."""
    batch: dict[str, Tensor] = {}
    room = most
    for name, weight in weights.items():
        size = weight.numel() * weight.element_size()
        if batch and size > room:
            yield batch
            batch, room = {}, most
        batch[name] = weight
        room -= size
    yield batch


def _fill(buffer: Tensor, batch: Mapping[str, Tensor]) -> list[int]:
    """Put weights into the buffer one after the other; returns their sizes in bytes."""
    sizes: list[int] = []
    for weight in batch.values():
        flat = weight.contiguous().view(-1).view(torch.uint8)
        start = sum(sizes)
        buffer[start : start + len(flat)].copy_(flat)
        sizes.append(len(flat))
    torch.cuda.synchronize(buffer.device)
    return sizes
