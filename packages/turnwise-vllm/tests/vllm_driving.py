"""Drives the vLLM engine in tests against servers that speak as vLLM does, with a small model."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from fake_vllm import FakeVllm, Json, Sample
from tests.fakes import byte_tokenizer, small_model
from turnwise.engines.base import Completion, Sampling
from turnwise.engines.sampling import sample, uniforms
from turnwise.tokens import Image
from turnwise_vllm.engine import VllmEngine
from turnwise_vllm.make import make_vllm
from turnwise_vllm.sending import Sender
from turnwise_vllm.settings import RunningServers, VllmEngineConfig

PROMPT = [70, 71, 72, 73, 74]
LIMIT = 48


class Served:
    """What a server samples: a model whose weights come from folders, as the server is told."""

    def __init__(self) -> None:
        self._first = small_model(byte_tokenizer(), seed=99)
        self.model: Any = self._first

    def load(self, folder: str) -> None:
        """Read weights; of no folder, those that a server starts with."""
        self.model = AutoModelForCausalLM.from_pretrained(folder) if folder else self._first

    @torch.no_grad()
    def __call__(self, body: Json) -> tuple[list[int], list[float], str]:
        sampling = Sampling(body["max_tokens"], temperature=body["temperature"])
        history, logprobs = list(body["prompt"]), []
        for draw in uniforms(body["seed"], body["max_tokens"]):
            logits = self.model(input_ids=torch.tensor([history])).logits[:, -1].float()
            tokens, found, _ = sample(logits, [sampling], [draw])
            history += tokens
            logprobs += found
            if tokens[0] in body["stop_token_ids"] and not body["ignore_eos"]:
                return history[len(body["prompt"]) :], logprobs, "stop"
        return history[len(body["prompt"]) :], logprobs, "length"


def serving() -> FakeVllm:
    """A server that samples from a model and reads the weights that it is told to."""
    served = Served()
    server = FakeVllm(served)
    server.on_load = served.load
    return server


def scripted(sample: Sample) -> FakeVllm:
    """A server that samples what a function says to requests with stop tokens, which probes of the
    parity check have not: those it answers from a model."""
    served = Served()
    server = FakeVllm(lambda body: served(body) if body["ignore_eos"] else sample(body))
    server.on_load = served.load
    return server


def small() -> tuple[Any, Any]:
    """A model of words alone, and its tokenizer."""
    tokenizer = byte_tokenizer()
    return small_model(tokenizer), tokenizer


@asynccontextmanager
async def driven(
    folder: Path,
    servers: list[FakeVllm],
    wrap: Callable[[Any], Any] = lambda model: model,
    sender: Callable[[], Sender] | None = None,
    make: Callable[[], tuple[Any, Any]] = small,
    colocated: bool = False,
    **settings: Any,
) -> AsyncIterator[tuple[VllmEngine, Any]]:
    """An engine with running servers and its model, with a deadline: nothing may hang."""
    model, tokenizer = make()
    model = wrap(model)
    async with AsyncExitStack() as stack:
        for server in servers:
            await stack.enter_async_context(server)
        config = VllmEngineConfig(
            name="vllm",
            # With the end that the address has in clients of OpenAI's.
            servers=RunningServers(urls=tuple(f"{server.url}/v1/" for server in servers)),
            **{"start_seconds": 120, "request_seconds": 120, **settings},
        )
        engine = await asyncio.to_thread(
            make_vllm, config, model, tokenizer, LIMIT, folder, sender, colocated
        )
        stack.push_async_callback(engine.stop)
        async with asyncio.timeout(240):
            yield engine, model


@asynccontextmanager
async def loaded(
    folder: Path, server: FakeVllm | None = None, **given: Any
) -> AsyncIterator[tuple[VllmEngine, Any, FakeVllm]]:
    """An engine whose one server has version 0, its model, and the server: see `driven`."""
    server = server or serving()
    async with driven(folder, [server], **given) as (engine, model):
        await engine.load_weights({}, 0)
        yield engine, model, server


async def play(
    engine: VllmEngine,
    prompt: list[int],
    sampling: Sampling,
    name: str,
    images: Sequence[Image] = (),
) -> Completion:
    """One turn of a session of its own."""
    engine.open(name)
    try:
        return await engine.generate(prompt, sampling, session=name, images=images)
    finally:
        engine.close(name)


async def once(engine: VllmEngine, name: str = "only", seed: int = 3, **options: Any) -> Completion:
    """One turn after `PROMPT`."""
    sampling = Sampling(**{"max_tokens": 6, "seed": seed, **options})
    return await play(engine, PROMPT, sampling, name)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something, but not for ever."""
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0.01)


def change(model: Any, seed: int = 1) -> None:
    """As an update would."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=generator))


def teach(model: Any, seed: int) -> None:
    """As an update would: adapters alone."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if ".lora_" in name:
                weight.add_(0.3 * torch.randn(weight.shape, generator=generator))
