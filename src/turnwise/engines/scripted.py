"""A fake engine that replays what a function says: tests and demonstrations, no model.

Nothing is sampled, so log-probabilities are NaN and the version is 0.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from turnwise.engines.base import Completion, Sampling, StopReason
from turnwise.errors import NotSupportedError
from turnwise.tokens import Image

ScriptedPolicy = Callable[[str, list[int]], Sequence[int]]
"""(session, whole token history) -> the tokens of the next turn."""


class ScriptedEngine:
    """Plays a policy written as a function. It ends its turns itself: stop strings, temperature
    and seed do not apply.

    Example:
        engine = ScriptedEngine(lambda session, prompt: scaffold.render(Action("", answer="7")))
    """

    version = 0

    def __init__(self, policy: ScriptedPolicy) -> None:
        self._policy = policy
        self._open: set[str] = set()

    def open(self, session: str) -> None:
        """See Engine. Raises RuntimeError when it is open already."""
        if session in self._open:
            raise RuntimeError(f"session {session!r} is open already")
        self._open.add(session)

    def close(self, session: str) -> None:
        self._open.discard(session)

    async def generate(
        self,
        prompt: Sequence[int],
        sampling: Sampling,
        *,
        session: str,
        images: Sequence[Image] = (),
    ) -> Completion:
        """The policy's tokens, cut at `max_tokens`. Raises RuntimeError for an unknown session."""
        del images
        if session not in self._open:
            raise RuntimeError(f"session {session!r} is not open")
        script = list(self._policy(session, list(prompt)))
        tokens = script[: sampling.max_tokens]
        whole = len(tokens) == len(script)
        reason = StopReason.END_OF_TEXT if whole else StopReason.MAX_TOKENS
        return Completion(tokens, [math.nan] * len(tokens), reason, self.version)

    async def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        """Raises NotSupportedError: a script has no weights."""
        raise NotSupportedError("the scripted engine has no weights to load")

    async def sleep(self) -> None:
        """Keeps everything."""

    async def stop(self) -> None:
        """Nothing runs in the background."""
