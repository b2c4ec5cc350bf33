"""A model's turns in its tokenizer's chat template, written and read: the ends of turns, thoughts,
and the format of tool calls, found by rendering samples."""

import json
import re
from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from turnwise.errors import ConfigError
from turnwise.scaffolds.templates import opened
from turnwise_environments.scaffolds.harmony import CHANNEL, Harmony
from turnwise_environments.scaffolds.response_template import ResponseTemplate
from turnwise_environments.scaffolds.template_messages import HELLO, MARK, Renderer, Said
from turnwise_environments.scaffolds.tool_formats import (
    ARGUMENTS,
    NAMES,
    OTHERS,
    Call,
    JsonCalls,
    ToolFormat,
    beginning,
    learn,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_IDS = "call{place:05}", "functions.{name}:{place}"
"""Forms of a call's id: Mistral's nine letters and digits, and Kimi's."""
_CALLS = Call(NAMES[0], ARGUMENTS), Call(NAMES[1], OTHERS)
_LAST = list(ARGUMENTS.values())[-1]
_WORDS = """You may call tools. Each is described by its JSON schema:
{}
To call one, write its name and arguments in this form, and stop:
{}
When you need no more calls, answer."""


class ChatFormat:
    """Holds what was found of a template. Raises ConfigError for one that cannot show what a user
    and the model say, or that ends a turn of the model by no token."""

    def __init__(
        self,
        tokenizer: "PreTrainedTokenizerBase",
        specs: Sequence[Mapping[str, Any]],
        switches: Mapping[str, Any],
        day: str,
    ) -> None:
        """`specs` are the tools' names, descriptions and parameters; `day` as 2026-11-26."""
        self.renderer = Renderer(tokenizer, specs, switches, day)
        self._forms, self._whole = self.renderer.forms, self.renderer.whole
        self._tokenizer, self._specs, self.has_tools = tokenizer, specs, bool(specs)
        self.parallel = False
        """Whether a turn may have several calls."""
        self.format: ToolFormat = JsonCalls()
        self.closing = ""
        """The template's text behind an answer, its end included."""
        self._find_messages()
        self.response = self._response()
        """The reader of turns, where it is not learned from the template."""
        self._find_thoughts()
        if specs:
            self._find_tools()

    def _response(self) -> ResponseTemplate | Harmony | None:
        if CHANNEL in self.renderer.source:  # published response templates read one form of calls
            return Harmony()
        template = getattr(self._tokenizer, "response_template", None)
        return ResponseTemplate(template, self._specs, self.prompt) if template else None

    @property
    def prompt(self) -> str:
        """The rendering of HELLO and the beginning of the model's turn."""
        return self._whole([HELLO])

    @property
    def stop(self) -> tuple[str, ...]:
        """The tokens that end turns, that of an answer first."""
        eos = self._tokenizer.eos_token
        return tuple(dict.fromkeys([*self._ends, *([str(eos)] if eos else [])]))

    def end(self, message: Said) -> str:
        """The token that ends a turn such as this."""
        return self._ends[1 if message.calls and self._forms.calls else 0]

    def end_before(self, message: Said) -> str:
        """The token that ends it before others, where gpt-oss' answers end otherwise."""
        end = self.end(message)
        return self._end_of_answers if end == self._ends[0] else end

    def turn(self, message: Said) -> str:
        """The text that the model writes for a message of its own, its end included; with a thought
        in any case where the prompt has begun one. Raises ConfigError for calls that the template
        cannot write."""
        if self.opened and not message.thought:
            message = message._replace(thought="…")
        alone, end = [HELLO, message], self.end(message)
        then = HELLO.result_of(message.calls[0], 0) if message.calls else HELLO
        followed = self._whole([*alone, then], begun=False)
        # A thought may be left out before a user's words, an empty one written in the last turn.
        thinks = self._forms.thought_key and message.thought
        last = (thinks and not message.calls) or not followed.startswith(self.prompt)
        last = last or end not in followed
        own = self._own(self._whole(alone, begun=False) if last else followed)
        own = own if end in own else f"{own}{self.closing}"
        own = own[: own.index(end) + len(end)]
        closing = self._forms.tags[1]
        if self.opened and closing.strip() not in own:  # the template leaves thoughts out
            own = f"{message.thought}{closing}{own}"
        return own

    def read(self, text: str, end: str = "") -> tuple[str, str, list[Call]]:
        """The thought, what is said, and the calls of a turn before its `end`, if any. Raises
        ValueError, in words for the agent."""
        if self.response:
            thought, said, calls = self.response.turn(text.removeprefix(self.opened), end)
            if self._specs and not calls and self.format is not self.response:
                said, calls = self.format.read(said)
        else:
            thought, said, calls = self._unfolded(text)
        if len(calls) > 1 and not self.parallel:
            raise ValueError("one tool call a turn is all that the chat template can write")
        return thought, said.strip(), calls

    def _unfolded(self, text: str) -> tuple[str, str, list[Call]]:
        """Read a turn by what was found of the chat template; see `read`."""
        begin, end = (tag.strip() for tag in self._forms.tags)
        thought, said = "", text.lstrip()
        if said.startswith(begin):
            thought, closed, said = said.removeprefix(begin).partition(end)
            if not closed:
                raise ValueError("the reasoning has no end")
        if self._forms.thought_key and (begin in said or end in said):
            raise ValueError("there is reasoning outside its place")
        said = said.strip().removeprefix(self._head)
        said, calls = self.format.read(said) if self._specs else (said, [])
        tail = self.closing.removesuffix(self._ends[0]).strip()
        return thought.strip(), said.strip().removesuffix(tail).strip(), calls

    def without_thoughts(self, text: str) -> str:
        """A rendered text without thoughts and the blanks behind them, answers ended as before
        other messages."""
        begin, end = (re.escape(tag.strip()) for tag in self._forms.tags)
        bare = re.sub(rf"{begin}.*?{end}\s*", "", text, flags=re.DOTALL)
        return bare.replace(self._ends[0], self._end_of_answers)

    def _own(self, text: str) -> str:
        """The model's own part of a rendering of its turn after HELLO. Raises ConfigError where it
        begins otherwise than a new turn."""
        prompt = self.prompt
        if text.startswith(prompt):
            return text[len(prompt) :]
        thought = prompt.rfind(self._forms.tags[0].strip())
        if thought < 0 or not text.startswith(prompt[:thought]):
            raise self.renderer.refused("a turn in the history begins otherwise than a new one")
        return text[thought:]

    def _find_messages(self) -> None:
        """The roles that there are, and the end of an answer."""
        forms, asked = self._forms, Said("user", MARK)
        for tools, parts in product((forms.tools, False), (False, True)):
            forms.tools, forms.parts = tools, parts
            if self._shows([asked]):
                break
        turns = [asked, Said("assistant", MARK), asked]
        shown = self._whole(turns).split(MARK)
        if len(shown) != 4:
            raise self.renderer.refused(
                "it leaves out, repeats or changes what a user or the model says"
            )
        ends = self._named(shown[2])
        if not ends:
            raise self.renderer.refused("no token ends a turn of the model")
        self.closing = shown[2][: shown[2].find(ends[0]) + len(ends[0])]
        self._end_of_answers = ends[0]
        if CHANNEL in self.renderer.source:
            ends = self._named(self._whole(turns[:2], False).rpartition(MARK)[2]) or ends
        self._ends = ends[0], ends[0]
        forms.system = self._shows([Said("system", MARK), asked])
        forms.two_users = self._shows([*turns, asked])
        self.opened = opened(self.prompt)
        self._head = self._own(self._whole([HELLO, turns[1]], False)).partition(MARK)[0].strip()

    def _find_thoughts(self) -> None:
        """The place of a thought, if there is one and the prompt leaves room for it."""
        thinks = self.opened or "<think>" in self.renderer.source
        for key in (
            ("reasoning_content", "content") if thinks else ("reasoning_content", "thinking")
        ):
            self._forms.thought_key = key
            message = Said("assistant", "Hello.", thought=MARK)
            before, found, after = self._whole([HELLO, message], False).partition(MARK)
            begin = self.opened or before.removeprefix(self.prompt)
            end = after.partition("Hello.")[0]
            if CHANNEL in self.renderer.source:
                end = end.removesuffix(self._head)
            room = found and before.startswith(self.prompt) and self._ends[0] not in end
            begin = "" if key == "content" and begin.strip() != "<think>" else begin
            if room and begin.strip() and end.strip():
                self._forms.tags = begin, end
                return
        self._forms.thought_key = ""

    def _find_tools(self) -> None:
        """Describe tools, call them and answer as the template does, where it has a form for it,
        else in words."""
        forms = self._forms
        shown = forms.tools and self._specs[0]["name"] in self.prompt
        forms.calls = forms.results = True
        if not any(self._finds_calls(*each) for each in product((False, True), _IDS)):
            forms.calls, forms.strings, self.parallel = False, False, True
            self._ends = self._ends[0], self._ends[0]
            shown = shown and "<tool_call>" in self.prompt
            result = [HELLO, Said("assistant", "Hello."), Said("tool", MARK)]
            forms.results = shown and self._shows(result)
        if not shown:
            schemas = "\n".join(json.dumps(dict(spec)) for spec in self._specs)
            spec = self._specs[0]
            arguments = dict.fromkeys(spec["parameters"].get("properties", {}), "…")
            sample = Said("assistant", calls=[Call(spec["name"], arguments)])
            words = _WORDS.format(schemas, self._unthought(sample).strip())
            forms.tools, forms.words = forms.calls, words

    def _finds_calls(self, strings: bool, name: str) -> bool:
        """Whether the template writes calls, in a format that can be read, and results."""
        self._forms.strings, self._forms.id = strings, name
        try:
            return self._learns_calls()
        except ConfigError:
            return False

    def _learns_calls(self) -> bool:
        results = [Said("tool", MARK).result_of(call, n) for n, call in enumerate(_CALLS)]
        one, both = (Said("assistant", calls=_CALLS[:many]) for many in (1, 2))
        before, shown, _ = self._whole([HELLO, one, results[0]]).partition(MARK)
        between = before[before.rfind(_LAST) :]
        alone = self._whole([HELLO, one], begun=False)
        own = beginning(alone[alone.rfind(_LAST) :], between)
        eos = str(self._tokenizer.eos_token)
        said = [one for one in self._named(own) if self.response and self.response.ends(one)]
        ends = [end for end in (self._ends[0], eos, *said) if end in own]
        ends = ends or self._named(between[len(own) :])
        if not shown or _LAST not in between or not ends:
            return False
        self._ends = self._ends[0], ends[0]
        once = self._unthought(one)
        twice = self._unthought(both) if self._shows([HELLO, both, *results]) else ""
        formats = self.response, learn(once, twice, self._type)
        found = next((one for one in formats if one and _calls(one, once) == [_CALLS[0]]), None)
        if found is None:
            return False
        numbered = _CALLS[0]._replace(arguments={**ARGUMENTS, "first_key": 3})
        read = _calls(found, self._unthought(Said("assistant", calls=[numbered])))
        if not read or str(read[0].arguments.get("first_key")) != "3":
            return False
        self.format, self.parallel = found, _calls(found, twice) == list(_CALLS)
        words = [HELLO, one, results[0], Said("user", MARK)]
        self._forms.user_after_tool = self._shows(words)
        return True

    def _shows(self, messages: Sequence[Said]) -> bool:
        """Whether each of the messages whose text is the mark is shown, once and whole."""
        try:
            text = self._whole(messages)
        except ConfigError:
            return False
        return text.count(MARK) == sum(one.text == MARK for one in messages)

    def _named(self, text: str) -> list[str]:
        """The tokens added to the vocabulary that a text names, in order."""
        names = (str(token) for token in self._tokenizer.added_tokens_decoder.values())
        named = [name for name in names if name.strip() and name in text]
        return sorted(named, key=lambda name: (text.find(name), -len(name)))

    def _unthought(self, message: Said) -> str:
        """The text of a turn without its thought and its end."""
        turn = self.turn(message).removesuffix(self.end(message))
        return turn.rpartition(self._forms.tags[1].strip())[2]

    def _type(self, tool: str, key: str) -> str:
        for spec in self._specs:
            if spec["name"] == tool:
                return str(spec["parameters"].get("properties", {}).get(key, {}).get("type", ""))
        return ""


def _calls(form: ToolFormat, turn: str) -> list[Call]:
    """The calls of a turn without the ids that were made up; none where it is not read."""
    try:
        return [call._replace(id="") for call in form.read(turn)[1]]
    except ValueError:
        return []
