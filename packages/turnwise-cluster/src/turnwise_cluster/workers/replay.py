"""The turns of an episode that were sampled already, for when another worker plays it again.

An episode that is played again asks for the same turns as long as its environment repeats: it gets
what was sampled for them, and from the first other prompt on, new ones. So the engine samples
nothing twice, and a run in which workers die is the run in which none do, where environments are
deterministic. Not here: when an episode is played again (`pool.py`).
"""

import hashlib
from dataclasses import dataclass, field

from turnwise.engines.base import Completion, Sampling
from turnwise.rollout.remote_episode import Sample
from turnwise_cluster.workers.frames import Asked


@dataclass
class Replay:
    """The policy's turns of one episode.

    Example: `await replay.turn(asked)`; `replay.rewind()`.
    """

    sample: Sample
    _sampled: list[tuple[bytes, Sampling, Completion]] = field(default_factory=list)
    """With a digest of each prompt."""
    _next: int = 0

    async def turn(self, asked: Asked) -> Completion:
        """The turn that is asked for, sampled unless it was before. Raises as `sample`."""
        prompt = hashlib.sha256(asked.prompt.tobytes()).digest()
        if self._next < len(self._sampled):
            before, sampling, completion = self._sampled[self._next]
            if (before, sampling) == (prompt, asked.sampling):
                self._next += 1
                return completion
            del self._sampled[self._next :]
        completion = await self.sample(asked.prompt.tolist(), asked.sampling)
        self._sampled.append((prompt, asked.sampling, completion))
        self._next += 1
        return completion

    def rewind(self) -> None:
        """The episode begins anew."""
        self._next = 0
