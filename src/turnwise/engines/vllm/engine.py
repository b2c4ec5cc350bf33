"""The engine over vLLM servers: token ids in, token ids and log-probabilities out.

    load_weights ─> write them ─> wait for turns under way ─> every server reads them ─> parity
    generate ─> the replica of the session ─> lost? start it again, and send the request again

A turn is sampled by one version of the weights. A server that is lost is started again with the
newest weights, and what it was sampling is sampled again with the same seed, elsewhere if there is
another replica: an answer that never came was never counted. Not here: a server's process
(`process.py`), its questions and answers (`client.py`, `completions.py`), the check (`parity.py`).
"""

import asyncio
import logging
import shutil
import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from turnwise.config import ROUNDED_PARITY, VllmEngineConfig
from turnwise.engines.base import Completion, EngineSetup, Sampling, StopReason
from turnwise.engines.sampling import (
    StopMatcher,
    TokenTexts,
    check_prompt,
    check_sampling,
    end_tokens,
)
from turnwise.engines.vllm.background import Background
from turnwise.engines.vllm.client import (
    Json,
    ServerLostError,
    ServerRefusedError,
    ServerSlowError,
    not_taken,
)
from turnwise.engines.vllm.completions import (
    AbortedError,
    check_supported,
    completion,
    request_body,
)
from turnwise.engines.vllm.parity import (
    Probe,
    check_parity,
    disagreement,
    make_probes,
    rounding,
    sample_probes,
    score,
)
from turnwise.engines.vllm.replica import Replica
from turnwise.engines.vllm.routing import Router
from turnwise.engines.vllm.transports import Transport
from turnwise.engines.weights import match_weights
from turnwise.errors import ConfigError, InfrastructureError, RunStoppedError
from turnwise.tokens import Image

WATCH_SECONDS = 2.0
"""Seconds between two checks of every server."""
BAD_LOOKS = 3
"""Failed checks in a row that mean a lost server: one may be due to this process being busy."""
ATTEMPTS = 5
"""Attempts at one request, for reasons other than a lost server."""

log = logging.getLogger(__name__)


class VllmEngine:
    """Samples from `model` through `replicas` that serve it; made by `make.py`.

    Nothing is started before the first `load_weights`. A trajectory has at most `max_tokens`
    tokens.
    """

    takes_images = False
    shares_weights = False

    @classmethod
    def build(cls, setup: EngineSetup) -> "VllmEngine":
        """The engine of a recipe; see `make_vllm`."""
        from turnwise.engines.vllm.make import make_vllm

        config = setup.config
        assert isinstance(config, VllmEngineConfig)  # no recipe names this engine otherwise
        return make_vllm(config, setup.model, setup.tokenizer, setup.max_tokens, setup.folder)

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
    ) -> None:
        """`limit` is the most tokens of a trajectory; the replicas take weights by `transport`; a
        `temporary` folder is deleted at the end; for the bound see `EngineConfig`."""
        self._model, self._tokenizer, self._config = model, tokenizer, config
        self._replicas, self._limit = replicas, limit
        self._router = Router(replicas)
        self._texts = TokenTexts(tokenizer)
        self._ends = end_tokens(model, tokenizer)
        self._vocabulary: int = model.get_input_embeddings().num_embeddings
        self._parity_bound = parity_bound
        self._transport, self._temporary = transport, temporary
        self._run = uuid.uuid4().hex[:8]
        self._newest: tuple[Path, str] | None = None
        """Folder of the newest weights, and what a server that has them calls them."""
        self._probes = make_probes(tokenizer, limit)
        self._expected: list[Probe] = []
        """Log-probabilities under the newest weights; empty while they are being changed."""
        self._sessions: dict[str, asyncio.Task[Completion] | None] = {}
        """The request of each open session, while it has one."""
        self._open = False
        """Whether requests may be sent; not while weights change, nor while servers sleep."""
        self._broken = ""
        """Why no request will be sent any more."""
        self._background = Background()
        self._repairs: dict[int, asyncio.Task[None]] = {}
        self._stopped = False
        self.version = 0
        self.restarts = 0
        """Restarts of servers that were lost."""
        self.parity = 0.0
        """The disagreement that was measured last."""

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
        for a prompt or sampling that makes no sense, InfrastructureError when the server does not
        answer in time or is lost for good, RuntimeError for a session that is not open or has a
        request already.
        """
        if images:
            raise ConfigError("engine vllm is not given images: use the embedded engine")
        check_sampling(sampling)
        check_supported(sampling)
        check_prompt(prompt, self._vocabulary)
        self._check_session(session)
        room = self._limit - len(prompt)
        if room <= 0:
            return Completion([], [], StopReason.CONTEXT, self.version)
        request = asyncio.ensure_future(
            self._sample(prompt, sampling, min(room, sampling.max_tokens), session)
        )
        self._sessions[session] = request
        try:
            return await request
        finally:
            if self._sessions.get(session) is request:
                self._sessions[session] = None

    async def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        """Give every server the model's weights, after the turns that are being sampled.

        Names are those of the model's state dict; names left out keep their values, so an empty
        mapping announces that the weights were changed where they are. Raises ConfigError for an
        unknown name or a wrong shape, changing nothing; RunStoppedError when log-probabilities
        disagree afterwards, or the servers are lost for good.
        """
        with torch.no_grad():
            for target, source in match_weights(self._model, weights):
                target.copy_(source)
        first = self._newest is None
        if first:
            self._transport.clear()
        write = self._transport.write
        folder = await asyncio.to_thread(write, self._model, self._tokenizer, version)
        await self._close_gate()
        self._newest, self._expected = (folder, f"{self._run}-{folder.name}"), []
        if first:
            await self._begin()
        else:
            await asyncio.gather(*map(self._renew, range(len(self._replicas))))
        await self._check_parity(version)
        self._transport.folders.keep_only(folder)
        self.version = version
        self._open = True
        self._background.tell()

    async def sleep(self) -> None:
        """Let servers that share a GPU with the learner give its memory back until
        `load_weights`."""
        if not self._config.colocated or self._newest is None:
            return
        await self._close_gate()
        for replica in self._replicas:
            if replica.up:
                try:
                    await replica.sleep()
                except ServerLostError:
                    replica.up = False  # load_weights() brings it up, when there is memory for it

    async def stop(self) -> None:
        """End own servers; requests that wait get InfrastructureError. Idempotent."""
        self._stopped = True
        self._background.tell()
        await self._background.stop()
        await asyncio.gather(*(replica.stop() for replica in self._replicas))
        self._transport.clear()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def _check_session(self, name: str) -> None:
        if self._stopped:
            raise InfrastructureError("the engine was stopped")
        if self._newest is None:
            raise RuntimeError("no weights are loaded yet: await load_weights() first")
        if name not in self._sessions:
            raise RuntimeError(f"session {name!r} is not open")
        if self._sessions[name] is not None:
            raise RuntimeError(f"session {name!r} has a request under way")

    async def _sample(
        self, prompt: Sequence[int], sampling: Sampling, most: int, session: str
    ) -> Completion:
        """Ask until there is an answer; a lost server's requests begin again."""
        attempts = 0
        while True:
            await self._ready()
            replica, version = self._router.choose(session), self.version
            body = request_body(replica.model, prompt, sampling, most, self._ends)
            try:
                answer = await self._ask(replica, body)
                matcher = StopMatcher(sampling.stop, self._texts)
                return completion(answer, sampling, matcher, self._ends, version)
            except (ServerLostError, AbortedError) as error:
                if not (replica.up and await replica.well()):
                    self._lose(replica, str(error))
                    continue
                attempts += 1
                if attempts == ATTEMPTS:
                    raise InfrastructureError(f"{error}; {attempts} times") from error

    async def _ask(self, replica: Replica, body: Json) -> Json:
        try:
            return await replica.complete(body)
        finally:
            self._background.tell()

    async def _ready(self) -> None:
        """Wait until a request may be sent. Raises InfrastructureError if there will be no more."""
        while True:
            self._check_alive()
            if self._broken:
                raise InfrastructureError(self._broken)
            if self._open and any(replica.up for replica in self._replicas):
                return
            await self._background.change()

    def _check_alive(self) -> None:
        if self._stopped:
            raise InfrastructureError("the engine was stopped")
        self._background.check()

    async def _close_gate(self) -> None:
        """Send nothing more, and wait for what is under way; each request has its deadline."""
        self._open = False
        while any(replica.in_flight for replica in self._replicas):
            await self._background.change()

    async def _begin(self) -> None:
        """Bring all servers up for the first time; one that does not start is not tried again."""
        assert self._newest is not None
        try:
            await asyncio.gather(*(replica.bring_up(*self._newest) for replica in self._replicas))
        except ServerRefusedError as error:
            raise not_taken(error) from error
        for replica in self._replicas:
            replica.up = True
            self._background.start(self._watch(replica))

    async def _renew(self, number: int) -> None:
        """Give a replica the newest weights, however often it has to be started for that."""
        assert self._newest is not None
        replica = self._replicas[number]
        while True:
            if number in self._repairs:
                await asyncio.wait({self._repairs[number]})
            self._check_alive()
            if self._broken:
                raise RunStoppedError(self._broken)
            if not replica.up:
                self._lose(replica, "it was lost while it slept")
                continue
            try:
                await replica.update(*self._newest)
            except ServerLostError as error:
                self._lose(replica, str(error))
            except (ServerRefusedError, ServerSlowError) as error:
                raise not_taken(error) from error
            else:
                return

    def _lose(self, replica: Replica, reason: str) -> None:
        """The server is gone: have it brought up again, unless that has begun."""
        number = self._replicas.index(replica)
        if self._stopped or number in self._repairs:
            return
        replica.up = False
        self._repairs[number] = self._background.start(self._repair(number, reason))

    async def _repair(self, number: int, reason: str) -> None:
        """Bring a lost server up with the newest weights, as often as the recipe allows."""
        replica = self._replicas[number]
        try:
            while not replica.up:
                if self.restarts >= self._config.max_restarts:
                    allowed = f"engine.max_restarts ({self._config.max_restarts}) allows"
                    self._broken = f"vLLM servers were lost more often than {allowed}: {reason}"
                    break
                self.restarts += 1
                log.warning("vLLM server %d is brought up again: %s", number, reason)
                try:
                    await self._bring_back(replica)
                except RunStoppedError as error:
                    self._broken = str(error)
                    break
                except InfrastructureError as error:
                    reason = str(error)
        finally:
            del self._repairs[number]
            self._background.tell()

    async def _bring_back(self, replica: Replica) -> None:
        assert self._newest is not None
        expected = self._expected
        try:
            await replica.bring_up(*self._newest)
        except ServerRefusedError as error:
            raise not_taken(error) from error
        if expected and expected is self._expected:  # else load_weights() is about to check
            self._compare(replica, await self._sampled(replica), expected)
        replica.up = True

    async def _watch(self, replica: Replica) -> None:
        """Find out that a server is lost even while nothing is asked of it."""
        bad = 0
        while not self._stopped:
            await asyncio.sleep(WATCH_SECONDS)
            if not replica.up or not self._open:
                bad = 0
                continue
            bad = 0 if await replica.well() else bad + 1
            if replica.up and (bad >= BAD_LOOKS or replica.replaced):
                bad = 0
                self._lose(replica, f"vLLM at {replica.url} is not well, or was started again")

    async def _check_parity(self, version: int) -> None:
        """Compare every server with the model. Raises RunStoppedError above the bound."""
        for number, replica in enumerate(self._replicas):
            try:
                sampled = await self._sampled(replica)
            except ServerLostError as error:
                self._lose(replica, str(error))
                await self._renew(number)
                sampled = await self._sampled(replica)
            expected = await asyncio.to_thread(score, self._model, sampled)
            self._compare(replica, sampled, expected, f" of version {version}")
        self._expected = expected

    async def _sampled(self, replica: Replica) -> list[Probe]:
        return await sample_probes(partial(self._ask, replica), replica.model, self._probes)

    def _compare(
        self, replica: Replica, sampled: list[Probe], expected: list[Probe], which: str = ""
    ) -> None:
        self.parity, bound = disagreement(sampled, expected), self._parity_bound
        excused = self.parity > bound and not self._config.parity_bound
        allowed = rounding(self._model, sampled) if excused else 0.0
        check_parity(self.parity, bound, replica.url, which, allowed)
