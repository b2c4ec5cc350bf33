"""The engine whose tokens other processes sample: sessions dealt out, weights sent, losses mended.

    load_weights ─> every sampler takes them ─> parity
    generate ─> the lane of the session ─> its sampler; lost? another one, with the same seed

With `engine.deterministic` a session's sampler follows from its name, each sampler goes in lockstep
among its own sessions, and one that is started in place of a lost one computes the same again. Else
a session has the sampler with the fewest, and changes to another when that is lost; work begins
with one sampler, and each of the others takes part as soon as it is there, with the newest weights
and compared with the model. Not here: starts and ends
(`cluster/pool.py`), what a sampler computes (`sampler.py`), the comparison (`engines/parity.py`).
"""

import asyncio
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from turnwise.cluster.pool import Launcher, ProcessLostError, ProcessPool
from turnwise.cluster.samplers.frames import Ask, Setup
from turnwise.cluster.samplers.lane import Lane, Turn, lane_of
from turnwise.cluster.samplers.link import NUMBERS, Link
from turnwise.cluster.samplers.parts import facts_of
from turnwise.config import Recipe
from turnwise.engines.base import Completion, Sampling
from turnwise.engines.parity import ParityCheck, Probe, make_probes
from turnwise.engines.weights import match_weights
from turnwise.errors import InfrastructureError
from turnwise.models.copies import trained_weights
from turnwise.models.in_files import is_in_files
from turnwise.tokens import Image

GRACE = 30.0
"""Seconds beyond `rollout.max_seconds` without a sign of life, after which a sampler counts as
hung."""


@dataclass(frozen=True)
class Weights:
    """The weights that every sampler has to have."""

    values: Mapping[str, Tensor]
    """In main memory."""
    version: int


class SamplerEngine(ProcessPool[Link]):
    """Samples from `model` in processes that a launcher starts. See Engine.

    Nothing is started before the first `load_weights`.
    """

    kind = "sampler"

    def __init__(
        self, launcher: Launcher, recipe: Recipe, model: PreTrainedModel, tokenizer: Any
    ) -> None:
        """`model` is the one that is trained, without what adapters are wrapped in."""
        config = recipe.cluster
        super().__init__(launcher, config.samplers, config.start_seconds)
        self._recipe, self._model = recipe, model
        self._setup = Setup(recipe, os.getcwd(), tuple(sys.path))
        self._facts = facts_of(recipe)
        self._silence = recipe.rollout.max_seconds + GRACE
        self._repeats = recipe.engine.deterministic
        self._fewest = config.samplers if self._repeats else 1
        self._lanes = [Lane(self._repeats, self._lost_lane) for _ in range(config.samplers)]
        self._homes: dict[str, Lane] = {}
        self._weights: Weights | None = None
        self._loading = asyncio.Lock()
        positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        limit = min(recipe.rollout.max_tokens, positions or recipe.rollout.max_tokens)
        bound, given = recipe.parity_bound, recipe.token_engine.parity_bound > 0
        probes = make_probes(tokenizer, limit)
        self._parity = ParityCheck(model, probes, bound, recipe.rounded and not given)
        self._weights_seconds = 0.0
        self._stopped = False
        self.version = 0

    def metrics(self) -> dict[str, float]:
        """Counts of what was lost since this process began, and how long the last weights took."""
        return {
            "samplers/present": float(sum(lane.link is not None for lane in self._lanes)),
            "samplers/joined": float(self._joined),
            "samplers/lost": float(self._lost),
            "samplers/turns_sampled_again": float(sum(lane.lost_turns for lane in self._lanes)),
            "samplers/weights_seconds": self._weights_seconds,
        }

    def open(self, session: str) -> None:
        """See Engine. Raises RuntimeError when it is open already."""
        if session in self._homes:
            raise RuntimeError(f"session {session!r} is open already")
        lane = self._homes[session] = self._lane_for(session)
        lane.open(session)

    def close(self, session: str) -> None:
        """See Engine."""
        lane = self._homes.pop(session, None)
        if lane is not None:
            lane.close(session)

    async def generate(
        self,
        prompt: Sequence[int],
        sampling: Sampling,
        *,
        session: str,
        images: Sequence[Image] = (),
    ) -> Completion:
        """Sample one turn. Raises what `EmbeddedEngine.generate` raises, InfrastructureError also
        where several samplers were lost with it, and RunStoppedError where too few are left."""
        if self._stopped:
            raise InfrastructureError("the engine was stopped")
        if session not in self._homes:
            raise RuntimeError(f"session {session!r} is not open")
        if self._homes[session].sessions[session] is not None:
            raise RuntimeError(f"session {session!r} has a request under way")
        self._check_left(self._fewest)
        ask = Ask(session, next(NUMBERS), np.array(prompt, np.int32), sampling, images)
        turn = Turn(ask, asyncio.get_running_loop().create_future())
        self._homes[session].ask(turn)
        try:
            return await turn.done
        except asyncio.CancelledError:
            lane = self._homes.get(session)
            if lane is not None and lane.sessions[session] is turn:
                lane.cancel(session)
            raise

    async def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        """Send every sampler the weights that the model has with these. They must not change until
        it returns.

        Raises ConfigError for an unknown name or a wrong shape, changing nothing; RunStoppedError
        for a sampler that does not sample from them afterwards, or where too few are left.
        """
        with torch.no_grad():
            for target, source in match_weights(self._model, weights):
                target.copy_(source)
        begun = time.monotonic()
        async with self._loading:
            self._weights = Weights(self._values(), version)
            self._parity.forget()
            links = [lane.link for lane in self._lanes if lane.link is not None]
            await asyncio.gather(*map(self._renew, links))
            for lane in self._lanes:
                lane.renewed()
        await self.start()
        while not any(lane.link for lane in self._lanes):
            self._check_left(self._fewest)
            await self._change()
        self._check_left(self._fewest)
        self._weights_seconds = time.monotonic() - begun
        self.version = version

    async def sleep(self) -> None:
        """See Engine. Samplers keep everything."""

    async def stop(self) -> None:
        """See Engine."""
        self._stopped = True
        for lane in self._lanes:
            lane.fail(InfrastructureError("the engine was stopped"))
        await super().stop()

    def _values(self) -> dict[str, Tensor]:
        """The weights that training changes, as they are now: a sampler that is started later needs
        them, while learning goes on. Adapters are written in place, also where the rest is in
        files."""
        copied = bool(self._recipe.model.lora_rank) or not is_in_files(self._model)
        weights = trained_weights(self._model).items()
        return {name: weight.detach().to("cpu", copy=copied) for name, weight in weights}

    def _lane_for(self, session: str) -> Lane:
        if self._repeats:
            return self._lanes[lane_of(session, len(self._lanes))]
        there = [lane for lane in self._lanes if lane.link is not None] or self._lanes
        return min(there, key=lambda lane: len(lane.sessions))

    def _link(self, index: int, name: str, writer: asyncio.StreamWriter) -> Link:
        return Link(name, writer, index, self._lanes[index])

    async def _prepare(self, link: Link) -> None:
        """Bring a new sampler up to date, beside others, and let it have its sessions: never while
        weights change."""
        while True:
            weights, sampled = self._weights, await self._renewed(link)
            async with self._loading:
                if weights is not self._weights:
                    continue
                if expected := self._parity.expected:
                    self._parity.compare(link.name, sampled, expected)
                else:
                    await self._check(link, sampled)
                self._lanes[link.index].connect(link)
                for other in self._lanes:
                    self._lost_lane(other)
                return

    def _has_worked(self, link: Link) -> bool:
        return link.sampled > 0

    def _gave_up(self) -> None:
        try:
            self._check_left(self._fewest)
        except Exception as error:  # noqa: BLE001 - a sampler's bug too: the turns raise it
            for lane in self._lanes:
                lane.fail(error)

    def _lost_lane(self, lane: Lane) -> None:
        """Let another sampler go on with the sessions of a lane that has none, unless the next one
        is to compute the same again."""
        others = [other for other in self._lanes if other.link is not None]
        if self._repeats or lane.link is not None or not others:
            return
        other = min(others, key=lambda other: len(other.sessions))
        self._homes.update(dict.fromkeys(lane.sessions, other))
        lane.hand_over(other)

    async def _renew(self, link: Link) -> None:
        """Bring a sampler up to date that has sessions; one that is lost meanwhile is started
        anew."""
        try:
            async with asyncio.timeout(self._start_seconds):
                await self._check(link, await self._renewed(link))
        except ProcessLostError as lost:
            self._drop(link, str(lost))
        except TimeoutError:
            self._drop(link, f"it took no weights within {self._start_seconds:g} s")

    async def _check(self, link: Link, sampled: list[Probe]) -> None:
        """See that a sampler samples from the newest weights, which the model has too."""
        assert self._weights is not None  # nothing is started before
        await self._parity.update(link.name, sampled, f"of version {self._weights.version}")

    async def _renewed(self, link: Link) -> list[Probe]:
        """Let a sampler have the newest weights; returns the probes with what it samples then."""
        assert self._weights is not None  # nothing is started before
        await link.load(self._weights.values, self._weights.version)
        probes = self._parity.probes
        turns = {f"probe/{n}": (one.prompt, one.sampling) for n, one in enumerate(probes)}
        found = await link.sample(turns)
        return [
            replace(probe, tokens=one.tokens, logprobs=one.logprobs)
            for probe, one in zip(probes, found, strict=True)
        ]

    def _drop(self, link: Link, reason: str) -> None:
        """A sampler is not of use any more; another one is started in its place."""
        self._lanes[link.index].disconnect(link, f"{link.name} was lost: {reason}")
        known, start = self._links.get(link.index, (None, None))
        if known is link and start is not None:
            start.end(reason)
