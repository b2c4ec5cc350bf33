"""What agents ask for, as tokens: exact, each once, whatever they do with their conversations; and
on a real model what was sampled is what a whole forward pass says."""

import asyncio
import random
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway_tests.asking import PROMPT, asked, limits, request, session, went_on
from gateway_tests.hashed_engine import TOKENIZER, HashedEngine, check_record
from tests.fakes import small_model
from turnwise.config import RolloutConfig, ScaffoldConfig
from turnwise.engines.embedded import EmbeddedEngine
from turnwise.tokens import Tokens
from turnwise_gateway.rendering import Scaffolds
from turnwise_gateway.requests import Message, RefusedError, Reply, Request
from turnwise_gateway.session import Session

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


THOUGHT = "<think> Hm.</think>"
RAW = {
    (("lookup", "France"), ""): "<lookup> France</lookup>",
    (("lookup", "Italy"), ""): f"{THOUGHT}<lookup> Italy</lookup>",
    ((), "Oslo"): f"{THOUGHT}<answer> Oslo</answer>",
    ((), "Paris"): "<answer> Paris</answer>",
    ((), "Rome"): "<answer> Rome</answer>",
    ((), "nonsense"): "nonsense",
    ((), "something else"): "<answer> something else</answer>",
}
"""The tokens' text of each message of the assistant."""


def written(messages: tuple[Message, ...], without_thoughts: bool) -> str:
    """The text that the policy should read before it replies to these messages; thoughts before the
    last words of a user are left out or not."""
    text, fresh = "", list[str]()
    for place, message in enumerate((*messages, Message("assistant", "")), 1):
        if message.role != "assistant":
            fresh.append(message.text)
            continue
        shown = "\n\n".join(fresh)
        text += f"\n<information> {shown}</information>\n" if text else f"{shown}\n"
        call = tuple((one.name, one.arguments["country"]) for one in message.calls)
        turn = RAW.get((*call, message.text) if call else ((), message.text), "")
        if without_thoughts and any(one.role == "user" for one in messages[place:]):
            turn = turn.removeprefix(THOUGHT)
        text, fresh = text + turn, []
    return text


class Program:
    """An agent that does anything: goes on, tries again, forks, edits, sums up, loses replies."""

    def __init__(self, own: Session, seed: int) -> None:
        self.own, self.stream = own, random.Random(seed)
        self.conversations: list[tuple[Message, ...]] = [PROMPT]

    async def step(self) -> None:
        kinds = (self.go_on, self.go_on, self.edit, self.cut, self.sum_up, self.lose, self.together)
        await self.stream.choice(kinds)()

    async def ask(self, messages: tuple[Message, ...], **others: Any) -> None:
        reply = await asked(self.own, messages, **others)
        for exchange in self.own._exchanges[reply.id]:
            before = exchange.context.tokens.ids[: exchange.start].tolist()
            assert TOKENIZER.decode(before) == written(messages, self.own.leave_out_thoughts)
        choice = self.stream.randrange(len(reply.choices))
        shown = self.stream.choice(["It is Paris.", "Look again.", ""])
        self.conversations.append(went_on(messages, reply, shown, choice))

    async def go_on(self) -> None:
        await self.ask(self.stream.choice(self.conversations), count=self.stream.choice([1, 1, 2]))

    async def edit(self) -> None:
        messages = list(self.stream.choice(self.conversations))
        places = [n for n, one in enumerate(messages) if one.role == "assistant" and not one.calls]
        for place in places[:1]:
            messages[place] = replace(messages[place], text="something else")
        await self.ask(tuple(messages))

    async def cut(self) -> None:
        messages = self.stream.choice(self.conversations)
        ends = [n for n, one in enumerate(messages, 1) if one.role == "user"]
        await self.ask(messages[: self.stream.choice(ends)])

    async def sum_up(self) -> None:
        kept = self.stream.choice(self.conversations)[-2:]
        plain = [one for one in kept if one.role != "tool" and not one.calls]
        await self.ask((Message("user", "So far: nothing."), *plain, Message("user", "Go on.")))

    async def lose(self) -> None:
        messages = self.stream.choice(self.conversations)
        reply = await self.own.ask(request(messages))
        if self.stream.random() < 0.5:
            again = await self.own.ask(request(messages), again=True)
            assert again is reply
            self.own.arrived(again)

    async def together(self) -> None:
        some = [self.stream.choice(self.conversations) for _ in range(3)]
        await asyncio.gather(*(self.ask(messages) for messages in some))


@given(st.integers(0, 2**32), st.integers(1, 8), st.booleans())
@settings(max_examples=150, deadline=None)
@pytest.mark.long
def test_each_sampled_token_is_in_the_record_once_or_in_the_account(
    seed: int, steps: int, without_thoughts: bool
) -> None:
    async def work() -> None:
        engine = HashedEngine()
        own = session(
            engine, limits(max_turns=25, max_tokens=600), leave_out_thoughts=without_thoughts
        )
        program = Program(own, seed)
        for _ in range(steps):
            try:
                await program.step()
            except RefusedError as refused:
                assert own.limit is not None or "follow one another" in refused.message  # noqa: PT017
        tokens, turns, capture = own.record()
        check_record(tokens)
        assert (
            engine.sampled
            == capture.sampled
            == int(tokens.mask.sum()) + sum(capture.dropped.values())
        )
        sampled = [one for one in own.contexts.exchanges if one.action is not None]
        kept = sorted(tuple(one.written) for one in sampled if one.delivered)
        own_turns = [
            tuple(tokens.ids[tokens.mask & (tokens.turn == n)].tolist()) for n in range(len(turns))
        ]
        assert sorted(own_turns) == kept
        assert engine.open_sessions == {"0-0"}

    asyncio.run(work())
