"""Two parts of `gpu.py`: what the engine says of its tokens beside a full pass, and its speed; and
the episodes that others of its parts play too."""

import asyncio
import statistics
from argparse import Namespace
from typing import Any

import numpy as np
import torch
from engine_measurements import endless_tokenizer
from gpu_models import WrongError, random_model, release, size, timed

from turnwise.engines.base import Sampling
from turnwise.engines.embedded import EmbeddedEngine

PROMPT, OBSERVATION = 64, 32
"""Tokens before the first turn, and between two."""
GROUP = 8
EXACT = 1e-4
"""How far log-probabilities of the engine may be from those of a full pass, both in float32."""
Played = list[tuple[list[int], list[tuple[int, float, int]]]]
"""Of each episode its tokens, and for every sampled one its place, log-probability and version."""


def correctness(arguments: Namespace, shape: str) -> dict[str, Any]:
    """Largest and mean difference of log-probabilities from those of a full float32 pass."""
    found: dict[str, Any] = {}
    for kind in dict.fromkeys(("float32", arguments.type)):
        played, evictions = swapped(arguments, shape, kind)
        versions = {version for _, sampled in played for _, _, version in sampled}
        if versions != {0, 1}:
            raise WrongError(f"sampled with versions {versions}: give more --new tokens")
        differences = compared(played, shape, kind, arguments)
        largest = max(differences)
        found |= {
            f"{kind} largest": f"{largest:.1e}",
            f"{kind} mean": f"{statistics.mean(differences):.1e}",
            f"{kind} evictions": evictions,
        }
        # So and not `largest > EXACT`: NaN has to count as far.
        if kind == "float32" and not largest <= EXACT:
            raise WrongError(f"the engine is off by {largest:.1e} in float32")
    return found


def swapped(arguments: Namespace, shape: str, kind: str) -> tuple[Played, int]:
    """Episodes of a model that another replaces on the way, and how often a session lost its cache,
    which has room for half of them; neither model is kept."""
    model, other = (random_model(shape, kind, arguments.device, seed) for seed in (0, 1))
    tokens = longest(arguments, 2) * max(arguments.sequences // 2, 1)
    engine = engine_of(model, arguments, turns=2, kv_cache_tokens=tokens)

    async def replaced() -> None:
        while engine.counters.sampled < arguments.sequences * arguments.new // 2:
            await asyncio.sleep(0)
        await engine.load_weights(dict(other.state_dict()), 1)

    async def played() -> Played:
        found, _ = await asyncio.gather(episodes(engine, model, arguments, 2), replaced())
        await engine.stop()
        return found

    return asyncio.run(played()), engine.evictions


def compared(played: Played, shape: str, kind: str, arguments: Namespace) -> list[float]:
    """Of every sampled token the difference to a full pass of the version that sampled it."""
    differences = []
    for version in (0, 1):
        model = None  # the one before
        release(arguments)
        model = random_model(shape, kind, arguments.device, version).float()
        for history, sampled in played:
            with torch.no_grad():
                ids = torch.tensor([history], device=model.device)
                logits = model(input_ids=ids, use_cache=False).logits[0]
            for place, logprob, of in sampled:
                if of == version:
                    expected = logits[place - 1].log_softmax(-1)[history[place]]
                    differences.append(abs(float(expected) - logprob))
    return differences


def sampling(arguments: Namespace, shape: str) -> dict[str, Any]:
    """Tokens a second, those of the prompts not counted."""
    model = random_model(shape, arguments.type, arguments.device)
    seconds, memory = timed(rollout(model, arguments, arguments.turns), arguments)
    tokens = arguments.sequences * arguments.turns * arguments.new
    return {"parameters": size(model), "tokens/s": round(tokens / seconds), **memory}


def rollout(model: Any, arguments: Namespace, turns: int) -> Any:
    """A function that plays all episodes, on one engine however often it is called: a training run
    makes one engine too, and making it takes seconds."""
    engine = engine_of(model, arguments, turns)
    return lambda: asyncio.run(episodes(engine, model, arguments, turns))


def engine_of(
    model: Any, arguments: Namespace, turns: int, kv_cache_tokens: int | None = None
) -> EmbeddedEngine:
    """The engine in process, for all episodes at once."""
    return EmbeddedEngine(
        model,
        endless_tokenizer(),
        max_sequences=arguments.sequences,
        max_tokens=longest(arguments, turns),
        deterministic=False,
        kv_cache_tokens=kv_cache_tokens,
    )


def longest(arguments: Namespace, turns: int) -> int:
    """Tokens of an episode."""
    return PROMPT + turns * (arguments.new + OBSERVATION)


async def episodes(engine: Any, model: Any, arguments: Namespace, turns: int) -> Played:
    """Episodes through an engine, in groups with one prompt."""
    generator, count = np.random.default_rng(0), arguments.sequences
    shape = (-(-count // GROUP), PROMPT)
    prompts = generator.integers(3, model.config.vocab_size, shape).tolist()

    async def episode(index: int) -> tuple[list[int], list[tuple[int, float, int]]]:
        history, sampled = list(prompts[index // GROUP]), []
        engine.open(str(index))
        for turn in range(turns):
            sampling = Sampling(max_tokens=arguments.new, seed=1000 * index + turn)
            completion = await engine.generate(history, sampling, session=str(index))
            versions = np.broadcast_to(completion.version, len(completion.tokens)).tolist()
            places = range(len(history), len(history) + len(completion.tokens))
            sampled += list(zip(places, completion.logprobs, versions, strict=True))
            history += [*completion.tokens, *prompts[0][:OBSERVATION]]
        engine.close(str(index))
        return history, sampled

    return await asyncio.gather(*map(episode, range(count)))
