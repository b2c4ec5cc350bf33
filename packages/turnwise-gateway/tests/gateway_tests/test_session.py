"""A session of an agent: lost replies, budgets, failures, rewards, and its end."""

import asyncio
from typing import Any

import pytest

from gateway_tests.asking import PROMPT, asked, limits, recorded, request, session, texts, went_on
from gateway_tests.hashed_engine import TOKENIZER, HashedEngine
from turnwise.types import Action, Outcome, Verdict
from turnwise_gateway.requests import Message, RefusedError
from turnwise_gateway.sampling import _with_ids


async def test_a_reply_that_never_arrived_is_given_again_or_dropped() -> None:
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
    _, turns, capture = recorded(own)
    assert len(turns) == 1
    assert not capture.dropped


async def test_what_is_sampled_does_not_depend_on_the_order_of_requests() -> None:
    said = []
    for order in ([0, 1, 2], [2, 0, 1]):
        own = session()
        replies = {n: await asked(own, (Message("user", f"Question {n}?"),)) for n in order}
        said.append([repr(replies[n].choices[0].text) for n in sorted(replies)])
    assert said[0] == said[1]


@pytest.mark.parametrize(
    ("limit", "most", "said", "outcome"),
    [
        ("max_turns", 3, "max_turns", Outcome.TRUNCATED_TURNS),
        ("max_tokens", 200, "length", Outcome.TRUNCATED_TOKENS),
        ("max_tool_calls", 2, "max_tool_calls", Outcome.TRUNCATED_TOOL_CALLS),
    ],
)
async def test_budgets_are_refused_with_the_outcome(
    limit: str, most: int, said: str, outcome: Outcome
) -> None:
    own = session(HashedEngine(["<lookup> France</lookup>"]), limits(**{limit: most}))

    async def go_on_and_on() -> None:
        messages = PROMPT
        while True:
            messages = went_on(messages, await asked(own, messages), "It is Paris.")

    with pytest.raises(RefusedError, match=said):
        await go_on_and_on()
    assert own.limit is outcome
    recorded(own)


async def test_a_failing_engine_is_said_and_leaves_nothing_behind() -> None:
    own = session(HashedEngine(fails=[2]))
    first = await asked(own, PROMPT)
    with pytest.raises(RefusedError, match="is down") as refused:
        await own.ask(request(went_on(PROMPT, first, "Sure?")))
    assert refused.value.status == 503
    assert own.failure == "the engine is down"
    await asked(own, went_on(PROMPT, first, "Sure?"))
    assert not own.failure
    _, turns, _ = recorded(own)
    assert len(turns) == 2
    (text,) = texts(own)
    assert text.count("Sure?") == 1  # nothing stays of the request that failed


async def test_choices_of_one_request_have_seeds_of_their_own_and_count_in_the_budget() -> None:
    engine = HashedEngine()
    own = session(engine, limits(max_turns=8))
    with pytest.raises(RefusedError, match="max_turns"):
        await asked(own, PROMPT, count=9)
    with pytest.raises(RefusedError, match="context_length_exceeded"):
        await asked(own, (Message("user", "x" * 10_000),), count=8)  # and none of them is counted
    await asked(own, PROMPT, count=8)
    assert len(set(engine.seeds)) == len(engine.seeds) == 8
    with pytest.raises(RefusedError, match="max_turns"):
        await asked(own, PROMPT)


async def test_an_episode_is_not_truncated_where_a_reply_came_after_the_refusal() -> None:
    own = session()
    with pytest.raises(RefusedError, match="context_length_exceeded"):
        await asked(own, (Message("user", "x" * 10_000),))
    assert own.limit is Outcome.TRUNCATED_TOKENS
    await asked(own, PROMPT)
    assert own.limit is None


async def test_each_call_has_an_id_of_its_own() -> None:
    own = session(HashedEngine(["<lookup> France</lookup>"]))
    reply = await asked(own, PROMPT, count=3)
    two = _with_ids(Action("", calls=(reply.choices[0].calls * 2)), "3").calls
    ids = [call.id for choice in reply.choices for call in choice.calls]
    assert len({*ids, *(call.id for call in two)}) == 5


@pytest.mark.parametrize(
    ("ended", "said"), [(True, "has ended"), (False, "rewards are the verifier's")]
)
async def test_rewards_are_refused_after_the_end_and_where_the_verifier_gives_them(
    ended: bool, said: str
) -> None:
    own = session(rewarded_by_agent=ended)
    reply = await asked(own, PROMPT)
    if ended:
        own.ended.set()
    for give in (
        lambda: own.rewarded(Verdict(1.0, True)),
        lambda: own.reward_reply(reply.id, 1.0),
        lambda: own.reward_role("policy", 1.0),
    ):
        with pytest.raises(RefusedError, match=said) as refused:
            give()
        assert refused.value.status == 403
    assert own.reward is None


async def test_closing_stops_what_is_under_way_and_refuses_what_comes() -> None:
    own = session(HashedEngine(seconds=60.0))
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


@pytest.mark.parametrize("words", [("soon", "late"), ("late", "soon")])
async def test_the_engine_s_own_session_is_open_again_when_all_is_answered(
    words: tuple[str, str],
) -> None:
    """A lockstep engine waits for the agent then, whichever request ends first."""

    class Ordered(HashedEngine):
        async def generate(self, prompt: Any, *given: Any, **others: Any) -> Any:
            late = "late" in TOKENIZER.decode(prompt)
            await asyncio.sleep(0.05 if late else 0)
            return await super().generate(prompt, *given, **others)

    engine = Ordered()
    own = session(engine)
    await asyncio.gather(*(asked(own, (Message("user", word),)) for word in words))
    assert engine.open_sessions == {"0-0"}


async def test_a_reward_of_a_turn_is_its_step_s() -> None:
    own = session()
    first = await asked(own, PROMPT)
    await asked(own, went_on(PROMPT, first, "Sure?"))
    own.reward_reply(first.id, 0.25)
    for other in ("x", "call_1_0"):
        with pytest.raises(RefusedError, match=f"no reply '{other}'"):
            own.reward_reply(other, 1.0)
    own.reward_reply("chatcmpl-1", 0.5)
    _, turns, _ = own.record()
    assert [turn.step and turn.step.reward for turn in turns] == [0.25, 0.5]


@pytest.mark.parametrize(
    ("said", "text", "right"),
    [("<answer> Paris</answer>", "Paris", False), ("<lookup> France</lookup>", "", True)],
)
async def test_a_reply_without_the_call_that_was_demanded_is_malformed(
    said: str, text: str, right: bool
) -> None:
    own = session(HashedEngine([said]))
    reply = await asked(own, PROMPT, needs_call=True)
    _, (turn,), _ = own.record()
    assert (reply.choices[0].text, turn.action.error is None) == (text, right)
    await asked(own, went_on(PROMPT, reply, "Call it."), needs_call=True)
    recorded(own)


@pytest.mark.parametrize(
    ("said", "stop", "text", "stopped_at"),
    [
        ("<answer> It is Paris</answer>", ("is",), "It ", "is"),
        ("<answer> Zürich</answer>", ("rich",), "Zü", "rich"),
        ("<answer> Zürich</answer>", ("ü",), "Z", "ü"),
        ("<answer> Paris</answer>", ("ri", "r"), "Pa", "r"),
        ("<answer> Paris</answer>", ("Rome",), "Paris", ""),
        ("<answer> Paris </answer>", (" </answer>",), "Paris", " </answer>"),
    ],
)
async def test_a_reply_ends_before_the_first_string_of_stop(
    said: str, stop: tuple[str, ...], text: str, stopped_at: str
) -> None:
    """Whatever the token in which it ended has behind that."""
    (choice,) = (await asked(session(HashedEngine([said])), PROMPT, stop=stop)).choices
    assert (choice.text, choice.stopped_at) == (text, stopped_at)


async def test_the_bytes_of_listed_tokens_join_to_the_reply() -> None:
    said = "<answer> Zürich — 時間 👩‍🚀</answer>"
    reply = await asked(session(HashedEngine([said])), PROMPT, logprobs=True)
    tokens = reply.choices[0].tokens
    assert b"".join(one.bytes for one in tokens).decode().startswith(said)
    assert "�" in [one.text for one in tokens]
