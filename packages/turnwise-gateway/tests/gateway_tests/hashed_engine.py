"""An engine whose log-probabilities are a function of all that a token follows, so that a record
can be checked against what was really sampled."""

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

import numpy as np

from tests.fakes import byte_tokenizer
from turnwise.engines.base import Completion, Sampling, StopReason
from turnwise.errors import InfrastructureError
from turnwise.tokens import Image, KeptTokens, Tokens

TOKENIZER = byte_tokenizer()
TURNS = (
    "<lookup> France</lookup>",
    "<think> Hm.</think><lookup> Italy</lookup>",
    "<answer> Paris</answer>",
    "<answer> Rome</answer>",
    "<think> Hm.</think><answer> Oslo</answer>",
    "nonsense",
)


def encode(text: str) -> list[int]:
    return list(TOKENIZER(text, add_special_tokens=False)["input_ids"])


def logprob(before: Sequence[int], token: int) -> float:
    digest = sha256(repr([*before, token]).encode()).digest()
    return -int.from_bytes(digest[:3], "big") / 2**24


class HashedEngine:
    """Says one of `TURNS`, by the request's seed, after as many turns of the loop as that says. A
    token is drawn among itself and the number of tokens before it."""

    version = 3
    host: Any = None
    """Set by tests that need the gateway in an engine."""

    def __init__(
        self, turns: Sequence[str] = TURNS, fails: Sequence[int] = (), seconds: float = 0.0
    ) -> None:
        """The requests of the numbers `fails`, from 1 on, fail; each takes so many seconds."""
        self.turns, self.fails, self.seconds = turns, set(fails), seconds
        self.seeds: list[int | None] = []
        """Those of the requests."""
        self.open_sessions: set[str] = set()
        self.busy: set[str] = set()
        self.requests = 0
        self.sampled = 0

    def open(self, session: str) -> None:
        assert session not in self.open_sessions
        self.open_sessions.add(session)

    def close(self, session: str) -> None:
        self.open_sessions.discard(session)

    async def generate(
        self,
        prompt: Sequence[int],
        sampling: Sampling,
        *,
        session: str,
        images: Sequence[Image] = (),
    ) -> Completion:
        del images
        assert session in self.open_sessions
        assert session not in self.busy
        self.requests += 1
        self.seeds.append(sampling.seed)
        fails = self.requests in self.fails
        self.busy.add(session)
        stream = random.Random(sampling.seed)
        try:
            if self.seconds:
                await asyncio.sleep(self.seconds)
            for _ in range(stream.randrange(4)):
                await asyncio.sleep(0)
        finally:
            self.busy.discard(session)
        if fails:
            raise InfrastructureError("the engine is down")
        tokens = encode(stream.choice(self.turns))[: sampling.max_tokens]
        known, logprobs, sets = list(prompt), [], []
        for token in tokens:
            logprobs.append(logprob(known, token))
            sets.append([token, len(known)])
            known.append(token)
        self.sampled += len(tokens)
        said = Completion(tokens, logprobs, StopReason.STOP_STRING, self.version)
        return replace(said, kept=KeptTokens.of(sets)) if sampling.returns_kept else said

    async def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        raise NotImplementedError

    async def sleep(self) -> None: ...

    async def stop(self) -> None: ...


def check_record(tokens: Tokens) -> None:
    """Every sampled token stands after what it was sampled after, and with what it was drawn
    among."""
    for span in tokens.spans:
        ids = tokens.ids[span].tolist()
        for place, sampled in enumerate(tokens.mask[span]):
            if sampled:
                found = float(tokens.logprob[span.start + place])
                assert abs(found - logprob(ids[:place], ids[place])) < 1e-6
        if tokens.kept is not None:
            kept, places = tokens.kept[span], np.flatnonzero(tokens.mask[span])
            expected = [id for place in places.tolist() for id in (ids[place], place)]
            assert kept.ids.tolist() == expected
            assert np.array_equal(kept.counts, 2 * tokens.mask[span])
