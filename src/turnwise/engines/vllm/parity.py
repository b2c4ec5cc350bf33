"""Do server and trainer have the same weights? Tokens that the server samples, scored by the model.

A weight update can fail silently: with tied embeddings a server may go on using a packed copy of
the old output layer. So tokens are sampled after each update, and what the server says of their
log-probabilities is compared with the model's own forward pass. Not here: when a server is
checked (`engine.py`).
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from turnwise.engines.base import Sampling
from turnwise.engines.vllm.client import Json
from turnwise.engines.vllm.completions import read_answer, request_body
from turnwise.errors import RunStoppedError
from turnwise.forward.equality import own_logprobs
from turnwise.forward.rounding import ROUNDINGS, rounding_to_bfloat16

LENGTHS = (8, 32, 128, 512)
"""Lengths of the prompts, where the context has room."""
SAMPLED = 16
"""Tokens after each."""
TEMPERATURES = (1.0, 0.5)
"""Temperatures, in turn: a server that reports probabilities at another one is found out."""


@dataclass(frozen=True)
class Probe:
    """A prompt, tokens sampled after it, and a server's or the model's log-probabilities of
    these."""

    prompt: list[int]
    sampling: Sampling
    tokens: Sequence[int] = ()
    logprobs: Sequence[float] = ()


def make_probes(tokenizer: Any, limit: int) -> list[Probe]:
    """Prompts of ordinary tokens, drawn once and for all, for a context of `limit` tokens."""
    special = set(tokenizer.all_special_ids)
    ordinary = [token for token in range(len(tokenizer)) if token not in special]
    draw = random.Random(0)
    sampled = min(SAMPLED, limit // 2)
    lengths = sorted({min(length, limit - sampled) for length in LENGTHS})
    return [
        Probe(
            draw.choices(ordinary, k=length),
            Sampling(sampled, temperature=TEMPERATURES[number % 2], seed=number),
        )
        for number, length in enumerate(lengths)
    ]


def score(model: PreTrainedModel, probes: Sequence[Probe]) -> list[Probe]:
    """The probes with the model's own log-probabilities."""
    return [replace(probe, logprobs=_own(model, probe).tolist()) for probe in probes]


def rounding(model: PreTrainedModel, probes: Sequence[Probe]) -> float:
    """How far rounding to bfloat16 moves the model's own log-probabilities of what was sampled:
    the mean of the differences' absolute values."""
    moved = [rounding_to_bfloat16(partial(_own, model, each), model.device) for each in probes]
    return float(torch.cat(moved).mean())


def _own(model: PreTrainedModel, probe: Probe) -> Tensor:
    """float32[tokens]"""
    count, tokens = len(probe.tokens), torch.tensor(probe.tokens, dtype=torch.int64)
    history, heat = [*probe.prompt, *probe.tokens], probe.sampling.temperature
    logprobs = own_logprobs(model, history, count + 1, heat)[:-1].cpu()
    return logprobs.gather(-1, tokens[:, None]).squeeze(-1)


async def sample_probes(
    ask: Callable[[Json], Awaitable[Json]], model: str, probes: Sequence[Probe]
) -> list[Probe]:
    """The probes with what a server samples after them, which knows its weights as `model`."""

    async def sample(probe: Probe) -> Probe:
        body = request_body(model, probe.prompt, probe.sampling, probe.sampling.max_tokens, ())
        tokens, logprobs, _ = read_answer(await ask(body | {"ignore_eos": True}))
        return replace(probe, tokens=tokens, logprobs=logprobs)

    return list(await asyncio.gather(*map(sample, probes)))


def disagreement(sampled: Sequence[Probe], expected: Sequence[Probe]) -> float:
    """Mean absolute difference of the log-probabilities of what both sampled.

    Both have the same prompts. Of each pair the tokens up to the first different one are compared;
    infinity without any.
    """
    differences = [
        abs(mine - theirs)
        for probe, other in zip(sampled, expected, strict=True)
        for mine, theirs in _common(probe, other)
    ]
    return sum(differences) / len(differences) if differences else float("inf")


def check_parity(
    parity: float, bound: float, url: str, which: str = "", rounding: float = 0.0
) -> None:
    """Raise RunStoppedError where the disagreement of the server at `url` is beyond the bound, and
    ROUNDINGS times the `rounding` of the model; `which` weights it has is for the message."""
    if parity <= max(bound, ROUNDINGS * rounding):
        return
    rounded = f" (rounding to bfloat16 moves the model's by {rounding:.2g})" if rounding else ""
    raise RunStoppedError(
        f"with the weights{which}, log-probabilities of vLLM at {url} differ from the model's by "
        f"{parity:.2g} on average, and engine.parity_bound is {bound:g}{rounded}: it does not "
        "sample from the weights that are trained, or in a coarser dtype than the bound allows"
    )


def _common(probe: Probe, other: Probe) -> list[tuple[float, float]]:
    pairs = []
    for index, (mine, theirs) in enumerate(zip(probe.tokens, other.tokens, strict=False)):
        if mine != theirs:
            break
        pairs.append((probe.logprobs[index], other.logprobs[index]))
    return pairs
