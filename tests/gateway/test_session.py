"""What agents ask for, as tokens: exact, each once, whatever they do with their conversations."""

import asyncio
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gateway.hashed_engine import TOKENIZER, HashedEngine, check_record
from turnwise.config import RolloutConfig, ScaffoldConfig
from turnwise.gateway.contexts import _keys
from turnwise.gateway.rendering import Scaffolds
from turnwise.gateway.requests import Message, RefusedError, Reply, Request, ToolSchema
from turnwise.gateway.session import GivenReward, Session
from turnwise.tokens import Source
from turnwise.types import Outcome, ToolCall

LOOKUP = ToolSchema(
    "lookup",
    "Look a country up.",
    {"type": "object", "properties": {"country": {"type": "string"}}, "required": ["country"]},
)
SCAFFOLDS = Scaffolds(ScaffoldConfig(options={"instructions": ""}), TOKENIZER)
LIMITS = RolloutConfig(max_turns=40, max_turn_tokens=80, max_tokens=2000, max_tool_calls=100)
PROMPT = (Message("user", "Capital of France?"),)


def session(engine: Any = None, limits: RolloutConfig = LIMITS) -> Session:
    engine = engine or HashedEngine()
    engine.open("0-0")
    return Session("0-0", 5, limits, engine, SCAFFOLDS, TOKENIZER, rewarded_by_agent=True)


def request(messages: tuple[Message, ...] = PROMPT, **others: Any) -> Request:
    return Request(messages, (LOOKUP,), **others)


async def asked(own: Session, messages: tuple[Message, ...], **others: Any) -> Reply:
    """A reply, which arrives."""
    reply = await own.ask(request(messages, **others))
    own.arrived(reply)
    return reply


def went_on(messages: tuple[Message, ...], reply: Reply, shown: str, choice: int = 0) -> Any:
    """The conversation after a reply, and what is shown then."""
    chosen = reply.choices[choice]
    told = [Message("tool", shown, call=call.id) for call in chosen.calls]
    echo = Message("assistant", chosen.text, chosen.calls)
    return (*messages, echo, *(told or [Message("user", shown)]))


def texts(own: Session) -> list[str]:
    tokens, _, _ = own.record()
    return [TOKENIZER.decode(tokens.ids[span].tolist()) for span in tokens.spans]


def test_a_conversation_that_goes_on_is_one_context_of_exact_tokens() -> None:
    async def work() -> None:
        own = session(HashedEngine(["<lookup> France</lookup>"]))
        messages = PROMPT
        for shown in ("It is Paris.", "Yes."):
            reply = await asked(own, messages)
            assert reply.choices[0].calls == (
                ToolCall("lookup", {"country": "France"}, reply.choices[0].calls[0].id),
            )
            messages = went_on(messages, reply, shown)
        await asked(own, messages)
        call = "<lookup> France</lookup>"
        first, second = (
            f"\n<information> {shown}</information>\n" for shown in ("It is Paris.", "Yes.")
        )
        assert texts(own) == [f"Capital of France?\n{call}{first}{call}{second}{call}"]
        tokens, turns, capture = own.record()
        check_record(tokens)
        assert len(turns) == capture.calls == 3
        assert capture.sampled == capture.trained == int(tokens.mask.sum())
        assert turns[0].step is not None
        assert turns[0].step.results[0].content == "It is Paris."
        assert (np.diff(tokens.turn) >= 0).all()

    asyncio.run(work())


def test_another_try_is_a_context_of_its_own_with_the_same_beginning() -> None:
    async def work() -> None:
        own = session()
        first = await asked(own, PROMPT)
        second = await asked(own, PROMPT)
        tokens, turns, _ = own.record()
        check_record(tokens)
        assert len(tokens.spans) == len(turns) == 2
        assert first.prompt_tokens == second.prompt_tokens
        assert int(tokens.copied.sum()) == second.prompt_tokens

    asyncio.run(work())


def test_several_choices_are_sampled_apart_and_each_can_be_gone_on_from() -> None:
    async def work() -> None:
        own = session()
        reply = await asked(own, PROMPT, count=3)
        assert len(reply.choices) == 3
        await asked(own, went_on(PROMPT, reply, "Sure?", choice=2))
        tokens, turns, capture = own.record()
        check_record(tokens)
        assert len(tokens.spans) == 3
        assert len(turns) == 4
        assert capture.calls == 2

    asyncio.run(work())


def test_an_edited_reply_is_not_trained_in_the_context_that_has_the_edit() -> None:
    async def work() -> None:
        own = session(HashedEngine(["<answer> Paris</answer>"]))
        await asked(own, PROMPT)
        edited = (*PROMPT, Message("assistant", "Lyon"), Message("user", "Sure?"))
        await asked(own, edited)
        before, after = texts(own)
        assert before.endswith("<answer> Paris</answer>")
        assert after.startswith("Capital of France?\n<answer> Lyon</answer>")
        tokens, _, capture = own.record()
        check_record(tokens)
        assert (
            capture.trained == int(tokens.mask.sum()) == 2 * len(own.contexts.exchanges[0].written)
        )

    asyncio.run(work())


def test_a_repeated_reply_stands_for_its_own_tokens_after_other_messages() -> None:
    async def work() -> None:
        own = session(HashedEngine(["<think> Hm.</think><answer> Paris</answer>"]))
        reply = await asked(own, PROMPT)
        shorter = (Message("user", "Before:"), Message("assistant", reply.choices[0].text))
        await asked(own, (*shorter, Message("user", "Go on.")))
        tokens, _, _ = own.record()
        check_record(tokens)
        inherited = tokens.ids[tokens.source == Source.INHERITED].tolist()
        assert TOKENIZER.decode(inherited) == "<think> Hm.</think><answer> Paris</answer>"

    asyncio.run(work())


def test_a_reply_that_never_arrived_is_given_again_or_dropped() -> None:
    async def work() -> None:
        engine = HashedEngine(["<answer> Paris</answer>"])
        own = session(engine)
        lost = await own.ask(request())
        again = await own.ask(request(), again=True)
        assert again is lost
        assert engine.requests == 1
        _, turns, capture = own.record()
        assert not turns
        assert capture.dropped == {"undelivered": lost.sampled}
        assert (capture.trained, capture.retried) == (0, 1)
        own.arrived(again)
        tokens, turns, capture = own.record()
        check_record(tokens)
        assert len(turns) == 1
        assert not capture.dropped

    asyncio.run(work())


def test_requests_at_the_same_time_have_engine_sessions_of_their_own() -> None:
    async def work() -> None:
        engine = HashedEngine()
        own = session(engine)
        prompts = [(Message("user", f"Question {n}?"),) for n in range(5)]
        await asyncio.gather(*(asked(own, prompt) for prompt in prompts))
        tokens, turns, _ = own.record()
        check_record(tokens)
        assert len(tokens.spans) == len(turns) == 5
        assert engine.open_sessions == {"0-0"}

    asyncio.run(work())


def test_what_is_sampled_does_not_depend_on_the_order_of_requests() -> None:
    async def work(order: list[int]) -> list[str]:
        own = session()
        replies = {n: await asked(own, (Message("user", f"Question {n}?"),)) for n in order}
        return [repr(replies[n].choices[0].text) for n in sorted(replies)]

    assert asyncio.run(work([0, 1, 2])) == asyncio.run(work([2, 0, 1]))


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ((), "the last message"),
        ((*PROMPT, Message("assistant", "Hm.")), "the last message"),
        ((Message("tool", "x", call="1"),), "no call before it"),
        ((*PROMPT, Message("assistant", "a"), Message("assistant", "b"), *PROMPT), "follow one"),
        (
            (*PROMPT, Message("assistant", "a"), Message("tool", "x", call="1")),
            "belongs to no call",
        ),
        (
            (
                *PROMPT,
                Message("assistant", "", (ToolCall("lookup", {"country": "x"}, "1"),)),
                *PROMPT,
            ),
            "has no result",
        ),
        (
            (*PROMPT, Message("assistant", "", (ToolCall("other", {"x": 1}, "1"),)), *PROMPT),
            "cannot write",
        ),
    ],
)
def test_messages_that_cannot_be_rendered_are_refused_and_nothing_is_lost(
    messages: tuple[Message, ...], said: str
) -> None:
    async def work() -> None:
        own = session()
        first = await asked(own, PROMPT)
        with pytest.raises(RefusedError, match=said):
            await own.ask(request(messages))
        await asked(own, went_on(PROMPT, first, "Sure?"))
        tokens, turns, capture = own.record()
        check_record(tokens)
        assert len(turns) == 2
        assert capture.refused == {"messages": 1}

    asyncio.run(work())


def test_budgets_are_refused_with_the_outcome() -> None:
    async def work(limits: RolloutConfig, said: str, outcome: Outcome) -> None:
        own = session(HashedEngine(["<lookup> France</lookup>"]), limits)

        async def go_on_and_on() -> None:
            messages = PROMPT
            while True:
                messages = went_on(messages, await asked(own, messages), "It is Paris.")

        with pytest.raises(RefusedError, match=said):
            await go_on_and_on()
        assert own.limit is outcome
        check_record(own.record()[0])

    asyncio.run(
        work(LIMITS.model_copy(update={"max_turns": 3}), "max_turns", Outcome.TRUNCATED_TURNS)
    )
    asyncio.run(
        work(LIMITS.model_copy(update={"max_tokens": 200}), "length", Outcome.TRUNCATED_TOKENS)
    )
    asyncio.run(
        work(
            LIMITS.model_copy(update={"max_tool_calls": 2}),
            "max_tool_calls",
            Outcome.TRUNCATED_TOOL_CALLS,
        )
    )


def test_another_model_is_not_here() -> None:
    async def work() -> None:
        with pytest.raises(RefusedError, match="no model 'gpt-9'") as refused:
            await session().ask(request(model="gpt-9"))
        assert refused.value.status == 404

    asyncio.run(work())


def test_a_failing_engine_is_said_and_leaves_nothing_behind() -> None:
    async def work() -> None:
        own = session(HashedEngine(fails=[2]))
        first = await asked(own, PROMPT)
        with pytest.raises(RefusedError, match="is down") as refused:
            await own.ask(request(went_on(PROMPT, first, "Sure?")))
        assert refused.value.status == 503
        assert own.failure == "the engine is down"
        await asked(own, went_on(PROMPT, first, "Sure?"))
        assert not own.failure
        tokens, turns, _ = own.record()
        check_record(tokens)
        assert len(turns) == 2
        assert len(tokens.spans) == 1

    asyncio.run(work())


def test_closing_stops_what_is_under_way_and_refuses_what_comes() -> None:
    class Hanging(HashedEngine):
        async def generate(self, *given: Any, **others: Any) -> Any:
            await asyncio.Event().wait()

    async def work() -> None:
        own = session(Hanging())
        waiting = asyncio.create_task(own.ask(request()))
        await asyncio.sleep(0.01)
        assert own.waited > 0
        await own.close()
        with pytest.raises(RefusedError, match="has ended"):
            await waiting
        with pytest.raises(RefusedError, match="has ended"):
            await own.ask(request())
        tokens, turns, _ = own.record()
        assert not len(tokens)
        assert not turns

    asyncio.run(work())


def test_the_engine_s_own_session_is_open_again_when_all_is_answered() -> None:
    """A lockstep engine waits for the agent then, whichever request ends first."""

    class Ordered(HashedEngine):
        async def generate(self, prompt: Any, *given: Any, **others: Any) -> Any:
            late = "late" in TOKENIZER.decode(prompt)
            await asyncio.sleep(0.05 if late else 0)
            return await super().generate(prompt, *given, **others)

    async def work(words: list[str]) -> None:
        engine = Ordered()
        own = session(engine)
        await asyncio.gather(*(asked(own, (Message("user", word),)) for word in words))
        assert engine.open_sessions == {"0-0"}

    asyncio.run(work(["soon", "late"]))
    asyncio.run(work(["late", "soon"]))


def test_a_bug_is_kept_for_the_episode_whatever_the_agent_makes_of_it() -> None:
    class Broken(HashedEngine):
        async def generate(self, *given: Any, **others: Any) -> Any:
            raise RuntimeError("out of memory")

    async def work() -> None:
        own = session(Broken())
        with pytest.raises(ExceptionGroup):
            await own.ask(request())
        assert own.bug is not None

    asyncio.run(work())


def test_rewards_are_refused_where_the_verifier_gives_them() -> None:
    async def work() -> None:
        own = session()
        own.rewarded_by_agent = False
        reply = await asked(own, PROMPT)
        with pytest.raises(RefusedError, match="rewards are the verifier's") as refused:
            own.rewarded(GivenReward(1.0, True))
        assert refused.value.status == 403
        with pytest.raises(RefusedError, match="rewards are the verifier's"):
            own.reward_reply(reply.id, 50.0)

    asyncio.run(work())


def test_results_that_change_places_are_another_conversation() -> None:
    calls = tuple(ToolCall("lookup", {"country": "France"}, f"call_{n}") for n in range(2))
    told = [Message("tool", "Paris", call="call_0"), Message("tool", "Paris", call="call_1")]
    first, second = (
        _keys((*PROMPT, Message("assistant", "", calls), *results))
        for results in (told, told[::-1])
    )
    assert first != second
    other = tuple(replace(call, id=f"mine_{n}") for n, call in enumerate(calls))
    renamed = [replace(one, call=f"mine_{n}") for n, one in enumerate(told)]
    assert _keys((*PROMPT, Message("assistant", "", other), *renamed)) == first


def test_a_whole_number_is_known_however_it_is_written() -> None:
    one, other = (
        _keys((Message("assistant", "", (ToolCall("add", {"n": [n, 0.5]}),)),)) for n in (1, 1.0)
    )
    assert one == other


def test_a_reward_of_a_turn_is_its_step_s() -> None:
    async def work() -> None:
        own = session()
        first = await asked(own, PROMPT)
        await asked(own, went_on(PROMPT, first, "Sure?"))
        own.reward_reply(first.id, 0.25)
        with pytest.raises(RefusedError, match="no reply 'x'"):
            own.reward_reply("x", 1.0)
        with pytest.raises(RefusedError, match="no reply 'call_1_0'"):
            own.reward_reply("call_1_0", 1.0)
        own.reward_reply("chatcmpl-1", 0.5)
        _, turns, _ = own.record()
        assert [turn.step and turn.step.reward for turn in turns] == [0.25, 0.5]

    asyncio.run(work())


RAW = {
    (("lookup", "France"), ""): "<lookup> France</lookup>",
    (("lookup", "Italy"), ""): "<think> Hm.</think><lookup> Italy</lookup>",
    ((), "Paris"): "<answer> Paris</answer>",
    ((), "Rome"): "<answer> Rome</answer>",
    ((), "nonsense"): "nonsense",
    ((), "something else"): "<answer> something else</answer>",
}
"""The tokens' text of each message of the assistant."""


def written(messages: tuple[Message, ...]) -> str:
    """The text that the policy should read before it replies to these messages."""
    text, fresh = "", list[str]()
    for message in (*messages, Message("assistant", "")):
        if message.role != "assistant":
            fresh.append(message.text)
            continue
        shown = "\n\n".join(fresh)
        text += f"\n<information> {shown}</information>\n" if text else f"{shown}\n"
        call = tuple((one.name, one.arguments["country"]) for one in message.calls)
        text, fresh = text + RAW.get((*call, message.text) if call else ((), message.text), ""), []
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
            assert TOKENIZER.decode(before) == written(messages)
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


@given(st.integers(0, 2**32), st.integers(1, 8))
@settings(max_examples=1000, deadline=None)
def test_each_sampled_token_is_in_the_record_once_or_in_the_account(seed: int, steps: int) -> None:
    async def work() -> None:
        engine = HashedEngine()
        own = session(engine, LIMITS.model_copy(update={"max_turns": 25, "max_tokens": 600}))
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
