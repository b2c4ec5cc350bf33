"""Whether a chat template only appends: prepared conversations turn by turn and as a whole."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from turnwise.errors import ConfigError
from turnwise.tokens import Segment, Source
from turnwise.types import Action, Observation, ToolCall, ToolResult
from turnwise_environments.scaffolds.chat_format import ChatFormat
from turnwise_environments.scaffolds.template_messages import Said, said_of
from turnwise_environments.scaffolds.tool_formats import Call, beginning

if TYPE_CHECKING:
    from turnwise_environments.scaffolds.chat_template import ChatTemplateScaffold

NAMED = "with a token's name in it"
"""The conversation whose texts hold the name of the token that ends turns, which the template's own
rendering would take for the token."""
PROMPT = " Is {} a word?\n"
CALL = ToolCall("sample_tool", {"first_key": "Größe 東京 🙂", "second_key": "two\nlines"})
OTHER = ToolCall("other_tool", {"third_key": "something"})
ANSWER = Action("", answer="The answer is 42.")
EMPTY = ToolResult(OTHER, '{"found": []}')
EDGED = ToolResult(CALL, "\n  12 km  \n")


class Exchange(NamedTuple):
    """A turn of the model and what comes after it: results of its calls, and a user's words."""

    turn: Action
    results: Sequence[ToolResult] = ()
    words: Sequence[str] = ()


CONVERSATIONS: dict[str, tuple[str, Sequence[Exchange]]] = {
    "after a call": ("", [Exchange(Action("", calls=(CALL,)), [EDGED])]),
    "after a call with a thought": (
        "Be brief.",
        [
            Exchange(Action("", "first look", (CALL,)), [ToolResult(CALL, "Error: no such city")]),
            Exchange(Action("", "try the other", (OTHER,)), [EMPTY]),
        ],
    ),
    "after two calls": ("Be brief.", [Exchange(Action("", calls=(CALL, OTHER)), [EDGED, EMPTY])]),
    "after an answer": (
        "",
        [Exchange(ANSWER, words=["Are you sure?"]), Exchange(ANSWER, words=["?"])],
    ),
    "after an answer with a thought": (
        "Be brief.",
        [Exchange(Action("", "6 by 7", answer="42"), words=["Why?"])],
    ),
    NAMED: ("", [Exchange(ANSWER, words=["?"])]),
    "after a user's words beside a result": (
        "",
        [
            Exchange(Action("", calls=(OTHER,)), [EMPTY], ["And in Rome?"]),
            Exchange(ANSWER, words=["Thanks"]),
        ],
    ),
}

BY_A_USER = [when for when, (_, said) in CONVERSATIONS.items() if any(one.words for one in said)]


def check(
    scaffold: "ChatTemplateScaffold",
    chat: ChatFormat,
    instructions: str,
    keep_history: bool,
    encode: Callable[[str], list[int]],
    decode: Callable[[Sequence[int]], str],
) -> None:
    """Raise ConfigError for a template that cannot write a conversation turn by turn, or without
    `keep_history` writes its history otherwise as a whole; the message quotes both.

    The tokens have to be equal; the text where a token's name stands in what a user says; and but
    for thoughts at a user's words, which many templates drop there and a scaffold keeps, since
    later turns were sampled after them."""
    for when, (_, exchanges) in CONVERSATIONS.items():
        calls = max(len(one.turn.calls) for one in exchanges)
        if (calls and not chat.has_tools) or (calls > 1 and not chat.parallel):
            continue
        for ids, whole in _written(scaffold, chat, instructions, when):
            if keep_history:
                continue
            said = decode(ids)
            if (when == NAMED and said == whole) or ids == encode(whole):
                continue
            if (
                when in BY_A_USER
                and said != whole
                and chat.without_thoughts(said) == chat.without_thoughts(whole)
            ):
                continue
            here, there = _difference(said, whole)
            raise ConfigError(
                f"scaffold native: the chat template changes the history {when}: it writes "
                f"{there!r} where {here!r} stood. With scaffold.options.keep_history = true the "
                "history stays as it was; or choose scaffold tags"
            )


def _written(
    scaffold: "ChatTemplateScaffold", chat: ChatFormat, instructions: str, when: str
) -> Iterator[tuple[list[int], str]]:
    """The tokens turn by turn, and the text as a whole, after each exchange."""
    prompt = PROMPT.format(chat.stop[0] if when == NAMED else "this")
    system, exchanges = CONVERSATIONS[when]
    said = "\n\n".join(filter(None, (instructions, system)))
    messages = [Said("system", said)] if said else []
    messages += [*scaffold.examples, Said("user", prompt, Source.USER)]
    ids = _tokens(scaffold.begin(Observation(prompt, Source.USER), system))
    for turn, results, words in exchanges:
        if chat.opened and not turn.thought:
            turn = replace(turn, thought="so it is")
        written = scaffold.render(turn)
        read = scaffold.parse(written)
        if (read.calls, read.answer) != (turn.calls, turn.answer):
            by = (
                ", by the tokenizer's response_template, which can be deleted"
                if chat.response
                else ""
            )
            raise chat.renderer.refused(f"what it writes {when} is not read as it was meant{by}")
        told = [Observation(word, Source.USER) for word in words]
        if results:
            told.insert(0, Observation("\n".join(one.content for one in results)))
        words = words if results else words[1:]
        ids += [*written, *_tokens(scaffold.extend(told[0], written, results, words))]
        messages.append(said_of(turn))
        for place, one in enumerate(results):
            call = Call(one.call.name, one.call.arguments)
            messages.append(Said("tool", one.content, Source.TOOL).result_of(call, place))
        messages += [Said("user", one.content, Source.USER) for one in told[bool(results) :]]
        yield list(ids), chat.renderer.whole(messages)


def _tokens(segments: Sequence[Segment]) -> list[int]:
    return [token for segment in segments for token in segment.tokens]


def _difference(one: str, other: str) -> tuple[str, str]:
    """The first lines, shortened, in which two texts differ."""
    start = len(beginning(one, other))
    return one[max(start - 10, 0) :][:60], other[max(start - 10, 0) :][:60]
