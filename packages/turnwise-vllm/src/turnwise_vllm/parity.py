"""Do another process and the trainer have the same weights? Tokens that it samples, scored by the
model.

A weight update can fail silently: with tied embeddings a server may go on using a packed copy of
the old output layer. So tokens are sampled after each update, and what the process (here: server)
says of their log-probabilities is compared with the model's own forward pass, and with what it said
before the update: a small one that it did not take is within any bound.
"""

import asyncio
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from turnwise.engines.base import Sampling
from turnwise.errors import RunStoppedError
from turnwise.forward.attention import evaluating
from turnwise.forward.equality import ROUNDINGS, own_logprobs, rounding_to_bfloat16
from turnwise.forward.images import ImageReader, random_image, reader_of
from turnwise.forward.logprobs import token_logprobs
from turnwise.tokens import Image

LENGTHS = (8, 32, 128, 512)
"""Lengths of the prompts, where the context has room."""
SAMPLED = 16
"""Tokens after each."""
TEMPERATURES = (1.0, 0.5)
"""Temperatures, in turn: a server that reports probabilities at another one is found out."""
MOVED = 1e-4
"""An update that moves the model's log-probabilities by more on average has to move a server's."""
KEPT = 0.1
"""A server whose log-probabilities move by less than this share of the model's has taken nothing:
it would not move at all, but for rounding that depends on what is sampled beside it."""


@dataclass(frozen=True)
class Probe:
    """A prompt, tokens sampled after it, and a server's or the model's log-probabilities of
    these."""

    prompt: list[int]
    sampling: Sampling
    tokens: Sequence[int] = ()
    logprobs: Sequence[float] = ()
    images: Sequence[Image] = ()
    """Images in the prompt."""


class ParityCheck:
    """The samples of servers under the newest weights, and under those before them.

    Example: `check = ParityCheck(model, make_probes(tokenizer, 512), 0.05)`, then
    `await check.update("server 2", sampled, "of version 3")`.
    """

    def __init__(
        self, model: PreTrainedModel, probes: Sequence[Probe], bound: float, allow_rounding: bool
    ) -> None:
        """Servers may differ by `bound` on average, or with `allow_rounding` by ROUNDINGS times
        what rounding to bfloat16 makes of the model, where that is more."""
        self._model, self.probes, self.reader = model, probes, reader_of(model)
        self._bound, self._allow_rounding = bound, allow_rounding
        self._before: dict[str, tuple[list[Probe], list[Probe]]] = {}
        """Each server's samples after its last update, and the model's own scores of them."""
        self.expected: list[Probe] = []
        """The model's own scores under the newest weights; empty while they are being changed."""
        self.measured = 0.0
        """The disagreement that was measured last."""

    async def update(self, name: str, sampled: list[Probe], which: str) -> None:
        """Check a server after an update to the weights that the model has now, which nothing may
        change meanwhile. Raises RunStoppedError for one that has others."""
        expected = await asyncio.to_thread(score, self._model, sampled)
        before, scored = self._before.get(name, (sampled, expected))
        server, model = _moved(sampled, before), _moved(expected, scored)
        if model > MOVED and server < KEPT * model:
            raise RunStoppedError(
                f"{name} took nothing of the weights {which}: they move the model's "
                f"log-probabilities by {model:.2g} on average, and the server's by {server:.2g}"
            )
        self.compare(name, sampled, expected, f" {which}")
        self.expected = expected

    def compare(
        self, name: str, sampled: list[Probe], expected: list[Probe], which: str = ""
    ) -> None:
        """Raise RunStoppedError for a server whose disagreement is beyond the bound; `which`
        weights it has is for the message."""
        self.measured = disagreement(sampled, expected)
        excused = self.measured > self._bound and self._allow_rounding
        moved = rounding(self._model, sampled) if excused else 0.0
        if not self.measured <= max(self._bound, ROUNDINGS * moved):  # nor where it is no number
            rounded = f" (rounding to bfloat16 moves the model's by {moved:.2g})" if moved else ""
            raise RunStoppedError(
                f"with the weights{which}, log-probabilities of {name} differ from the model's by "
                f"{self.measured:.2g} on average, and engine.parity_bound is {self._bound:g}"
                f"{rounded}: it does not sample from the weights that are trained, or in a coarser "
                "dtype than the bound allows"
            )
        self._before[name] = sampled, expected


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


def image_probe(reader: ImageReader, words: Probe, limit: int) -> list[Probe]:
    """A probe with an image after the prompt of another; none where a context of `limit` tokens has
    no room for it."""
    png = random_image()
    own = reader.tokens(png)
    prompt = [*words.prompt, *own, *words.prompt]
    if len(prompt) + words.sampling.max_tokens > limit:
        return []
    return [replace(words, prompt=prompt, images=[Image(len(words.prompt), len(own), png)])]


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
    if probe.images:
        return _own_after_images(model, probe, tokens)
    # Each token is foretold at the one before it; what follows the last is not asked.
    logprobs = own_logprobs(model, history, count + 1, heat)[:-1].cpu()
    return logprobs.gather(-1, tokens[:, None]).squeeze(-1)


@torch.no_grad()
def _own_after_images(model: PreTrainedModel, probe: Probe, tokens: Tensor) -> Tensor:
    """float32[tokens], as they are learned from."""
    inputs = torch.tensor([[*probe.prompt, *probe.tokens[:-1]]], device=model.device)
    selected = torch.zeros_like(inputs, dtype=torch.bool)
    selected[:, len(probe.prompt) - 1 :] = True
    targets, heat = tokens.to(model.device), probe.sampling.temperature
    with evaluating(list(model.modules())):
        found, _ = token_logprobs(
            model, inputs, selected, targets, heat, autocast=False, images=[probe.images]
        )
    return found.cpu()


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
    return sum(differences) / len(differences) if differences else math.inf


def _moved(probes: Sequence[Probe], before: Sequence[Probe]) -> float:
    """Mean absolute difference of what both sampled; 0 where that is nothing."""
    found = disagreement(probes, before)
    return 0.0 if found == math.inf else found


def _common(probe: Probe, other: Probe) -> list[tuple[float, float]]:
    pairs = []
    for index, (mine, theirs) in enumerate(zip(probe.tokens, other.tokens, strict=False)):
        if mine != theirs:
            break
        pairs.append((probe.logprobs[index], other.logprobs[index]))
    return pairs
