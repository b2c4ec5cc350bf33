"""The model's thoughts in its following turns: kept as sampled, or left out as templates do."""

import asyncio
from typing import Any

import pytest

from gateway_tests.asking import LIMITS, PROMPT, asked, recorded, session, texts, went_on
from gateway_tests.hashed_engine import HashedEngine
from tests.scaffolds.families import family_tokenizer
from turnwise.config import ScaffoldConfig
from turnwise.engines.base import Completion
from turnwise.scaffolds.base import Scaffold
from turnwise.types import Action
from turnwise_gateway.rendering import Scaffolds
from turnwise_gateway.requests import Message, Request
from turnwise_gateway.session import Session

CALL = "<think> Hm.</think><lookup> France</lookup>"
ANSWER = "<think> So.</think><answer> P</answer>"
FOUND = "\n<information> It is Paris.</information>\n"


async def played(own: Session) -> None:
    """A call with its result, the answer, and a user's next question, each with a thought."""
    messages = PROMPT
    own.engine.turns = [CALL]  # type: ignore[attr-defined]
    messages = went_on(messages, await asked(own, messages), "It is Paris.")
    own.engine.turns = [ANSWER]  # type: ignore[attr-defined]
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
    own.engine.turns = [CALL]  # type: ignore[attr-defined]
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
    scaffolds = Scaffolds(ScaffoldConfig(name="native", options={"family": family}), tokenizer)
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
