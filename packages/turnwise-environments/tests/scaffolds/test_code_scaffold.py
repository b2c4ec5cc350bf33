"""Code as action: what a block is made of where tools live here, and where there is a sandbox."""

import asyncio

import pytest

from tests.fakes import Capitals, byte_tokenizer
from turnwise.config import RolloutConfig
from turnwise.engines.scripted import ScriptedEngine
from turnwise.rollout.priority_semaphore import PrioritySemaphore
from turnwise.rollout.runner import RolloutRunner
from turnwise.tokens import Source
from turnwise.tools.tool import Tool, tool
from turnwise.types import Action, Observation, Outcome, ToolCall
from turnwise_environments.scaffolds.code import CodeScaffold

TOKENIZER = byte_tokenizer()


class Tools:
    @tool
    def search(self, query: str) -> str:
        """Search the documents."""
        return query

    @tool
    def move(self, x: int, y: int = 0) -> str:
        """Move."""
        return f"{x} {y}"


class Sandboxed:
    @tool
    def python(self, code: str) -> str:
        """Run Python; variables are kept."""
        return code


def scaffold_of(owner: object, *names: str) -> CodeScaffold:
    return CodeScaffold(TOKENIZER, [Tool.of(getattr(owner, name)) for name in names])


@pytest.fixture
def scaffold() -> CodeScaffold:
    return scaffold_of(Tools(), "move", "search")


def encode(text: str) -> list[int]:
    return list(TOKENIZER(text, add_special_tokens=False)["input_ids"])


def test_a_block_of_calls_is_those_calls_in_order(scaffold: CodeScaffold) -> None:
    code = "# two at once\nsearch('a b')\nprint(move(1, y=-2))"
    action = scaffold.parse(encode(f"First look.\n<code>\n{code}\n</code>"))
    assert action.error is None
    assert action.thought == "First look."
    assert action.calls == (
        ToolCall("search", {"query": "a b"}),
        ToolCall("move", {"x": 1, "y": -2}),
    )
    assert scaffold.parse(encode("<code>final_answer('Rome')</code>")).answer == "Rome"
    assert scaffold.parse(encode("<code>\nfinal_answer(42)\n</code>")).answer == "42"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("no code", "no whole block"),
        ("<code>search('a')", "no whole block"),
        ("<code></code>", "block is empty"),
        ("<code>search('a')</code><code>search('b')</code>", "several blocks"),
        ("<code>search(</code>", "no Python"),
        ("<code>x = search('a')</code>", "not the call of a tool"),
        ("<code>for _ in range(9): search('a')</code>", "not the call of a tool"),
        ("<code>search('a').strip()</code>", "no function ''"),
        ("<code>search(open('x').read())</code>", "no literal"),
        ("<code>search(name)</code>", "no literal"),
        ("<code>search({1, 2})</code>", "no literal"),
        ("<code>search(b'x')</code>", "no literal"),
        ("<code>search({(1, 2): 3})</code>", "no literal"),
        ("<code>search({1: 2, 'a': 3})</code>", "no literal"),
        (r"<code>search('\ud800')</code>", "no literal"),
        (r"<code>final_answer('\ud800')</code>", "no literal"),
        ("<code>move(1, x=2)</code>", "given twice"),
        ("<code>move(1, 2, 3)</code>", "arguments of move are x, y"),
        ("<code>move(**{'x': 1})</code>", "arguments of move are x, y"),
        ("<code>__import__('os')</code>", "no function '__import__'"),
        ("<code>search('a')\nfinal_answer('b')</code>", "no function 'final_answer'"),
        ("<code>final_answer()</code>", "takes one argument"),
        ("<code>final_answer(' ')</code>", "answer is empty"),
        ("<output>42</output><code>final_answer(42)</code>", "only the environment"),
    ],
)
def test_what_is_no_list_of_calls_says_why(scaffold: CodeScaffold, text: str, problem: str) -> None:
    action = scaffold.parse(encode(text))
    assert action.error is not None
    assert problem in action.error
    assert not action.calls
    assert action.answer is None


def test_with_a_sandbox_the_block_is_what_it_runs() -> None:
    scaffold = scaffold_of(Sandboxed(), "python")
    for code in ("x = 1\nfor n in range(3):\n    x += n\nprint(x)", "this is no Python"):
        action = scaffold.parse(encode(f"<code>\n{code}\n</code>"))
        assert action.calls == (ToolCall("python", {"code": code}),)
    assert scaffold.parse(encode("<code>\nfinal_answer('7')\n</code>")).answer == "7"


def test_what_is_rendered_is_parsed_back(scaffold: CodeScaffold) -> None:
    for action in (
        Action("", "why", answer='it\'s "json"'),
        Action("", "go", (ToolCall("move", {"x": 1, "y": 2}), ToolCall("search", {"query": "a"}))),
    ):
        parsed = scaffold.parse(scaffold.render(action))
        assert (parsed.thought, parsed.calls, parsed.answer) == (
            action.thought,
            action.calls,
            action.answer,
        )


def test_the_instructions_name_the_functions(scaffold: CodeScaffold) -> None:
    (first, *_) = scaffold.begin(Observation("Who?", Source.USER))
    text = TOKENIZER.decode(first.tokens)
    assert "def move(x: integer, y: integer = …): Move." in text
    assert "def search(query: string): Search the documents." in text


def test_several_calls_come_back_in_one_block() -> None:
    environment = Capitals()
    scaffold = CodeScaffold(TOKENIZER, environment.tools(), instructions="")
    calls = tuple(ToolCall("lookup", {"country": land}) for land in ("Italy", "Spain"))
    script = iter([Action("", calls=calls), Action("", answer="Paris")])
    engine = ScriptedEngine(lambda session, prompt: scaffold.render(next(script)))
    limits = RolloutConfig(max_turn_tokens=100)
    runner = RolloutRunner(environment, scaffold, engine, limits, PrioritySemaphore(1))
    (group,) = asyncio.run(runner.collect(environment.tasks("train")[:1], 1, 0, "test"))
    played = group.trajectories[0]
    assert played.outcome == Outcome.SUCCESS
    tokens = played.tokens
    assert TOKENIZER.decode(tokens.ids.tolist()) == (
        "Capital of France?\n<code>\nlookup(country='Italy')\nlookup(country='Spain')\n</code>"
        "\n<output>\nThe capital is Rome.\nThe capital is Madrid.\n</output>\n"
        "<code>\nfinal_answer('Paris')\n</code>"
    )
    own = TOKENIZER.decode(tokens.ids[tokens.mask].tolist())
    assert own.count("<code>") == 2
    assert "The capital" not in own
