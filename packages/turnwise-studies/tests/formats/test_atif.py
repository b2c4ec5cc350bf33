"""Trajectories of other agents in ATIF: read as the conversations that their models had."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import Capitals
from turnwise.config import ModelConfig
from turnwise.errors import DataError
from turnwise.models.load import load_tokenizer
from turnwise.parts.conversations import conversation_tokens, read_conversations
from turnwise.scaffolds.tags import TagsScaffold

TOKENIZER = load_tokenizer(ModelConfig(name="tiny"))
CALL = {"tool_call_id": "a", "function_name": "lookup", "arguments": {"country": "France"}}
ASKED = {"source": "user", "message": "Capital of France?"}
CALLED = {
    "source": "agent",
    "message": "",
    "reasoning_content": "look it up",
    "tool_calls": [CALL],
    "observation": {"results": [{"source_call_id": "a", "content": "The capital is Paris."}]},
}
ANSWERED = {"source": "agent", "message": "Paris"}
REPLACED = {
    "source": "system",
    "message": "Compacted.",
    "observation": {"results": [{"content": "France was asked about."}]},
    "extra": {"context_management": {"type": "compaction", "boundary": "replace"}},
}


def trajectory(*steps: dict[str, Any], **root: Any) -> dict[str, Any]:
    numbered = [{"step_id": number, **step} for number, step in enumerate(steps, 1)]
    agent = {"name": "other", "version": "1"}
    return {"schema_version": "ATIF-v1.7", "agent": agent, "steps": numbered, **root}


def read(tmp_path: Path, value: Any) -> list[tuple[str, Any]]:
    file = tmp_path / "trajectory.json"
    file.write_text(json.dumps(value, indent=1))
    return [(place.removeprefix(str(file)), m) for place, m in read_conversations(file)]


def rendered(messages: Any, trained: bool = False) -> str:
    scaffold = TagsScaffold(TOKENIZER, Capitals().tools(), instructions="")
    tokens = conversation_tokens(messages, scaffold, "here")
    return TOKENIZER.decode(tokens.ids[tokens.mask] if trained else tokens.ids)


@pytest.mark.parametrize("version", ["1.4", "1.5", "1.6", "1.7", "1.8"])
def test_steps_are_messages(version: str, tmp_path: Path) -> None:
    system = {"source": "system", "message": [{"type": "text", "text": "Be short."}]}
    value = trajectory(system, ASKED, CALLED, ANSWERED, schema_version=f"ATIF-v{version}")
    ((place, messages),) = read(tmp_path, value)
    assert place == ""
    roles = ["system", "user", "assistant", "tool", "assistant"]
    assert [message["role"] for message in messages] == roles
    assert rendered(messages).startswith("Be short.\n\nCapital of France?")
    assert rendered(messages, trained=True) == (
        "<think> look it up</think><lookup> France</lookup><answer> Paris</answer>"
    )


@pytest.mark.parametrize("mark", [{"is_copied_context": True}, {"llm_call_count": 0}])
def test_what_was_copied_or_what_no_model_made_is_shown_and_not_trained(
    mark: dict[str, Any], tmp_path: Path
) -> None:
    ((_, messages),) = read(tmp_path, trajectory(ASKED, CALLED | mark, ANSWERED))
    assert "look it up" in rendered(messages)
    assert rendered(messages, trained=True) == "<answer> Paris</answer>"


def test_another_conversation_begins_where_the_context_is_replaced(tmp_path: Path) -> None:
    again = {"source": "user", "message": "Well?"}
    first, second = read(tmp_path, trajectory(ASKED, CALLED, REPLACED, again, ANSWERED))
    assert (first[0], second[0]) == (", context 1", ", context 2")
    assert "Paris" not in rendered(first[1]), "what follows the last turn is left out"
    assert rendered(second[1]).startswith("France was asked about.\n\nWell?")
    assert "Compacted" not in rendered(second[1])


def test_results_that_name_no_call_are_those_of_the_next_one(tmp_path: Path) -> None:
    unnamed = CALLED | {"observation": {"results": [{"content": "Paris, it says."}]}}
    ((_, messages),) = read(tmp_path, trajectory(ASKED, unnamed, ANSWERED))
    assert messages[2]["tool_call_id"] == "a"
    environment = {**ANSWERED, "observation": {"results": [{"content": "Really?"}]}}
    ((_, messages),) = read(tmp_path, trajectory(ASKED, environment, ANSWERED))
    assert (messages[2]["role"], messages[2]["content"]) == ("user", "Really?")


def delegated(**reference: Any) -> dict[str, Any]:
    result = {"source_call_id": "a", "content": "Paris", "subagent_trajectory_ref": [reference]}
    return CALLED | {"observation": {"results": [result]}}


def test_an_embedded_sub_agent_is_a_conversation_of_its_own(tmp_path: Path) -> None:
    inner = trajectory(ASKED, ANSWERED, trajectory_id="inner")
    outer = trajectory(ASKED, delegated(trajectory_id="inner"), ANSWERED)
    found = read(tmp_path, outer | {"subagent_trajectories": [inner]})
    assert [place for place, _ in found] == ["", ", sub-agent inner"]
    assert [len(messages) for _, messages in found] == [4, 2]


def test_a_folder_has_trajectories_that_refer_to_each_other_and_other_files(tmp_path: Path) -> None:
    outer = trajectory(ASKED, delegated(trajectory_path="inner.json"), ANSWERED)
    (tmp_path / "trial").mkdir()
    (tmp_path / "trial/inner.json").write_text(json.dumps(trajectory(ASKED, ANSWERED)))
    (tmp_path / "trial/outer.json").write_text(json.dumps(outer))
    (tmp_path / "config.json").write_text("{}")
    found = read_conversations(tmp_path)
    names = [Path(place).name for place, _ in found]
    assert names == ["inner.json", "outer.json"]
    with pytest.raises(DataError, match=r"step 2: the trajectory of the sub-agent inner\.json"):
        read_conversations(tmp_path / "trial/outer.json")
    (tmp_path / "none").mkdir()
    with pytest.raises(DataError, match="holds no conversation"):
        read_conversations(tmp_path / "none")


UNSAID = {"source_call_id": "a", "subagent_trajectory_ref": [{"trajectory_id": "inner"}]}
INNER = trajectory(ASKED, ANSWERED, trajectory_id="inner")
TRIMMED = {**REPLACED, "extra": {"context_management": {"boundary": "truncate"}}}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (trajectory(ASKED, ANSWERED, schema_version="ATIF-v2.0"), "is in ATIF-v2.0: ATIF-v1.4 to"),
        (trajectory(ASKED, CALLED | {"is_copied_context": True}), "holds no conversation"),
        (trajectory(ASKED) | {"steps": ["x"]}, '"steps" is a list of objects'),
        (trajectory({"source": "bot", "message": "x"}), "step 1 is by 'bot'"),
        (trajectory(ASKED, CALLED, TRIMMED, ANSWERED), "step 3: what is left of the context"),
        (trajectory(ASKED, delegated(trajectory_id="x"), ANSWERED), "step 2: the trajectory of"),
        (
            trajectory(
                ASKED,
                CALLED | {"observation": {"results": [UNSAID]}},
                ANSWERED,
                subagent_trajectories=[INNER],
            ),
            "step 2: what the agent was shown of its sub-agent is not recorded",
        ),
    ],
)
def test_what_cannot_be_shown_again_is_refused_with_its_step(
    value: Any, said: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=rf"trajectory\.json.*{said}"):
        read(tmp_path, value)


def test_images_are_refused_with_their_step(tmp_path: Path) -> None:
    image = {"type": "image", "source": {"media_type": "image/png", "path": "x.png"}}
    ((place, messages),) = read(tmp_path, trajectory({**ASKED, "message": [image]}, ANSWERED))
    scaffold = TagsScaffold(TOKENIZER, Capitals().tools())
    with pytest.raises(DataError, match=r"step 1: content is text.*not 'image'"):
        conversation_tokens(messages, scaffold, place)
