"""Between passes of the embedded engine: requests are admitted, new weights loaded."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel

from turnwise.engines.cache_allocator import CacheAllocator
from turnwise.engines.sessions import Future, Request
from turnwise.errors import ConfigError, unknown_name

ADMIT_SHARE = 8
"""Requests are prefilled together once there is one for every so many running ones."""
PATIENCE = 16
"""Forward passes after which to prefill anyway: few rows cost as much as many."""


def is_due(running: float, ready: float, passes: float) -> bool:
    """Whether to begin with `ready` turns beside `running` ones, so many passes after the last."""
    if running == 0 or ready * ADMIT_SHARE >= running:
        return True
    return ready > 0 and passes >= PATIENCE


class Schedule:
    """At most `max_sequences` requests run, admitted by names in lockstep, else by arrival."""

    def __init__(self, allocator: CacheAllocator, max_sequences: int, deterministic: bool) -> None:
        self._allocator, self._max_sequences = allocator, max_sequences
        self._deterministic = deterministic
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self._ended = 0
        """Running requests that have ended since the last admission."""
        self._passes = 0
        """Forward passes since the last admission."""

    @property
    def has_requests(self) -> bool:
        return bool(self.running or self.waiting)

    def drop_ended(self) -> None:
        """Forget requests that have their result, or were cancelled."""
        ended = {request for request in self.running + self.waiting if request.future.done()}
        if not ended:
            return
        for request in ended:
            if request.session.request is request:
                request.session.request = None  # cancelled, and who asked has not run since
        running = [request for request in self.running if request not in ended]
        self._ended += len(self.running) - len(running)
        self.running = running
        self.waiting = [request for request in self.waiting if request not in ended]

    def admission_due(self) -> bool:
        """Whether to admit requests now; lockstep counts ended turns, since when others begin to
        wait depends on the clock."""
        running = len(self.running)
        free = self._max_sequences - running
        ready = self._ended if self._deterministic else min(len(self.waiting), free)
        return is_due(running, ready, self._passes)

    def admit(self) -> None:
        """Let those run that find room; RuntimeError if an idle engine has none for the first."""
        self._ended = self._passes = 0
        if self._deterministic:
            self.waiting.sort(key=lambda request: request.session.name)
        seated = self._allocator.seat(self.waiting, self._max_sequences - len(self.running))
        self.waiting = self.waiting[len(seated) :]
        self.running += seated
        self._allocator.tidy(self.running)
        if self.waiting and not self.running:
            raise RuntimeError("no request finds room in an idle engine's cache")

    def begin_pass(self) -> None:
        """Count a pass; the running requests that find no more room in the cache wait again."""
        self._passes += 1
        back = self._allocator.grow(self.running, self.waiting)
        # Ahead of the queue: they were admitted before all that are in it.
        self.waiting = back + self.waiting
        self.running = [request for request in self.running if request not in back]

    def fail(self, error: BaseException) -> None:
        for request in self.running + self.waiting:
            request.fail(error)
        self.running.clear()
        self.waiting.clear()


@dataclass(frozen=True)
class WeightUpdate:
    """New weights that wait for the end of a forward pass."""

    changes: list[tuple[torch.Tensor, torch.Tensor]]
    version: int
    done: Future[None]

    @torch.no_grad()
    def load(self) -> None:
        for target, source in self.changes:
            target.copy_(source)


def match_weights(
    model: PreTrainedModel, weights: Mapping[str, Any]
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The model's own tensors and their new values; ConfigError for a wrong name or shape."""
    known = model.state_dict(keep_vars=True)
    changes = []
    for name, values in weights.items():
        if name not in known:
            raise unknown_name("weight", name, known)
        source = torch.as_tensor(values)
        if source.shape != known[name].shape:
            shapes = f"{list(source.shape)}, the model's is {list(known[name].shape)}"
            raise ConfigError(f"weight {name!r} has shape {shapes}")
        changes.append((known[name], source))
    return changes
