"""An agent that branches, on a real model: what was sampled is what a whole forward pass says."""

import asyncio
from typing import Any

import torch

from tests.fakes import byte_tokenizer, small_model
from turnwise.config import RolloutConfig, ScaffoldConfig
from turnwise.engines.embedded import EmbeddedEngine
from turnwise.tokens import Tokens
from turnwise_gateway.rendering import Scaffolds
from turnwise_gateway.requests import Message, Reply, Request
from turnwise_gateway.session import Session

TOKENIZER = byte_tokenizer()
MODEL = small_model(TOKENIZER)
LIMITS = RolloutConfig(max_turns=30, max_turn_tokens=12, max_tokens=400)


async def sampled(deterministic: bool) -> Tokens:
    """A conversation, another try in its middle, several choices, and sub-agents side by side."""
    engine = EmbeddedEngine(
        MODEL, TOKENIZER, max_sequences=4, max_tokens=400, deterministic=deterministic
    )
    engine.open("0-0")
    scaffolds = Scaffolds(ScaffoldConfig(options={"instructions": ""}), TOKENIZER)
    own = Session("0-0", 1, LIMITS, engine, scaffolds, TOKENIZER)

    async def ask(messages: list[Message], **others: Any) -> Reply:
        reply = await own.ask(Request(tuple(messages), **others))
        own.arrived(reply)
        return reply

    talk = [Message("user", "Who is it?")]
    for words in ("Go on.", "And then?", "Last."):
        reply = await ask(talk)
        talk += [Message("assistant", reply.choices[0].text), Message("user", words)]
    await ask(talk[:3])
    await ask(talk, count=3)
    await asyncio.gather(*(ask([Message("user", f"Part {n}?")]) for n in range(4)))
    tokens, turns, capture = own.record()
    await own.close()
    await engine.stop()
    assert len(turns) == 11
    assert capture.coverage == 1.0
    return tokens


def test_log_probabilities_are_those_of_a_whole_forward_pass() -> None:
    for deterministic in (True, False):
        tokens = asyncio.run(sampled(deterministic))
        assert len(tokens.spans) == 8
        for span in tokens.spans:
            ids = torch.from_numpy(tokens.ids[span].copy())
            with torch.no_grad():
                logits = MODEL(ids[None]).logits[0].float()
            found = torch.log_softmax(logits[:-1], -1).gather(1, ids[1:, None])[:, 0]
            own = torch.from_numpy(tokens.mask[span][1:].copy())
            recorded = torch.from_numpy(tokens.logprob[span][1:].copy())
            assert own.any()
            torch.testing.assert_close(recorded[own], found[own], atol=1e-4, rtol=0)
