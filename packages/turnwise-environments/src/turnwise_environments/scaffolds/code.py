"""Code as action: a turn is a thought and a block of Python between <code> and </code>.

A block of nothing but calls of the environment's tools with literal arguments, one a line, each of
which may stand in print(), is these calls: nothing is evaluated, they are made in order, as those
of any other turn. Any other block is what the tool `python` runs, where the environment has one: in
its sandbox, whose session can last as long as the episode. A block of final_answer(...) alone gives
the answer. Not here: loops, variables and functions without a tool `python`, and calls of other
tools from within its sandbox, since they live outside of it.

Source: CodeAct (Wang et al. 2024, arXiv 2402.01030); <code> and `final_answer` are smolagents'.
"""

import ast
import json
import re
from collections.abc import Iterator, Sequence

from transformers import PreTrainedTokenizerBase

from turnwise.scaffolds.text import TextScaffold
from turnwise.tokens import Segment, Source
from turnwise.tools.tool import Tool
from turnwise.types import Action, Observation, ToolCall, ToolResult

INSTRUCTIONS = (
    "Answer the question by writing Python. Think first, then write one block of code between "
    "<code> and </code>. {tools}\nWhat comes of it stands between <output> and </output>. When you "
    'know the answer, write a block with final_answer("…") alone, without explanation.\n'
)
_BLOCK = re.compile(r"<code>\n?(.*?)</code>", re.DOTALL)
ANSWER = "final_answer"
PYTHON = "python"


class CodeScaffold(TextScaffold):
    """See the module."""

    _thought = "{}\n"
    _form = "End your turn with one block between <code> and </code>."
    stop: tuple[str, ...] = ("</code>",)

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        tools: Sequence[Tool],
        instructions: str = INSTRUCTIONS,
        date: str = "",
    ) -> None:
        """`instructions` precede the task; `{tools}` in them becomes the list of tools."""
        super().__init__(tokenizer, tools, instructions, date)

    def extend(
        self,
        observation: Observation,
        written: Sequence[int] = (),
        results: Sequence[ToolResult] = (),
        words: Sequence[str] = (),
    ) -> list[Segment]:
        """An output block, which holds each result in order, and a user's words after them; what
        stands in it cannot contain special tokens."""
        del written, results
        said = "".join(f"\n{text}" for text in words)
        return [
            Segment(self._encode("\n<output>\n"), Source.TEMPLATE),
            Segment(self._encode_foreign(observation.content), observation.source),
            *([Segment(self._encode_foreign(said), Source.USER)] if said else []),
            *self._images(observation),
            Segment(self._encode("\n</output>\n"), Source.TEMPLATE),
            *self._reopened(),
        ]

    def _parted(self, turn: str) -> tuple[str, str]:
        opened, said = self._thought_and_rest(turn)
        before = next((said[: found.start()] for found in _blocks(said)), said)
        return f"{opened} {before.strip()}".strip(), said

    def _said(self, action: Action) -> str:
        if action.answer is not None:
            code = f"{ANSWER}({action.answer!r})"
        else:
            code = "\n".join(map(self._written, action.calls))
        return f"<code>\n{code}\n</code>"

    def _read(self, said: str) -> tuple[tuple[ToolCall, ...], str | None]:
        """Exactly one block, that can be made calls or an answer of."""
        blocks = [found[1] for found in _blocks(said)]
        if "<output>" in said:
            raise ValueError("only the environment writes <output>")
        if len(blocks) != 1:
            raise ValueError("there are several blocks" if blocks else "there is no whole block")
        code = blocks[0].rstrip()
        if not code:
            raise ValueError("the block is empty")
        try:
            body = ast.parse(code).body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            if PYTHON in self._tools:  # Python itself says what is wrong
                return (ToolCall(PYTHON, {self._argument: code}),), None
            raise ValueError(f"the block is no Python: {error}") from None
        calls = [_call_in(statement) for statement in body]
        if len(calls) == 1 and calls[0] is not None and _name(calls[0]) == ANSWER:
            return (), _answer(calls[0])
        known = all(call is not None and _name(call) in self._tools for call in calls)
        if PYTHON in self._tools and not known:
            return (ToolCall(PYTHON, {self._argument: code}),), None
        return tuple(self._call(call) for call in calls), None

    def _call(self, call: ast.Call | None) -> ToolCall:
        if call is None:
            raise ValueError("a line is not the call of a tool")
        name = _name(call)
        if name not in self._tools:
            raise ValueError(f"there is no function {name!r}; there are {', '.join(self._tools)}")
        names = list(self._tools[name].schema["parameters"].get("properties", {}))
        if len(call.args) > len(names) or any(word.arg is None for word in call.keywords):
            raise ValueError(f"the arguments of {name} are {', '.join(names) or 'none'}")
        given = [*zip(names, call.args, strict=False)]
        given += [(str(word.arg), word.value) for word in call.keywords]
        if len(given) != len(dict(given)):
            raise ValueError(f"an argument of {name} is given twice")
        return ToolCall(name, {key: _literal(name, value) for key, value in given})

    @property
    def _argument(self) -> str:
        """Name of the argument of the tool `python` that holds its code."""
        return str(next(iter(self._tools[PYTHON].schema["parameters"]["properties"])))

    def _written(self, call: ToolCall) -> str:
        if call.name == PYTHON:
            return str(call.arguments[self._argument])
        arguments = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
        return f"{call.name}({arguments})"

    def _described(self) -> str:
        lines = [_signature(tool) for name, tool in self._tools.items() if name != PYTHON]
        if lines:
            lines = ["Call these functions, with literal arguments, one a line:", *lines]
        if PYTHON in self._tools:
            other = "Other code runs in a sandbox" if lines else "The code runs in a sandbox"
            lines.append(f"{other}: {self._tools[PYTHON].description}")
        return "\n".join(lines)


def _blocks(said: str) -> Iterator[re.Match[str]]:
    # Nothing matches behind the last closing tag: each opening would look for one to the end.
    return _BLOCK.finditer(said, 0, said.rfind("</code>") + len("</code>"))


def _call_in(statement: ast.stmt) -> ast.Call | None:
    """The call that a line consists of, without a print() around it."""
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return None
    call = statement.value
    if _name(call) == "print" and len(call.args) == 1 and isinstance(call.args[0], ast.Call):
        return call.args[0]
    return call


def _name(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _answer(call: ast.Call) -> str:
    if len(call.args) != 1 or call.keywords:
        raise ValueError(f"{ANSWER} takes one argument")
    answer = str(_literal(ANSWER, call.args[0])).strip()
    if not answer:
        raise ValueError("the answer is empty")
    return answer


def _literal(name: str, value: ast.expr) -> object:
    """A literal's value. Raises ValueError for literals that JSON lacks: sets, bytes, half of a
    character."""
    try:
        found = ast.literal_eval(value)
        json.dumps(found, ensure_ascii=False, sort_keys=True, allow_nan=False).encode()
    except (ValueError, TypeError, RecursionError, MemoryError):
        raise ValueError(f"an argument of {name} is no literal of JSON's kinds") from None
    return found


def _signature(tool: Tool) -> str:
    """A tool's line in the instructions, as Python would have it."""
    required = tool.schema["parameters"].get("required", [])
    names = [
        f"{name}: {entry.get('type', 'any')}" + ("" if name in required else " = …")
        for name, entry in tool.schema["parameters"].get("properties", {}).items()
    ]
    return f"def {tool.name}({', '.join(names)}): {tool.description}"
