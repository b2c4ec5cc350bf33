"""What agents do with their conversations, as contexts of exact tokens; thoughts are kept in them,
or left out as templates do."""

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from jinja2 import TemplateError

from gateway_tests.asking import (
    LIMITS,
    LOOKUP,
    PROMPT,
    asked,
    recorded,
    request,
    session,
    texts,
    went_on,
)
from gateway_tests.hashed_engine import TOKENIZER, HashedEngine
from tests.scaffolds.families import family_tokenizer
from turnwise.config import ScaffoldConfig
from turnwise.engines.base import Completion
from turnwise.scaffolds.base import Scaffold
from turnwise.scaffolds.tags import TagsScaffold
from turnwise.tokens import Image, Segment, Source, Tokens
from turnwise.types import Action, Observation, ToolCall
from turnwise_gateway.contexts import Context, _copied, _joined
from turnwise_gateway.rendering import Scaffolds
from turnwise_gateway.requests import Message, RefusedError, Request, keys_of
from turnwise_gateway.session import Session


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
    assert turns[0].step.results[0].content == "It is Paris."
    assert (np.diff(tokens.turn) >= 0).all()


async def test_choices_share_their_beginning_and_each_can_be_gone_on_from() -> None:
    own = session()
    reply = await asked(own, PROMPT, count=3)
    assert len(reply.choices) == 3
    await asked(own, went_on(PROMPT, reply, "Sure?", choice=2))
    tokens, turns, capture = recorded(own)
    assert int(tokens.copied.sum()) == 2 * reply.prompt_tokens
    assert (len(tokens.spans), len(turns), capture.calls) == (3, 4, 2)


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


async def test_other_tools_and_other_images_are_another_conversation() -> None:
    own = session()
    first = await asked(own, PROMPT)
    described, taking = replace(LOOKUP, description="Ask."), replace(LOOKUP, parameters={})
    for tools in ((), (described,), (taking,)):  # a tool of the same name may be another one
        others = replace(request(went_on(PROMPT, first, "Sure?")), tools=tools)
        own.arrived(await own.ask(others))
    assert len(own.record()[0].spans) == 4
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


CALL = "<think> Hm.</think><lookup> France</lookup>"
ANSWER = "<think> So.</think><answer> P</answer>"
FOUND = "\n<information> It is Paris.</information>\n"


async def played(own: Session) -> None:
    """A call with its result, the answer, and a user's next question, each with a thought."""
    messages = PROMPT
    own.engine.turns = [CALL]
    messages = went_on(messages, await asked(own, messages), "It is Paris.")
    own.engine.turns = [ANSWER]
    messages = went_on(messages, await asked(own, messages), "Sure?")
    await asked(own, messages)


def test_thoughts_are_kept_in_one_context() -> None:
    own = session(HashedEngine())
    asyncio.run(played(own))
    said = "\n<information> Sure?</information>\n"
    assert texts(own) == [f"Capital of France?\n{CALL}{FOUND}{ANSWER}{said}{ANSWER}"]


def test_thoughts_before_the_last_words_of_a_user_are_left_out_in_a_new_context() -> None:
    own = session(HashedEngine(), leave_out_thoughts=True)
    asyncio.run(played(own))
    said = "\n<information> Sure?</information>\n"
    plain = "<lookup> France</lookup>", "<answer> P</answer>"
    assert texts(own) == [
        f"Capital of France?\n{CALL}{FOUND}{ANSWER}",
        f"Capital of France?\n{plain[0]}{FOUND}{plain[1]}{said}{ANSWER}",
    ]
    assert own.usage.contexts == {"the first": 1, "thoughts left out": 1}
    tokens, turns, capture = recorded(own)
    assert len(turns) == 3
    assert capture.sampled == capture.trained == int(tokens.mask.sum())


async def test_a_conversation_goes_on_in_the_context_without_thoughts() -> None:
    own = session(HashedEngine([ANSWER]), leave_out_thoughts=True)
    messages = went_on(PROMPT, await asked(own, PROMPT), "Sure?")
    own.engine.turns = [CALL]
    messages = went_on(messages, await asked(own, messages), "It is Paris.")
    await asked(own, messages)
    assert len(texts(own)) == 2
    await asked(own, messages)
    assert own.usage.contexts["another try"] == 1


async def test_a_reply_without_a_thought_goes_on_in_its_context() -> None:
    own = session(HashedEngine(["<answer> Paris</answer>"]), leave_out_thoughts=True)
    await asked(own, went_on(PROMPT, await asked(own, PROMPT), "Sure?"))
    assert len(texts(own)) == 1


class Thinking(HashedEngine):
    """Writes a thought and an answer in a family's tokens."""

    def __init__(self, scaffold: Scaffold) -> None:
        super().__init__()
        self.written = scaffold.render(Action("", thought="Hm.", answer="Paris."))

    async def generate(self, prompt: Any, *given: Any, **others: Any) -> Completion:
        completion = await super().generate(prompt, *given, **others)
        logprobs = [-0.5] * len(self.written)
        return Completion(self.written, logprobs, completion.stop_reason, self.version)


@pytest.mark.wing("environments")
@pytest.mark.parametrize(
    ("family", "placed"),
    [
        ("qwen3", ""),
        ("glm-4.5", ""),
        ("qwen3.5", "<think>\n\n</think>\n\n"),
        ("minimax-m2", "<think>\n…\n</think>\n\n"),
    ],
)
def test_a_family_s_own_template_says_how_a_turn_looks_without_its_thought(
    family: str, placed: str
) -> None:
    """Where the prompt itself begins a thought, an empty one, or three dots, is all of it."""
    renderers = pytest.importorskip(
        "renderers", reason="needs the extra renderers", exc_type=ImportError
    )
    tokenizer = family_tokenizer(family)
    scaffolds = Scaffolds(ScaffoldConfig(name="renderers", options={"family": family}), tokenizer)
    hello = Message("user", "Hello.")

    async def work() -> str:
        engine = Thinking(scaffolds.of(Request(()))[1])
        engine.open("0-0")
        own = Session("0-0", 5, LIMITS, engine, scaffolds, tokenizer, leave_out_thoughts=True)
        reply = await own.ask(Request((hello,)))
        own.arrived(reply)
        own.arrived(
            await own.ask(Request((hello, Message("assistant", reply.choices[0].text), hello)))
        )
        tokens, turns, _ = own.record()
        assert len(turns) == len(tokens.spans) == 2
        read = tokens.ids[tokens.spans[1]][~tokens.mask[tokens.spans[1]]].tolist()
        past: str = tokenizer.decode(read)
        return past

    past = asyncio.run(work())
    talk = [{"role": "user", "content": "Hello."}]
    talk += [{"role": "assistant", "content": "Paris.", "reasoning_content": "Hm."}, *talk]
    renderer = renderers.create_renderer(tokenizer, renderers.config_from_name(family))
    own_words = tokenizer.decode(renderer.render_ids(talk, add_generation_prompt=True))
    assert "Hm." not in past
    assert past.replace(placed, "") == own_words
    assert placed in past
