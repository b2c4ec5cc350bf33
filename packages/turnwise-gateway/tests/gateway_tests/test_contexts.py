"""What agents do with their conversations, as contexts of exact tokens."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from jinja2 import TemplateError

from gateway_tests.asking import LOOKUP, PROMPT, asked, recorded, request, session, texts, went_on
from gateway_tests.hashed_engine import TOKENIZER, HashedEngine
from turnwise.config import ScaffoldConfig
from turnwise.scaffolds.tags import TagsScaffold
from turnwise.tokens import Image, Segment, Source, Tokens
from turnwise.types import Observation, ToolCall
from turnwise_gateway.contexts import Context, _copied, _joined
from turnwise_gateway.rendering import Scaffolds
from turnwise_gateway.requests import Message, RefusedError, keys_of


async def test_a_conversation_that_goes_on_is_one_context_of_exact_tokens() -> None:
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
    tokens, turns, capture = recorded(own)
    assert tokens.kept is not None
    assert len(turns) == capture.calls == 3
    assert capture.sampled == capture.trained == int(tokens.mask.sum())
    assert turns[0].step is not None
    assert turns[0].step.results[0].content == "It is Paris."
    assert (np.diff(tokens.turn) >= 0).all()


async def test_another_try_is_a_context_of_its_own_with_the_same_beginning() -> None:
    own = session()
    first = await asked(own, PROMPT)
    second = await asked(own, PROMPT)
    tokens, turns, _ = recorded(own)
    assert len(tokens.spans) == len(turns) == 2
    assert first.prompt_tokens == second.prompt_tokens
    assert int(tokens.copied.sum()) == second.prompt_tokens


async def test_several_choices_are_sampled_apart_and_each_can_be_gone_on_from() -> None:
    own = session()
    reply = await asked(own, PROMPT, count=3)
    assert len(reply.choices) == 3
    await asked(own, went_on(PROMPT, reply, "Sure?", choice=2))
    tokens, turns, capture = recorded(own)
    assert len(tokens.spans) == 3
    assert len(turns) == 4
    assert capture.calls == 2


async def test_an_edited_reply_is_not_trained_in_the_context_that_has_the_edit() -> None:
    own = session(HashedEngine(["<answer> Paris</answer>"]))
    await asked(own, PROMPT)
    edited = (*PROMPT, Message("assistant", "Lyon"), Message("user", "Sure?"))
    await asked(own, edited)
    before, after = texts(own)
    assert before.endswith("<answer> Paris</answer>")
    assert after.startswith("Capital of France?\n<answer> Lyon</answer>")
    tokens, _, capture = recorded(own)
    assert capture.trained == int(tokens.mask.sum()) == 2 * len(own.contexts.exchanges[0].written)


async def test_a_repeated_reply_stands_for_its_own_tokens_after_other_messages() -> None:
    own = session(HashedEngine(["<think> Hm.</think><answer> Paris</answer>"]))
    reply = await asked(own, PROMPT)
    shorter = (Message("user", "Before:"), Message("assistant", reply.choices[0].text))
    await asked(own, (*shorter, Message("user", "Go on.")))
    tokens = recorded(own)[0]
    inherited = tokens.ids[tokens.source == Source.INHERITED].tolist()
    assert TOKENIZER.decode(inherited) == "<think> Hm.</think><answer> Paris</answer>"


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
async def test_messages_that_cannot_be_rendered_are_refused_and_nothing_is_lost(
    messages: tuple[Message, ...], said: str
) -> None:
    own = session()
    first = await asked(own, PROMPT)
    with pytest.raises(RefusedError, match=said):
        await own.ask(request(messages))
    await asked(own, went_on(PROMPT, first, "Sure?"))
    _, turns, capture = recorded(own)
    assert len(turns) == 2
    assert capture.refused == {"messages": 1}


def test_results_that_change_places_are_another_conversation() -> None:
    calls = tuple(ToolCall("lookup", {"country": "France"}, f"call_{n}") for n in range(2))
    told = [Message("tool", "Paris", call="call_0"), Message("tool", "Paris", call="call_1")]
    first, second = (
        keys_of((*PROMPT, Message("assistant", "", calls), *results))
        for results in (told, told[::-1])
    )
    assert first != second
    other = tuple(replace(call, id=f"mine_{n}") for n, call in enumerate(calls))
    renamed = [replace(one, call=f"mine_{n}") for n, one in enumerate(told)]
    assert keys_of((*PROMPT, Message("assistant", "", other), *renamed)) == first


def test_a_whole_number_is_known_however_it_is_written() -> None:
    one, other = (
        keys_of((Message("assistant", "", (ToolCall("add", {"n": [n, 0.5]}),)),)) for n in (1, 1.0)
    )
    assert one == other


def test_other_tools_and_other_images_are_another_conversation() -> None:
    async def work() -> None:
        own = session()
        first = await asked(own, PROMPT)
        others = replace(request(went_on(PROMPT, first, "Sure?")), tools=())
        own.arrived(await own.ask(others))
        assert len(own.record()[0].spans) == 2

    asyncio.run(work())
    one, other = (keys_of((Message("user", "Look:", images=(png,)),)) for png in (b"a", b"b"))
    assert one != other


def test_a_context_that_begins_with_a_part_of_another_has_the_images_of_that_part() -> None:
    images = tuple(Image(start, 2, b"") for start in (1, 5))
    tokens = Tokens.empty().with_segments([Segment(range(8), Source.USER)], 0)
    tokens = replace(tokens, images=images)
    assert _copied(tokens, 4).images == images[:1]
    assert _joined([(Context(("", ""), tokens), 4)], np.zeros(1, np.int32)).images == images[:1]


class Templated(TagsScaffold):
    """Renders by a chat template, which takes no system message."""

    def begin(self, prompt: Observation, system: str = "") -> list[Segment]:
        if system:
            raise TemplateError("System role not supported")
        return super().begin(prompt, system)


async def test_messages_that_a_chat_template_refuses_are_refused_with_its_reason() -> None:
    name = f"{__file__}:{Templated.__name__}"
    own = session(scaffolds=Scaffolds(ScaffoldConfig(name=name), TOKENIZER))
    refused = "the template refuses these messages: System role not supported"
    with pytest.raises(RefusedError, match=refused) as caught:
        await own.ask(request((Message("system", "Be brief."), *PROMPT)))
    assert (caught.value.status, caught.value.field) == (400, "messages")
    assert own.bug is None
    await asked(own, PROMPT)


async def test_a_tool_that_the_scaffold_has_no_name_for_is_refused() -> None:
    own = session()
    with pytest.raises(RefusedError, match="cannot be called 'answer'") as caught:
        await own.ask(replace(request(), tools=(replace(LOOKUP, name="answer"),)))
    assert (caught.value.status, caught.value.field, own.bug) == (400, "tools", None)
