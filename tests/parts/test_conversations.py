"""Conversations of others: rendered as an episode is, refused where they could not be."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.fakes import Capitals
from turnwise import registry, wings
from turnwise.config import ModelConfig, RolloutConfig, ScaffoldConfig
from turnwise.errors import DataError, MissingExtraError
from turnwise.models.load import load_tokenizer
from turnwise.parts.conversations import conversation_tokens, read_conversations
from turnwise.rollout.demonstrations import demonstrate
from turnwise.scaffolds.base import Scaffold
from turnwise.scaffolds.registry import make_scaffold
from turnwise.storage.messages import messages_of
from turnwise.storage.trajectory_rows import trajectory_row
from turnwise.tokens import Source
from turnwise.types import Action, ToolCall

TOKENIZER = load_tokenizer(ModelConfig(name="tiny"))
CALL = {"id": "a", "function": {"name": "lookup", "arguments": '{"country": "France"}'}}
ASKED: list[dict[str, Any]] = [
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": [{"type": "text", "text": "Capital of France?"}]},
    {"role": "assistant", "content": "look it up", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "a", "content": "The capital is Paris."},
    {"role": "assistant", "content": "Paris", "reasoning_content": "there it is"},
]


def scaffold(name: str = "tags", **options: Any) -> Scaffold:
    config = ScaffoldConfig(name=name, options=options)
    return make_scaffold(config, TOKENIZER, Capitals().tools())


class Twice(Capitals):
    """Looks two countries up in one turn."""

    def oracle(self, task: Any) -> Sequence[Action]:
        *_, answer = super().oracle(task)
        calls = [ToolCall("lookup", {"country": land}, id=land) for land in (task.id, "Atlantis")]
        return [Action("", "both", calls=tuple(calls)), answer]


@pytest.mark.parametrize(
    ("chosen", "environment"),
    [
        ({}, Capitals()),
        pytest.param({"name": "react"}, Capitals(), marks=pytest.mark.wing("environments")),
        ({"parallel_calls": True}, Twice()),
    ],
    ids=["tags", "react", "parallel calls"],
)
def test_an_episode_that_is_written_as_messages_is_read_as_the_same_tokens(
    chosen: dict[str, Any], environment: Capitals
) -> None:
    made = scaffold(**chosen)
    tasks, limits = environment.tasks("train"), RolloutConfig()
    (played,) = asyncio.run(demonstrate(environment, made, limits, tasks, {"faithful": 1}, 1, 0))
    row = {
        name: getattr(value, "tolist", lambda value=value: value)()
        for name, value in trajectory_row(played).items()
    }
    messages = messages_of(row, TOKENIZER.decode)
    tokens = conversation_tokens(json.loads(json.dumps(messages)), made, "here")
    expected = played.tokens
    assert tokens.ids.tolist() == expected.ids.tolist()[: len(tokens)]
    assert tokens.source.tolist() == expected.source.tolist()[: len(tokens)]
    assert tokens.turn.tolist() == expected.turn.tolist()[: len(tokens)]
    assert not expected.mask[len(tokens) :].any()


def test_a_conversation_is_a_prompt_and_turns_of_which_the_assistants_are_trained() -> None:
    tokens = conversation_tokens(ASKED, scaffold(instructions=""), "here")
    trained = TOKENIZER.decode(tokens.ids[tokens.mask])
    assert trained == (
        "<think> look it up</think><lookup> France</lookup>"
        "<think> there it is</think><answer> Paris</answer>"
    )
    prompt = TOKENIZER.decode(tokens.ids[tokens.source == Source.USER])
    assert prompt == "Be short.\n\nCapital of France?"
    assert "The capital is Paris." in TOKENIZER.decode(tokens.ids[tokens.source == Source.TOOL])
    assert tokens.turn[tokens.mask].tolist() == sorted(tokens.turn[tokens.mask].tolist())
    assert np.isnan(tokens.logprob).all()


def test_results_without_ids_are_in_the_order_of_the_calls() -> None:
    calls = [{**CALL, "id": None}] * 2
    told = [{"role": "tool", "tool_call_id": None, "content": city} for city in ("Paris", "Nice")]
    messages = [ASKED[1], {"role": "assistant", "tool_calls": calls}, *told, ASKED[-1]]
    made = scaffold(parallel_calls=True, instructions="")
    tokens = conversation_tokens(messages, made, "here")
    assert TOKENIZER.decode(tokens.ids[tokens.source == Source.TOOL]) == " Paris Nice"


def test_a_conversation_as_an_agents_own_run_leaves_it() -> None:
    """Several system messages, parts, results in any order, a user's word after them."""
    calls = [CALL, {"id": "b", "function": {"name": "lookup", "arguments": '{"country": "Peru"}'}}]
    messages = [
        {"role": "developer", "content": "Be short."},
        {"role": "system", "content": [{"type": "text", "text": "Be "}, {"text": "kind."}]},
        {"role": "user", "content": "Capitals?"},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "Lima"}]},
        {"role": "user", "content": "Hurry."},
        {"role": "tool", "tool_call_id": "a", "content": "Paris"},
        {"role": "assistant", "content": "Paris, Lima"},
    ]
    made = scaffold(parallel_calls=True, instructions="")
    tokens = conversation_tokens(messages, made, "here")
    prompt = TOKENIZER.decode(tokens.ids[tokens.source == Source.USER])
    assert prompt == "Be short.\n\nBe kind.\n\nCapitals?"
    shown = TOKENIZER.decode(tokens.ids[tokens.source == Source.TOOL])
    assert shown == " Paris Lima\nHurry."


def test_a_turn_of_weight_0_is_shown_and_not_trained() -> None:
    tokens = conversation_tokens(changed(2, weight=0), scaffold(), "here")
    trained = conversation_tokens(ASKED, scaffold(), "here")
    assert tokens.ids.tolist() == trained.ids.tolist()
    assert "look it up" in TOKENIZER.decode(tokens.ids[tokens.source == Source.INHERITED])
    assert "look it up" not in TOKENIZER.decode(tokens.ids[tokens.mask])
    assert "Paris" in TOKENIZER.decode(tokens.ids[tokens.mask])


def changed(number: int, **values: Any) -> list[dict[str, Any]]:
    return [
        {**message, **values} if place == number else message for place, message in enumerate(ASKED)
    ]


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        (changed(2, tool_calls=[{"function": {"name": "fly", "arguments": "{}"}}]), "fly"),
        (changed(2, tool_calls=[{"function": {"name": "lookup", "arguments": "{"}}]), "JSON text"),
        (changed(2, tool_calls=["lookup"]), "a tool call is"),
        (changed(4, content=""), "says nothing and calls nothing"),
        (changed(4, content="<answer> Paris</answer>"), "reads this turn as"),
        (changed(3, content=[{"type": "image_url"}]), "not 'image_url'"),
        (changed(3, content=7), "content is text"),
        (changed(2, tool_calls=None), "results of tools stand where none was called"),
        (ASKED[2:], "nothing stands before"),
    ],
)
def test_a_turn_that_could_not_be_played_is_refused_with_its_place(
    messages: list[dict[str, Any]], said: str
) -> None:
    with pytest.raises(DataError, match=r"here, message \d.*" + said):
        conversation_tokens(messages, scaffold(), "here")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 2: broken JSON: Expecting property name"),
        ("[" * 100_000, "line 2: this JSON is nested too deeply"),
        ('{"prompt": "x"}', 'line 2 has no "messages"'),
        ('{"messages": ["x"]}', 'line 2 has no "messages"'),
        ('{"messages": [{"role": "bot"}]}', "line 2 has a message of role 'bot'"),
        ('{"messages": [{"role": "user"}]}', "line 2 has no message of the assistant"),
        ('{"messages": [{"role": "assistant", "weight": 0}]}', "line 2 has no message of the"),
        ('{"messages": [{"role": "assistant", "weight": 2}]}', "line 2: a message's weight is 0"),
    ],
)
def test_a_line_that_is_no_conversation_is_refused_with_its_number(
    tmp_path: Path, line: str, said: str
) -> None:
    file = tmp_path / "conversations.jsonl"
    file.write_text(json.dumps({"messages": ASKED}) + "\n" + line + "\n")
    with pytest.raises(DataError, match=said):
        read_conversations(file)


def test_lines_end_at_a_line_feed_alone(tmp_path: Path) -> None:
    """JSON may have what ends lines elsewhere in its texts, and a file may begin with a mark."""
    said = "one\u2028two\u2029three\x85four"
    line = json.dumps(
        {"messages": [{"role": "user", "content": said}, ASKED[-1]]}, ensure_ascii=False
    )
    file = tmp_path / "conversations.jsonl"
    file.write_bytes(f"\ufeff{line}\r\n\n{line}\n".encode())
    found = read_conversations(file)
    assert [place for place, _ in found] == [f"{file}, line 1", f"{file}, line 3"]
    assert {messages[0]["content"] for _, messages in found} == {said}


def test_a_file_that_is_missing_or_empty_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_conversations(tmp_path / "none.jsonl")
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(DataError, match="holds no conversation"):
        read_conversations(tmp_path / "empty.jsonl")


def test_a_trajectory_in_atif_says_what_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (registry, wings):
        monkeypatch.setattr(module, "wings", lambda: wings.Wings({}, []))
    (tmp_path / "one.json").write_text('{"schema_version": "ATIF-v1.7"}')
    with pytest.raises(MissingExtraError, match=r"atif, is not installed: .*turnwise\[studies\]"):
        read_conversations(tmp_path)
