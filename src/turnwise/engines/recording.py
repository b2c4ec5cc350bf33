"""The experts that routers choose as the embedded engine samples, kept with cached tokens."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from turnwise.engines.base import Sampling
from turnwise.engines.batches import Batch
from turnwise.engines.sessions import Session
from turnwise.errors import ConfigError
from turnwise.forward.routing import recorded_experts, routers_in
from turnwise.forward.runner import Runner
from turnwise.tokens import NO_EXPERT


class RoutingRecorder:
    """Records the passes of a runner for sessions that ask for it."""

    def __init__(self, runner: Any) -> None:
        self._routers = routers_in(runner.model)
        self._in_rows = isinstance(runner, Runner)
        """Whether a pass goes through the layers as a batch of rows."""

    def begin(self, session: Session, sampling: Sampling) -> None:
        """Make room for a session's experts, if asked for; ConfigError where there are none."""
        if sampling.experts_from is None or session.experts is not None:
            return
        if not self._routers or not self._in_rows:
            why = "over its own caches" if self._routers else "without experts"
            raise ConfigError(
                f"the embedded engine samples from this model {why}, so that there is no routing "
                "to record: leave rollout.routing_replay out"
            )
        router: Any = self._routers[0]
        shape = len(session.history), len(self._routers), int(router.top_k)
        session.experts = np.full(shape, NO_EXPERT, np.int16)

    @contextmanager
    def recording(self, batch: Batch) -> Iterator[None]:
        """Keep what routers choose for the inputs of a pass, with those sessions that ask."""
        if all(request.session.experts is None for request in batch.requests):
            yield
            return
        with recorded_experts(self._routers) as found:
            yield
        chosen = torch.stack(found, 1).to(torch.int16).cpu().numpy()
        rows = chosen.reshape(*batch.ids.shape, *chosen.shape[1:])
        computed = {run.start: row for row, run in enumerate(batch.runs)}
        for run, others, _ in batch.copies:
            computed |= {other.start: computed[run.start] for other in others}
        for request, count in zip(batch.requests, batch.counts, strict=True):
            session = request.session
            if session.experts is not None:
                # Rows are right-aligned: the last `count` inputs are the request's own.
                new = rows[computed[request.run.start], batch.ids.shape[1] - count :]
                session.experts[session.length : session.length + count] = new
