"""Formats of tool calls, learned from what a chat template writes for two sample calls.

Four kinds cover the published templates: a JSON object with name and arguments (Hermes, Qwen,
Llama, Granite, Mistral), a name followed by a JSON object (DeepSeek, Kimi, Mistral 3), a tag for
each parameter (Qwen3-Coder, GLM, MiniMax), and calls as Python writes them (Llama 4, LFM2, OLMo 3).
What stands between and around is the template's. Only reading is here: the template writes.
"""

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

NAMES = "sample_tool", "other_tool"
ARGUMENTS = {"first_key": "a value", "second_key": "one more"}
OTHERS = {"third_key": "something"}
"""The sample calls: `NAMES[0]` with ARGUMENTS, and where a turn may have two, the other."""
_JSON = json.JSONDecoder()
_ARGUMENTS = "arguments", "parameters"
"""Names that models give the arguments of a call in JSON, whatever the template's is."""
_CONSTANTS = {"true": True, "false": False, "null": None}
Types = Callable[[str, str], str]
"""Function from a tool and a parameter to the parameter's JSON type, "" where that is not known."""


class Call(NamedTuple):
    """A call as it was written, with the id that the model gave it, if any."""

    name: str
    arguments: Mapping[str, Any]
    id: str = ""


class ToolFormat(Protocol):
    """A way to write tool calls in a turn's text."""

    def read(self, text: str) -> tuple[str, list[Call]]:
        """The text beside the calls, and the calls in order. Raises ValueError, in words for the
        agent, for one that is not complete."""


@dataclass(frozen=True)
class JsonCalls:
    """JSON objects, alone or in lists, between an opening and a closing text."""

    opening: str = "<tool_call>"
    closing: str = "</tool_call>"
    name_key: str = "name"
    arguments_key: str = "arguments"

    def read(self, text: str) -> tuple[str, list[Call]]:
        said, rest = self._parted(text)
        calls: list[Call] = []
        while rest:
            value, rest = _json(rest, len(calls) + 1)
            entries = value if isinstance(value, list) else [value]
            calls += [
                self.call(entry, place) for place, entry in enumerate(entries, len(calls) + 1)
            ]
            rest = rest.lstrip(" \n;,")
            if rest[:1] in ("{", "["):
                continue
            if self.closing and not rest.startswith(self.closing):
                raise ValueError(f"tool call {len(calls)}: {self.closing} does not follow")
            beside, rest = self._parted(rest.removeprefix(self.closing))
            if not self.opening and beside.strip(" \n;,"):
                raise ValueError(f"tool call {len(calls)}: there is text after it")
            said += beside if self.opening else ""
        return said, calls

    def _parted(self, text: str) -> tuple[str, str]:
        """The text before the next call, and the call without its opening."""
        if self.opening:
            said, _, rest = text.partition(self.opening)
            if self.closing and not rest and text.endswith(self.opening):
                raise ValueError("a tool call is empty")
            return said, rest
        begun = text.lstrip(" \n;,")
        named = begun.startswith(("{", "[")) and f'"{self.name_key}"' in begun
        keys = f'"{self.arguments_key}"', *(f'"{key}"' for key in _ARGUMENTS)
        return ("", begun) if named and any(key in begun for key in keys) else (text, "")

    def call(self, entry: Any, place: int) -> Call:
        """The call that a value stands for. Raises ValueError, in words for the agent."""
        if isinstance(entry, dict) and isinstance(entry.get("function"), dict):
            entry = {**entry, **entry["function"]}
        name = entry.get(self.name_key) if isinstance(entry, dict) else None
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"tool call {place}: it has no {self.name_key!r}")
        others = [key for key in _ARGUMENTS if key in entry]
        if others and self.arguments_key not in entry:
            raise ValueError(
                f"tool call {place}: it has {others[0]!r} and not {self.arguments_key!r}"
            )
        arguments = entry.get(self.arguments_key, {})
        if isinstance(arguments, str):
            arguments, _ = _json(arguments, place)
        own = entry.get("id", "")
        return Call(name, _object(arguments, place), own if isinstance(own, str) else "")


@dataclass(frozen=True)
class NamedCalls:
    """A name, then a JSON object of arguments."""

    before: str
    between: str
    after: str
    around: Sequence[str] = ()
    """Texts that stand once before and after all calls."""
    before_id: str = ""
    """Text between the name and an id, where there is one."""

    def read(self, text: str) -> tuple[str, list[Call]]:
        said, *written = text.split(self.before)
        calls: list[Call] = []
        for place, one in enumerate(written, 1):
            head, found, rest = one.partition(self.between)
            if not found:
                raise ValueError(f"tool call {place}: {self.between!r} does not follow its name")
            arguments, rest = _json(rest, place)
            after = self.after.strip()
            if not rest.lstrip().startswith(after):
                raise ValueError(f"tool call {place}: {after} does not follow")
            said += rest.lstrip().removeprefix(after)
            named, _, own = head.partition(self.before_id) if self.before_id else (head, "", "")
            name = re.sub(r":\d+$", "", named.strip())  # Kimi counts them
            if not name:
                raise ValueError(f"tool call {place}: it has no name")
            calls.append(Call(name, _object(arguments, place), own.strip()))
        return _without(said, self.around) if calls else said, calls


@dataclass(frozen=True)
class ParameterCalls:
    """A name, then each parameter between tags of its own; a text is written as it is, any other
    value as JSON, in DeepSeek's DSML behind a tag that says so."""

    before: str
    key: str
    value: str
    end: str
    around: Sequence[str] = ()
    types: Types = field(default=lambda tool, key: "", compare=False)

    def read(self, text: str) -> tuple[str, list[Call]]:
        said, *written = text.split(self.before)
        calls: list[Call] = []
        for place, one in enumerate(written, 1):
            head, *pairs = one.split(self.key)
            name = re.split(r"[\s<>\"]", head.strip(), maxsplit=1)[0]
            if not name:
                raise ValueError(f"tool call {place}: it has no name")
            arguments = {}
            for pair in pairs:
                other = self.value.replace('string="true"', 'string="false"')
                tag = min((self.value, other), key=f"{pair}{self.value}{other}".find)
                key, begun, rest = pair.partition(tag)
                content, ended, rest = rest.partition(self.end)
                if not begun or not ended:
                    raise ValueError(f"tool call {place}: parameter {key!r} is not closed")
                plain = tag == self.value and self.types(name, key.strip()) in ("string", "")
                arguments[key.strip()] = _text(content) if plain else _value(content)
            calls.append(Call(name, arguments))
            said += rest if pairs else head.strip().removeprefix(name).lstrip('">')
        if calls and self.around and self.around[-1] not in written[-1]:
            raise ValueError(f"tool call {len(calls)}: {self.around[-1]} does not follow")
        return _without(said, self.around) if calls else said, calls


@dataclass(frozen=True)
class PythonCalls:
    """Calls as Python writes them, in a list or one a line."""

    opening: str
    closing: str

    def read(self, text: str) -> tuple[str, list[Call]]:
        said, begun, rest = text.partition(self.opening) if self.opening else ("", "", text)
        if not begun and (self.opening or not text.lstrip().startswith("[")):
            return text, []
        written, closed, after = rest.partition(self.closing) if self.closing else (rest, "", "")
        if self.closing and not closed:
            raise ValueError(f"the tool calls are not closed by {self.closing}")
        # Some templates write a text of several lines between single quotes.
        lines = _parsed(written.strip()) or _parsed(written.strip().replace("\n", "\\n"))
        found = [each for line in lines for each in _elements(line)]
        if not found or not all(isinstance(one, ast.Call) for one in found):
            begins = re.match(r"\s*\[\s*[A-Za-z_][\w.]*\(\s*[A-Za-z_]\w*\s*=", text)
            if self.opening or (begins and not found):
                raise ValueError("the tool calls are not written as name(key=value)")
            return text, []
        if self.opening and self.opening in after:
            raise ValueError(f"write all tool calls in one {self.opening}")
        calls = [_python_call(one, place) for place, one in enumerate(found, 1)]
        return said + after, calls


def learn(one: str, two: str, types: Types) -> ToolFormat | None:
    """The format of a turn with a sample call, and of one with both (empty where a template has no
    such turn); None for a form that is none of the four. `types` gives parameters' types."""
    start = one.find(NAMES[0])
    if start < 0:
        return None
    if found := _learn_json(one):
        return found
    rest = one[start + len(NAMES[0]) :]
    if rest.startswith("("):
        opening, closing = one[:start].strip().removesuffix("["), one[one.rindex(")") + 1 :]
        return PythonCalls(opening.strip(), closing.strip().removeprefix("]").strip())
    values = _json_values(rest, "{")
    place = next(((start, end) for value, start, end in values if value == ARGUMENTS), None)
    return _learn_named(one, two, place) if place else _learn_parameters(one, two, types)


def _learn_named(one: str, two: str, arguments: tuple[int, int]) -> NamedCalls:
    """`arguments` is the place of the sample's JSON behind its name."""
    before, _, rest = one.partition(NAMES[0])
    between, after = rest[: arguments[0]], rest[arguments[1] :]
    numbered = re.search(r"\w+0\b", between)
    before_id = between[: numbered.start()].strip() if numbered else ""
    around = []
    if NAMES[1] in two:
        joined, _, later = two[len(before) + len(NAMES[0]) + arguments[1] :].partition(NAMES[1])
        each, closing = _ending(before, joined), beginning(after, joined)
        each = re.sub(r"^[^<\[]+(?=[<\[])", "", each)  # what is half of a token's name
        closing = closing[: max(closing.rfind(">"), closing.rfind("]")) + 1] or closing
        around = [before.removesuffix(each), after.removeprefix(closing)]
        before, after = each, closing
        between = _ending(between, later[: later.find("{")])
    return NamedCalls(before.strip(), between.strip(), after.strip(), _texts(around), before_id)


def _learn_parameters(one: str, two: str, types: Types) -> ParameterCalls | None:
    before, _, rest = one.partition(NAMES[0])
    places = [rest.find(text) for pair in ARGUMENTS.items() for text in pair]
    if -1 in places or places != sorted(places):
        return None
    first, second = (
        [at + len(text) for at, text in zip(places[n:], pair, strict=False)]
        for n, pair in zip((0, 2), ARGUMENTS.items(), strict=True)
    )
    between, tail = rest[first[1] : places[2]], rest[second[1] :]
    key = _last_tag(_ending(rest[: places[0]], between))
    value = rest[first[0] : places[1]].strip("\n")
    end = beginning(between, tail)
    end = end[: end.rfind(">") + 1].strip()
    if NAMES[1] in two:
        joined = two[len(before) + len(NAMES[0]) + second[1] :].partition(NAMES[1])[0]
        before, head = _last_tag(_ending(before, joined)), before
    else:
        before, head = _last_tag(before), before
    around = [head.removesuffix(before), *tail.removeprefix("\n").removeprefix(end).split("\n")]
    if not all((before, key, value, end)):
        return None
    return ParameterCalls(before, key, value, end, _texts(around), types)


def _last_tag(text: str) -> str:
    return text[max(text.rfind("<"), 0) :].strip()


def _learn_json(text: str) -> JsonCalls | None:
    for value, start, end in _json_values(text, r"[{\[]"):
        entry = value[0] if isinstance(value, list) and value else value
        if isinstance(entry, dict) and isinstance(entry.get("function"), dict):
            entry = entry["function"]
        if not isinstance(entry, dict) or NAMES[0] not in entry.values():
            continue
        name = next(key for key, held in entry.items() if held == NAMES[0])
        held = [key for key in entry if entry[key] in (ARGUMENTS, json.dumps(ARGUMENTS))]
        if held:
            return JsonCalls(text[:start].strip(), text[end:].strip(), name, held[0])
    return None


def _json_values(text: str, begin: str) -> Iterator[tuple[Any, int, int]]:
    """The JSON values in a text that begin with such a sign, each with its place."""
    for match in re.finditer(begin, text):
        with suppress(ValueError):
            value, end = _JSON.raw_decode(text, match.start())
            yield value, match.start(), end


def _json(text: str, place: int) -> tuple[Any, str]:
    """The JSON value at a text's beginning, and what follows."""
    try:
        value, end = _JSON.raw_decode(text.lstrip())
    except RecursionError:
        raise ValueError(f"tool call {place}: it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"tool call {place}: it is not JSON: {error}") from None
    return value, text.lstrip()[end:]


def _text(content: str) -> str:
    return content.removeprefix("\n").removesuffix("\n")


def _value(content: str) -> Any:
    for read in (json.loads, ast.literal_eval):  # some templates write values as Python does
        try:
            return read(content.strip())
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return content  # the tool's schema says what is wrong with it


def _object(arguments: Any, place: int) -> Mapping[str, Any]:
    if not isinstance(arguments, dict):
        raise ValueError(f"tool call {place}: its arguments are no JSON object")
    return arguments


def _parsed(code: str) -> list[ast.stmt]:
    """The statements of Python code; none where it is not Python."""
    try:
        return ast.parse(code).body
    except (SyntaxError, RecursionError, MemoryError, ValueError):
        return []


def _elements(line: ast.stmt) -> Sequence[Any]:
    """The expressions of a line, a list's one by one."""
    value = line.value if isinstance(line, ast.Expr) else None
    return value.elts if isinstance(value, ast.List | ast.Tuple) else [value]


def _python_call(call: ast.Call, place: int) -> Call:
    if call.args or any(keyword.arg is None for keyword in call.keywords):
        raise ValueError(f"tool call {place}: write each argument as key=value")
    try:
        arguments = {
            str(one.arg): ast.literal_eval(_Constants().visit(one.value)) for one in call.keywords
        }
        return Call(ast.unparse(call.func), arguments)
    except (ValueError, TypeError, RecursionError, MemoryError):
        raise ValueError(f"tool call {place}: its arguments are no literals") from None


class _Constants(ast.NodeTransformer):
    """JSON's words for constants as Python's."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(_CONSTANTS[node.id]) if node.id in _CONSTANTS else node


def beginning(one: str, other: str) -> str:
    """The longest text with which both begin."""
    pairs = enumerate(zip(one, other, strict=False))
    return one[: next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))]


def _ending(one: str, other: str) -> str:
    return beginning(one[::-1], other[::-1])[::-1]


def _texts(around: Sequence[str]) -> list[str]:
    return [text.strip() for text in around if text.strip()]


def _without(said: str, texts: Sequence[str]) -> str:
    for text in texts:
        said = said.replace(text, "")
    return said
