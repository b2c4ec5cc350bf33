"""The contenders of `sampling.py` that run in turnwise's environment: one batch on each round.

python sampling_here.py turnwise|generate|generate_batch FOLDER DTYPE SEQUENCES PROMPT NEW THREADS
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
from contenders import Stopwatch, Worker

from turnwise.config import ModelConfig
from turnwise.engines.base import Sampling
from turnwise.engines.embedded import EmbeddedEngine
from turnwise.forward.small_llama import is_small_llama
from turnwise.models.load import load_tokenizer
from turnwise.threads import configure_threads

PAGE = 32
"""Tokens in a page of the cache of continuous batching."""

Lengths = list[int]
Round = Callable[[], Awaitable[Lengths]]


def with_turnwise(model: Any, prompts: list[list[int]], new: int) -> tuple[Round, dict[str, Any]]:
    """The embedded engine, log-probabilities included."""
    tokenizer = load_tokenizer(ModelConfig())
    tokenizer.eos_token = None
    longest = len(prompts[0]) + new
    engine = EmbeddedEngine(
        model, tokenizer, max_sequences=len(prompts), max_tokens=longest, deterministic=True
    )
    seeds = iter(range(sys.maxsize))

    async def one(index: int) -> int:
        session, sampling = f"{index:04d}", Sampling(max_tokens=new, seed=next(seeds))
        completion = await engine.generate(prompts[index], sampling, session=session)
        engine.close(session)
        return len(completion.tokens)

    async def play() -> Lengths:
        for index in range(len(prompts)):
            engine.open(f"{index:04d}")
        return await asyncio.gather(*(one(index) for index in range(len(prompts))))

    return play, {"fused": is_small_llama(model)}


def with_generate(model: Any, prompts: list[list[int]], new: int) -> tuple[Round, dict[str, Any]]:
    """`generate` of one batch, without log-probabilities."""
    import torch

    inputs = torch.tensor(prompts)

    async def play() -> Lengths:
        with torch.inference_mode():
            output = model.generate(inputs, generation_config=plain_sampling(new, end=None))
        return [len(row) - len(prompts[0]) for row in output]

    return play, {}


def with_batches(model: Any, prompts: list[list[int]], new: int) -> tuple[Round, dict[str, Any]]:
    """Continuous batching, without log-probabilities.

    Its own choice of a cache would be nearly all the memory there is, which takes long to get.
    """
    from transformers import ContinuousBatchingConfig

    pages = -(-(len(prompts[0]) + new) // PAGE)
    settings = ContinuousBatchingConfig(
        page_size=PAGE,
        num_blocks=2 * len(prompts) * pages,
        max_batch_tokens=len(prompts) * len(prompts[0]),
    )

    async def play() -> Lengths:
        outputs = model.generate_batch(
            prompts,
            generation_config=plain_sampling(new, end=-1),
            continuous_batching_config=settings,
            progress_bar=False,
        )
        return [len(output.generated_tokens) for output in outputs.values()]

    return play, {}


def plain_sampling(new: int, end: int | None) -> Any:
    """Temperature 1, all tokens, and no end but the length; `end` is how that is said."""
    from transformers import GenerationConfig

    return GenerationConfig(
        do_sample=True, top_k=0, top_p=1.0, max_new_tokens=new, eos_token_id=end, pad_token_id=0
    )


KINDS = {"turnwise": with_turnwise, "generate": with_generate, "generate_batch": with_batches}


async def rounds(worker: Worker, play: Round, about: dict[str, Any]) -> None:
    """One batch after the other."""
    worker.answer(**about)
    while True:
        watch = Stopwatch()
        lengths = await play()
        worker.answer(**watch.read(), lengths=lengths)


def main() -> None:
    """Sample until nobody asks for another round."""
    worker = Worker()
    kind, folder, dtype, *sizes = sys.argv[1:]
    sequences, prompt, new, threads = map(int, sizes)
    configure_threads(threads)  # before torch is loaded
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
    prompts = np.random.default_rng(0).integers(3, model.config.vocab_size, (sequences, prompt))
    asyncio.run(rounds(worker, *KINDS[kind](model, prompts.tolist(), new)))


if __name__ == "__main__":
    main()
