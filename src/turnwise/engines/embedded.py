"""The engine in process: continuous batching over one transformers model, no server.

Each session keeps its keys and values across its turns; a request prefills only what is new.

Next: `engines/sampling.py`.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from turnwise.engines.base import Completion, Engine, EngineSetup, Sampling, StopReason
from turnwise.engines.batches import Batch, find_donor, image_inputs, next_batch, shared_beginning
from turnwise.engines.cache_allocator import CacheAllocator
from turnwise.engines.images import SessionImages
from turnwise.engines.recording import RoutingRecorder
from turnwise.engines.sampling import (
    Drawn,
    StopMatcher,
    TokenTexts,
    check_prompt,
    check_sampling,
    end_tokens,
    sample,
    uniforms,
)
from turnwise.engines.schedule import Schedule, WeightUpdate, match_weights
from turnwise.engines.sessions import Future, PreparedRequest, Request, Session, fail, keep, run_of
from turnwise.engines.threaded import ThreadedEngine
from turnwise.errors import ConfigError, InfrastructureError
from turnwise.forward.make_runner import make_runner
from turnwise.forward.runner import ImageRunner, Runner
from turnwise.tokens import Image


@dataclass
class Counters:
    """Counts of what the engine has done so far."""

    passes: int = 0
    """Forward passes."""
    computed: int = 0
    """Tokens put through the model: not those cached, or computed for another session."""
    sampled: int = 0
    seconds: float = 0.0
    """Spent on forward passes: their inputs, the model, sampling, and handing tokens out."""


class EmbeddedEngine:
    """Samples from a causal language model.

    The cache holds `kv_cache_tokens` tokens of at most `max_sequences` sessions; by default there
    is room for all at their longest, `max_tokens`. More sessions may be open: idle ones give up
    their part first, and are prefilled again later, be it in the middle of a turn.

    With `deterministic`, the same seeds give bit-identical results however long tools take:
    requests are admitted only once every open session has one (so open all that belong together
    before the first request), in the order of their names, with room for their whole turns.
    Otherwise they are admitted in order of arrival. Passes block the event loop (`threaded.py`).
    """

    takes_images = True
    shares_weights = True
    returns_kept = True

    @classmethod
    def build(cls, setup: EngineSetup, kv_cache_tokens: int = 0) -> Engine:
        config = setup.config
        engine = cls(
            setup.model,
            setup.tokenizer,
            max_sequences=config.max_sequences,
            max_tokens=setup.max_tokens,
            deterministic=config.in_lockstep,
            kv_cache_tokens=kv_cache_tokens or None,
        )
        return engine if config.in_lockstep else ThreadedEngine(engine)

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: Any,
        *,
        max_sequences: int,
        max_tokens: int,
        deterministic: bool,
        kv_cache_tokens: int | None = None,
    ) -> None:
        if max_sequences < 1:
            raise ConfigError(
                f"the engine has max_sequences = {max_sequences}: it needs at least 1"
            )
        if max_tokens < 2:
            raise ConfigError(f"the engine's max_tokens is {max_tokens}: it must be at least 2")
        positions = getattr(model.config.get_text_config(), "max_position_embeddings", None) or 0
        self._limit = min(max_tokens, positions) if positions > 0 else max_tokens
        self._vocabulary: int = model.get_input_embeddings().num_embeddings
        self._model = model
        tokens = max_sequences * self._limit if kv_cache_tokens is None else kv_cache_tokens
        if tokens < self._limit:
            raise ConfigError(
                f"engine.kv_cache_tokens is {tokens}, but one trajectory may have {self._limit}: "
                "raise it"
            )
        self.runner = make_runner(model, tokens, self._limit)
        self._routing = RoutingRecorder(self.runner)
        self._texts = TokenTexts(tokenizer)
        self._ends = end_tokens(model, tokenizer)
        move = self.runner.cache.move
        self._allocator = CacheAllocator(tokens, max_sequences, self._limit, move, deterministic)
        self._schedule = Schedule(self._allocator, max_sequences, deterministic)
        self._deterministic = deterministic
        self._sessions: dict[str, Session] = {}
        self._updates: list[WeightUpdate] = []
        self._stopped = False
        self._pump: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self.version = 0
        self.counters = Counters()

    @property
    def evictions(self) -> int:
        return self._allocator.evictions

    def open(self, session: str) -> None:
        """Announce a trajectory. Raises RuntimeError when it is open already."""
        if session in self._sessions:
            raise RuntimeError(f"session {session!r} is open already")
        self._sessions[session] = Session(session, np.zeros(self._limit, np.int64))

    def close(self, session: str) -> None:
        closed = self._sessions.pop(session, None)
        if closed is None:
            return
        if closed.request is not None:
            # The schedule drops it, its future being done, before the next pass.
            closed.request.future.cancel()
            closed.request = None
        self._allocator.free(closed)
        self._wake.set()

    async def generate(
        self,
        prompt: Sequence[int],
        sampling: Sampling,
        *,
        session: str,
        images: Sequence[Image] = (),
    ) -> Completion:
        """See Engine. A prompt that leaves no room gives an empty completion with CONTEXT. Raises
        ConfigError for a prompt, sampling or images that make no sense, InfrastructureError when
        the engine is stopped, RuntimeError for a session that is not open or has a request."""
        prepared = self.prepare(prompt, sampling, images)
        future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self.submit(prepared, session, future)
        self._keep_pumping()
        try:
            return await future
        finally:
            self._wake.set()  # one that was cancelled is dropped, though lockstep waits for others

    def prepare(
        self, prompt: Sequence[int], sampling: Sampling, images: Sequence[Image] = ()
    ) -> PreparedRequest:
        """The argument of `submit`, from any thread; ConfigError for what makes no sense."""
        check_sampling(sampling)
        history = check_prompt(prompt, self._vocabulary)
        room = max(0, self._limit - len(history))
        # All random numbers of the turn, by its seed: they do not depend on what shares its passes.
        draws = uniforms(sampling.seed, min(room, sampling.max_tokens))
        return PreparedRequest(
            history, images, sampling, draws, StopMatcher(sampling.stop, self._texts)
        )

    def submit(self, prepared: PreparedRequest, session: str, future: Future[Completion]) -> None:
        """Have a turn sampled from the next pass on; raises as `generate`."""
        prompt = prepared.prompt
        images = self._images(prompt, prepared.images)
        holder = self._check_session(session)
        if not len(prepared.draws):
            keep(future, Completion([], [], StopReason.CONTEXT, self.version))
            return
        self._routing.begin(holder, prepared.sampling)
        holder.begin(prompt if images is None else images.history)
        # A model's own caches cannot be cut back to the tokens that the new prompt begins with.
        if holder.length:
            holder.length = self.runner.cache.usable(run_of(holder), holder.length)
        holder.images = images
        sampling, draws, matcher = prepared.sampling, prepared.draws, prepared.matcher
        holder.request = Request(holder, len(prompt), sampling, draws, matcher, future)
        self._schedule.waiting.append(holder.request)

    async def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        """Replace weights in place, between two forward passes.

        Names are those of the model's state dict; others keep their values, so an empty mapping
        announces that weights were changed in place. All cached keys and values are dropped:
        requests under way are prefilled again, so that every token is sampled by a single version,
        given all tokens before it. ConfigError for an unknown name or shape, changing nothing.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.replace(weights, version, done)
        self._wake.set()
        # Without requests there are no passes, and so nothing to wait for.
        if self._pump is None or self._pump.done():
            self._load_weights()
        await done

    def replace(self, weights: Mapping[str, Any], version: int, done: Future[None]) -> None:
        self._updates.append(WeightUpdate(match_weights(self._model, weights), version, done))

    async def sleep(self) -> None:
        """Keeps everything: the weights are the trainer's own."""

    async def stop(self) -> None:
        """End the background work; requests that wait get InfrastructureError. Idempotent."""
        self._stopped = True
        self._wake.set()
        if self._pump is not None and not self._pump.done():
            # `wait` raises nothing of the task's: `_work_ended` gives its error to the requests.
            await asyncio.wait({self._pump})
        self.end()

    def end(self) -> None:
        """End everything, as `stop` does, between two passes."""
        self._stopped = True
        # Who gave weights waits for them to be loaded, though no pass follows.
        self._load_weights()
        self.fail(InfrastructureError("the engine was stopped"))

    def advance(self) -> bool:
        """Do what is due, then a pass; False without requests, or where lockstep waits."""
        self._load_weights()
        self._schedule.drop_ended()
        if self._schedule.admission_due():
            # Running requests wait too: a pass's rows must not depend on how long a tool takes.
            if self._deterministic and any(one.request is None for one in self._sessions.values()):
                return False
            self._schedule.admit()
        if self._schedule.running:
            self._step()
        return self._has_work()

    def fail(self, error: BaseException) -> None:
        """Give an error to all requests; what is cached is not relied on any more."""
        self._forget()
        self._schedule.fail(error)

    def _images(self, prompt: np.ndarray, images: Sequence[Image]) -> SessionImages | None:
        if not images:
            return None
        if not isinstance(self.runner, ImageRunner):
            raise ConfigError(f"the engine's {type(self._model).__name__} takes no images")
        return SessionImages.of(self.runner.reader, prompt, images)

    def _check_session(self, name: str) -> Session:
        if self._stopped:
            raise InfrastructureError("the engine was stopped")
        if name not in self._sessions:
            raise RuntimeError(f"session {name!r} is not open")
        request = self._sessions[name].request
        if request is not None and not request.future.done():  # done: cancelled just now
            raise RuntimeError(f"session {name!r} has a request under way")
        return self._sessions[name]

    def _forget(self) -> None:
        for session in self._sessions.values():
            session.length = 0

    def _load_weights(self) -> None:
        """Load the weights given since the last pass; errors reach who gave them."""
        updates, self._updates = self._updates, []
        for update in updates:
            # Before the weights: a load that fails half-way has changed some of them.
            self._forget()
            try:
                update.load()
                self.runner.refresh()
            except RuntimeError as error:  # PyTorch's, out of memory among them
                fail(update.done, error)
                continue
            self.version = update.version
            keep(update.done, None)

    def _has_work(self) -> bool:
        return not self._stopped and self._schedule.has_requests

    def _keep_pumping(self) -> None:
        self._wake.set()
        if self._has_work() and (self._pump is None or self._pump.done()):
            # A new one: an event stays with the loop that first waited for it.
            self._wake = asyncio.Event()
            self._pump = asyncio.get_running_loop().create_task(self._work())
            self._pump.add_done_callback(self._work_ended)

    def _work_ended(self, task: "asyncio.Task[None]") -> None:
        # Those given since its last pass: nothing else would load them.
        self._load_weights()
        if task.cancelled():
            self.fail(InfrastructureError("the engine's background task was cancelled"))
        elif (error := task.exception()) is not None:
            self.fail(error)

    async def _work(self) -> None:
        """Runs while there is something to do, and waits only where lockstep demands it."""
        while self._has_work():
            self._wake.clear()
            if self.advance():
                await asyncio.sleep(0)  # now those go on whose turns have ended
            elif self._has_work():
                await self._wake.wait()

    def _step(self) -> None:
        """One forward pass, for all that find room in the cache; the others wait again."""
        start = time.monotonic()
        self._schedule.begin_pass()
        self._copy_beginnings()
        batch = next_batch(self._schedule.running)
        self._apply(batch, self._compute(batch))
        self.counters.seconds += time.monotonic() - start

    def _copy_beginnings(self) -> None:
        """Copy what a request lacks and another session has, in lockstep a running one: when others
        close depends on the clock."""
        running = [request.session for request in self._schedule.running]
        donors = running if self._deterministic else self._allocator.seated
        # The last token is computed in any case, for its logits: one alone is not worth a copy.
        for request in self._schedule.running:
            if request.missing > 1 and (found := find_donor(request, donors)):
                donor, length = found
                if self.runner.cache.usable(run_of(donor), length) == length:
                    new = slice(request.session.length, length)
                    self.runner.cache.copy(run_of(donor), [request.run], new)
                    request.session.take_over(donor, length)

    def _compute(self, batch: Batch) -> Drawn:
        with self._routing.recording(batch):
            if isinstance(self.runner, ImageRunner):
                batch, shown = image_inputs(batch, self.runner.reader)
                logits = self.runner.forward_images(batch.runs, batch.ids, batch.positions, shown)
            elif isinstance(self.runner, Runner) and self.runner.specialised:
                shared = shared_beginning(batch.requests)
                logits = self.runner.forward(batch.runs, batch.ids, batch.positions, shared=shared)
            else:
                logits = self.runner.forward(batch.runs, batch.ids, batch.positions)
        for run, others, columns in batch.copies:
            self.runner.cache.copy(run, others, columns)
        return self._sample(batch, logits) if batch.sampled else Drawn([], [], [])

    def _sample(self, batch: Batch, logits: torch.Tensor) -> Drawn:
        if batch.picks is not None:
            logits = logits[torch.from_numpy(batch.picks).to(logits.device)]
        logits = self._processed(logits, batch.sampled)
        samplings = [request.sampling for request in batch.sampled]
        draws = [request.draws[len(request.tokens)] for request in batch.sampled]
        return sample(logits, samplings, draws)

    @torch.inference_mode()
    def _processed(self, logits: torch.Tensor, sampled: Sequence[Request]) -> torch.Tensor:
        for row, request in enumerate(sampled):
            for processor in request.sampling.processors:
                known = request.session.ids(request.known)[None]
                ids = torch.from_numpy(known).to(logits.device)
                logits[row] = processor(ids, logits[row : row + 1].clone())[0]
        return logits

    def _apply(self, batch: Batch, drawn: Drawn) -> None:
        self.counters.passes += 1
        self.counters.sampled += len(batch.sampled)
        self.counters.computed += batch.computed
        for request, count in zip(batch.requests, batch.counts, strict=True):
            request.session.length += count
        sampled = zip(drawn.tokens, drawn.logprobs, drawn.kept, strict=True)
        for request, own in zip(batch.sampled, sampled, strict=True):
            request.take(*own, self.version, self._ends)
