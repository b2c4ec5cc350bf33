"""Conversations for `scripts.chat_templates`, in the forms in which a template may take them, and
small tokenizers that have a template's markers as tokens."""

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from functools import cache
from typing import Any, NamedTuple

from jinja2 import TemplateError
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from turnwise.tools.tool import Tool
from turnwise.types import Action, ToolCall

Message = dict[str, Any]
UNFIT = (TemplateError, TypeError, ValueError, LookupError, AttributeError)
"""Errors of templates."""

MARKERS = re.compile(
    r"<\|[^|<>\s{}'\"]{1,40}\|>|<｜[^｜<>\s{}'\"]{1,40}｜>|｜DSML｜|<\|[a-z_\"]{1,20}>|<sep>"
    r"|<[a-z_\"]{1,20}\|>|\[/?[A-Z][A-Z_]{2,30}\]|\[\|\w+\|\]|</?s>|<[beu]os>|</?assistant>"
    r"|<(?:start|end)_of_\w+>|</?(?:tool|function)_\w+>|</?(?:mm:)?think>|<(?:BOS|EOS)_TOKEN>"
    r"|<SPECIAL_\d+>|<\[\w+\]>|<extra_id_\d+>|</?(?:seed|minimax):\w+>|\]~!b\[|\]<\]\w+\[>\["
    r"|\[e~\[|\]~b\]|<(?:User|Assistant)>|<im_(?:end|start)>|<用户>|<AI>"
)
BEGINNINGS = [
    "<|begin_of_text|>",
    "<｜begin▁of▁sentence｜>",
    "<bos>",
    "<BOS_TOKEN>",
    "<|startoftext|>",
]
ENDS = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|end_of_text|>",
    "<｜end▁of▁sentence｜>",
    "<|return|>",
    "<|END_OF_TURN_TOKEN|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<eos>",
]
SAMPLE = (
    "Where is the blue key? It lies in the second drawer, below the lamp. The weather in Paris is "
    '22 degrees and sunny. {"name": "search", "arguments": {"query": "key"}} Search for a text.\n'
)
SHOWN = "Find a passage."
HIDDEN = "⟦⟧"
"""Stands for what a scaffold says in words of its own."""


def _schema(name: str, description: str, **properties: Mapping[str, Any]) -> dict[str, Any]:
    needed = list(properties)[:1]
    parameters = {"type": "object", "properties": properties, "required": needed}
    return {"name": name, "description": description, "parameters": parameters}


TEXT, NUMBER = ({"type": kind, "description": "A value."} for kind in ("string", "integer"))
LIST = {"type": "array", "description": "Values.", "items": {"type": "string"}}
SCHEMAS = [
    _schema("search", SHOWN, query=TEXT, limit=NUMBER),
    _schema("keep_note", "Keep a note.", text=TEXT, tags=LIST),
]
TOOLS = [Tool(one["name"], one["description"], one, lambda: "") for one in SCHEMAS]


class Turn(NamedTuple):
    """A turn of the model, the results of its calls, and what is said to it after."""

    action: Action
    results: Sequence[str] = ()
    words: Sequence[str] = ()


class Conversation(NamedTuple):
    """A task and turns."""

    turns: Sequence[Turn]
    system: str = ""
    task: str = "Where is the blue key?"
    tools: bool = True


def _called(*calls: ToolCall, thought: str = "") -> Action:
    return Action("", thought, calls)


BLUE = ToolCall("search", {"query": "colour blue", "limit": 3})
RED = ToolCall("keep_note", {"text": "red key", "tags": ["a", "b"]})
CODE = 'Größe "東京" 🙂\nif a < b:\n    c\\n & d'
HARD = ToolCall("keep_note", {"text": CODE, "tags": ["x y", "1", "</a>"]})
CLERK, FOUND, MORE = "You are a careful clerk.", ["In the second drawer."], ["And the red one?"]
LOST = Turn(Action("", answer="It is lost."))
BAD = "It …"
"""A malformed turn."""
CONVERSATIONS = {
    "call": Conversation([Turn(_called(BLUE), FOUND), LOST], CLERK),
    "calls": Conversation([*(Turn(_called(one), FOUND) for one in (BLUE, RED, BLUE)), LOST]),
    "two calls": Conversation([Turn(_called(BLUE, RED), [*FOUND, "Kept."]), LOST]),
    "thoughts": Conversation(
        [
            Turn(_called(BLUE, thought="It may be near."), ["Error: no such key"]),
            Turn(_called(BLUE, thought="Once more."), FOUND),
            Turn(Action("", "So there.", answer="In the drawer.")),
        ],
        CLERK,
    ),
    "thoughts before words": Conversation(
        [Turn(Action("", "So there.", answer="In the drawer."), words=MORE), LOST]
    ),
    "answers": Conversation([LOST._replace(words=MORE), LOST._replace(words=MORE), LOST]),
    "no tools": Conversation([LOST._replace(words=MORE), LOST], CLERK, tools=False),
    "words": Conversation([Turn(_called(BLUE), FOUND, MORE), LOST]),
    "hard": Conversation(
        [Turn(_called(HARD), ['  {"ä": "\\n"}\n\n']), LOST], task=' Grüße, "東京"\n\n{{ x }} '
    ),
    "markers": Conversation([Turn(_called(BLUE), ["a MARK b"]), LOST], task="Is MARK a word?"),
    "malformed": Conversation(
        [Turn(Action(BAD, error=BAD), words=["Say more."]), Turn(_called(BLUE), FOUND), LOST]
    ),
}


class Form(NamedTuple):
    """A way in which a conversation can be handed to a template."""

    told: str
    """How calls stand where a scaffold tells of tools in words: "" where it does not, "native" as
    calls, "listed" in the content, of tools that the template lists, "words" without that, "joined"
    with all that follows in one message of the user's."""
    parts: bool
    """Whether contents are lists of parts."""
    strings: bool
    """Whether arguments are texts of JSON."""
    identity: str
    """The form of a call's id."""
    merged: bool
    """Whether the system message is the beginning of the first user's."""
    thought: str
    """The key of a thought, "inline" in the content, or empty for none."""
    filler: str
    """A thought that stands for none."""


def forms(tokenizer: PreTrainedTokenizerFast, told: bool) -> list[Form]:
    """The ways that come into question, for a template that shows tools or is `told` of them."""

    def lost(*messages: Message, parts: bool = False) -> bool:
        shown = [_in_parts(one) for one in messages] if parts else messages
        return HIDDEN not in rendered(tokenizer, shown, begun=False, tools=not told)

    function = {"name": "search", "arguments": {"query": HIDDEN}}
    call = {"type": "function", "id": "call00000", "function": function}
    user = {"role": "user", "content": "?"}
    parts = lost({**user, "content": HIDDEN})
    merged = lost({"role": "system", "content": HIDDEN}, user, parts=parts)
    strings = lost(user, {"role": "assistant", "content": "", "tool_calls": [call]}, parts=parts)
    tellings = ("native", "listed", "words", "joined") if told else ("",)
    ids = ("call{:05}", "functions.{name}:{}")
    keys = ("reasoning_content", "inline", "", "reasoning", "thinking")
    kinds = itertools.product(tellings, [parts], [strings], ids, [merged], keys, ("", "…"))
    return [Form(*each) for each in kinds]


def _in_parts(message: Message) -> Message:
    return {**message, "content": [{"type": "text", "text": message["content"]}]}


def wholes(
    tokenizer: PreTrainedTokenizerFast, chat: Conversation, turns: int, given: Sequence[Form]
) -> Iterator[tuple[str, Form]]:
    """What transformers writes for the conversation up to what follows that many turns."""
    begun = turns < len(chat.turns)
    for form in given:
        messages = list(_messages(chat, turns, form))
        messages = [_in_parts(one) for one in messages] if form.parts else messages
        listed = chat.tools and form.told in ("", "listed")
        text = rendered(tokenizer, messages, begun, listed)
        if chat.task.strip()[:9] in text:
            yield text, form


def rendered(
    tokenizer: PreTrainedTokenizerFast, messages: Sequence[Message], begun: bool, tools: bool
) -> str:
    """The text; empty where the template raises."""
    specs = [{"type": "function", "function": deepcopy(one)} for one in SCHEMAS]
    try:
        text = tokenizer.apply_chat_template(
            deepcopy(list(messages)),
            tools=specs if tools else None,
            tokenize=False,
            add_generation_prompt=begun,
        )
    except UNFIT:
        return ""
    return str(text)


def _messages(chat: Conversation, turns: int, form: Form) -> Iterator[Message]:
    told = form.told if chat.tools else ""
    system, task = HIDDEN if told not in ("", "listed") else chat.system, chat.task
    if system and form.merged:
        task = f"{system}\n\n{task}"
    elif system:
        yield {"role": "system", "content": system}
    yield {"role": "user", "content": task}
    for action, results, words in chat.turns[:turns]:
        yield _own_message(action, form, told)
        after = [*([HIDDEN] * len(results) if told in ("words", "joined") else []), *words]
        if told in ("", "native", "listed"):
            for place, (call, text) in enumerate(zip(action.calls, results, strict=True)):
                identity = form.identity.format(place, name=call.name)
                named = {"role": "tool", "tool_call_id": identity, "name": call.name}
                yield {**named, "content": text}
        for text in ["\n\n".join(after)] if told == "joined" and after else after:
            yield {"role": "user", "content": text}


def _own_message(action: Action, form: Form, told: str) -> Message:
    message: Message = {"role": "assistant", "content": action.answer or action.text}
    if action.calls and told not in ("", "native"):
        return {**message, "content": HIDDEN}
    thought = action.thought or form.filler
    if thought and form.thought == "inline":
        message["content"] = f"<think>\n{thought}\n</think>\n\n{message['content']}"
    elif thought and form.thought:
        message[form.thought] = thought
    calls = []
    for place, call in enumerate(action.calls):
        given = json.dumps(dict(call.arguments)) if form.strings else dict(call.arguments)
        identity = form.identity.format(place, name=call.name)
        function = {"name": call.name, "arguments": given}
        calls.append({"type": "function", "id": identity, "function": function})
    return {**message, "tool_calls": calls} if calls else message


@cache
def _base() -> str:
    """A tokenizer of bytes and some pairs, as JSON."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([SAMPLE], trainer)
    return str(tokenizer.to_str())


def tokenizer_for(template: str) -> PreTrainedTokenizerFast:
    """A tokenizer with the template's markers as special tokens, also those that it puts together
    from a role's name, and with its beginning and end of texts."""
    made = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(_base()))
    made.chat_template = template
    made.bos_token = next((each for each in BEGINNINGS if each in template), "<s>")
    made.eos_token = next((each for each in ENDS if each in template), "</s>")
    markers = {made.bos_token, made.eos_token, *MARKERS.findall(template)}
    for name in ("call", "no tools"):
        for text, _ in wholes(made, CONVERSATIONS[name], 2, forms(made, told=False)[:10]):
            markers |= set(MARKERS.findall(text))
    tokens = [AddedToken(each, special=True, normalized=False) for each in sorted(markers)]
    made.add_tokens(tokens, special_tokens=True)
    return made
