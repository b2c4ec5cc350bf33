"""The engine over vLLM servers: token ids in, token ids and log-probabilities out.

    load_weights ─> write them ─> turns under way end ─> every server reads them ─> parity
    generate ─> the replica of the session ─> lost? start it again, and send the request again

With `engine.in_flight` servers hold turns under way meanwhile. What a server was sampling when it
was lost is sampled again with the same seed, elsewhere if there is another replica: an answer that
never came was never counted.
"""

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from turnwise.config import ROUNDED_PARITY
from turnwise.engines.base import Completion, EngineSetup, Sampling, StopReason
from turnwise.engines.sampling import (
    StopMatcher,
    TokenTexts,
    check_prompt,
    check_sampling,
    end_tokens,
)
from turnwise.engines.schedule import match_weights
from turnwise.errors import InfrastructureError
from turnwise.forward.images import reader_of
from turnwise.tokens import Image
from turnwise_vllm.client import ServerLostError
from turnwise_vllm.completions import (
    AbortedError,
    WrongWeightsError,
    check_read,
    check_supported,
    completion,
    read_answer,
    request_body,
    shown,
)
from turnwise_vllm.fleet import Fleet
from turnwise_vllm.parity import ParityCheck, image_probe, make_probes
from turnwise_vllm.replica import Replica, Router
from turnwise_vllm.sending import Transport
from turnwise_vllm.settings import VllmEngineConfig

ATTEMPTS = 5
"""Attempts at one request, for reasons other than a lost server."""


class VllmEngine:
    """Samples from `model` through `replicas` that serve it; made by `make.py`.

    Nothing is started before the first `load_weights`. A trajectory has at most `max_tokens`
    tokens.
    """

    takes_images = True
    shares_weights = False
    returns_kept = False

    @classmethod
    def build(cls, setup: EngineSetup) -> "VllmEngine":
        """The engine of a recipe; see `make_vllm`."""
        from turnwise_vllm.make import checked_nodes, make_vllm, returning_experts

        config = setup.config
        assert isinstance(config, VllmEngineConfig)  # no recipe names this engine otherwise
        if setup.records_experts:
            config = returning_experts(config)
        materials = (setup.model, setup.tokenizer, setup.max_tokens, setup.folder)
        machines = None if setup.places is None else checked_nodes(setup.places, config)
        return make_vllm(config, *materials, None, setup.colocated, machines)

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: Any,
        replicas: Sequence[Replica],
        config: VllmEngineConfig,
        limit: int,
        transport: Transport,
        temporary: Path | None = None,
        parity_bound: float = ROUNDED_PARITY,
        colocated: bool = False,
    ) -> None:
        """`limit` is the most tokens of a trajectory; a `temporary` folder is deleted at the end;
        for the bound see `EngineConfig`, for `colocated` EngineSetup."""
        self._model, self._tokenizer, self._config = model, tokenizer, config
        self._limit, self._router, self._colocated = limit, Router(replicas), colocated
        self._texts = TokenTexts(tokenizer)
        self._ends = end_tokens(model, tokenizer)
        self._vocabulary: int = model.get_input_embeddings().num_embeddings
        self._transport, self._temporary = transport, temporary
        self._reader = reader_of(model)
        probes, chosen = make_probes(tokenizer, limit), bool(config.parity_bound)
        if self._reader is not None:
            probes += image_probe(self._reader, probes[0], limit)
        check = ParityCheck(model, probes, parity_bound, allow_rounding=not chosen)
        self.fleet = Fleet(replicas, check, config.max_restarts, config.in_flight)
        self._sessions: dict[str, asyncio.Task[Completion] | None] = {}
        """The request of each open session, while it has one."""
        self.version = 0

    @property
    def parity(self) -> float:
        """The disagreement that was measured last."""
        return self.fleet.parity.measured

    def open(self, session: str) -> None:
        """Announce a trajectory. Raises RuntimeError when it is open already."""
        if session in self._sessions:
            raise RuntimeError(f"session {session!r} is open already")
        self._sessions[session] = None

    def close(self, session: str) -> None:
        """Forget the session; cancels a request under way, at the server too. Idempotent."""
        request = self._sessions.pop(session, None)
        if request is not None:
            request.cancel()
        self._router.forget(session)

    async def generate(
        self,
        prompt: Sequence[int],
        sampling: Sampling,
        *,
        session: str,
        images: Sequence[Image] = (),
    ) -> Completion:
        """Sample one turn after `prompt`, the whole history.

        A prompt that leaves no room gives an empty completion with CONTEXT. Raises ConfigError
        for a prompt or sampling that makes no sense, or images for a model that takes none,
        InfrastructureError when the server does not answer in time, reads another prompt or is
        lost for good, RuntimeError for a session that is not open or has a
        request already.
        """
        check_sampling(sampling)
        check_supported(sampling)
        check_prompt(prompt, self._vocabulary)
        self._check_session(session)
        room = self._limit - len(prompt)
        if room <= 0:
            return Completion([], [], StopReason.CONTEXT, self.version)
        request = asyncio.ensure_future(
            self._sample(prompt, images, sampling, min(room, sampling.max_tokens), session)
        )
        self._sessions[session] = request
        try:
            return await request
        finally:
            # The session may have been closed meanwhile, and opened again.
            if self._sessions.get(session) is request:
                self._sessions[session] = None

    async def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        """Give every server the model's weights, after the turns that are being sampled, or with
        `engine.in_flight` in the middle of them.

        Names are those of the model's state dict; names left out keep their values, so an empty
        mapping announces that the weights were changed where they are. Raises ConfigError for an
        unknown name or a wrong shape, changing nothing; RunStoppedError when log-probabilities
        disagree afterwards, or the servers are lost for good.
        """
        with torch.no_grad():
            for target, source in match_weights(self._model, weights):
                target.copy_(source)
        if not self.fleet.begun:
            self._transport.clear()  # what a run before has left in the folder
        # Before `hold`, so that turns go on while it takes its time.
        write = self._transport.write
        folder = await asyncio.to_thread(write, self._model, self._tokenizer, version)
        await self.fleet.hold()
        await self.fleet.take(folder, version)
        self._transport.keep_only(folder)
        self.version = version

    async def sleep(self) -> None:
        """Let servers that share a GPU with the learner give its memory back until
        `load_weights`."""
        if self._colocated and self.fleet.begun:
            await self.fleet.sleep()

    async def stop(self) -> None:
        """End own servers; requests that wait get InfrastructureError. Idempotent."""
        await self.fleet.stop()
        self._transport.clear()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def _check_session(self, name: str) -> None:
        self.fleet.check_alive()
        if not self.fleet.begun:
            raise RuntimeError("no weights are loaded yet: await load_weights() first")
        if name not in self._sessions:
            raise RuntimeError(f"session {name!r} is not open")
        if self._sessions[name] is not None:
            raise RuntimeError(f"session {name!r} has a request under way")

    async def _sample(
        self,
        prompt: Sequence[int],
        images: Sequence[Image],
        sampling: Sampling,
        most: int,
        session: str,
    ) -> Completion:
        """Ask until there is an answer; a lost server's requests begin again."""
        attempts, seen = 0, shown(prompt, images, self._reader)
        while True:
            await self._ready()
            replica, since = self._router.choose(session), self.fleet.labels.newest
            body = request_body(replica.model, prompt, sampling, most, self._ends)
            try:
                found = await self.fleet.ask(replica, body | seen)
                check_read(found, prompt, images)
                answer = read_answer(found)
                versions = self.fleet.labels.versions(answer.labels, since, replica.url)
                matcher = StopMatcher(sampling.stop, self._texts)
                count = len(prompt)
                return completion(answer, sampling, matcher, self._ends, versions, count)
            except WrongWeightsError as error:
                self.fleet.lose(replica, str(error))
            except (ServerLostError, AbortedError) as error:
                if not (replica.up and await replica.well()):
                    self.fleet.lose(replica, str(error))
                    continue  # `max_restarts` bounds these
                attempts += 1
                if attempts == ATTEMPTS:
                    raise InfrastructureError(f"{error}; {attempts} times") from error

    async def _ready(self) -> None:
        """Wait until a request may be sent. Raises InfrastructureError if there will be no more."""
        while True:
            self.fleet.check_alive()
            if self.fleet.broken:
                raise InfrastructureError(self.fleet.broken)
            if self.fleet.ready:
                return
            await self.fleet.background.change()
