"""Episodes in ATIF: valid, with the tokens as they are recorded, and read back as the same ones."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from atif_schema import Trajectory as Schema
from looked_up import CALL, TASK, begun, encode, looked_up, scaffold
from tests.commands.shell import Shell
from tests.rollout.test_context import TOKENIZER, play
from turnwise.errors import ConfigError, DataError
from turnwise.parts.conversations import conversation_tokens, read_conversations
from turnwise.storage.run_folder import RunFolder
from turnwise.tokens import Segment, Source, Tokens
from turnwise.types import Action, Group, Outcome, Step, ToolResult, Trajectory, Turn
from turnwise_studies.formats.atif_export import export_atif


def written(tmp_path: Path, episodes: Sequence[Trajectory]) -> list[dict[str, Any]]:
    """The files of a run whose first step has these episodes; all of them are valid."""
    folder = begun(tmp_path / "run")
    TOKENIZER.save_pretrained(str(folder.tokenizer))
    folder.write_trajectories("step-000001", [Group("g", tuple(episodes))])
    export_atif(folder, tmp_path / "atif")
    texts = [file.read_text() for file in sorted((tmp_path / "atif").iterdir())]
    for text in texts:
        assert "a secret" not in text
        Schema.model_validate_json(text)
    return [json.loads(text) for text in texts]


def test_turns_have_the_tokens_and_log_probabilities_as_they_are_recorded(tmp_path: Path) -> None:
    played = looked_up()
    (found,) = written(tmp_path, [played])
    tokens = played.tokens
    turns = [step for step in found["steps"] if step["source"] == "agent"]
    for number, step in enumerate(turns):
        own = tokens.mask & (tokens.turn == number)
        metrics = step["metrics"]
        assert metrics["prompt_token_ids"] == tokens.ids[: int(np.argmax(own))].tolist()
        assert metrics["completion_token_ids"] == tokens.ids[own].tolist()
        assert np.array_equal(np.float32(metrics["logprobs"]), tokens.logprob[own])
        assert set(metrics["extra"]["policy_versions"]) == {number}
    call, malformed, answer = turns
    assert call["reasoning_content"] == "look it up"
    assert call["tool_calls"][0]["arguments"] == {"country": "Italy"}
    assert call["observation"]["results"] == [{"source_call_id": "0.0", "content": "Rome"}]
    assert (malformed["message"], malformed["extra"]["turnwise"]["error"]) == ("hm", "no tag")
    assert malformed["observation"]["results"] == [{"content": "no tag"}]
    assert answer["message"] == "Rome"
    assert found["steps"][0] == {"step_id": 1, "source": "user", "message": TASK.prompt}
    verdict = found["final_metrics"]["extra"]
    assert (verdict["reward"], verdict["success"], verdict["parts"]) == (1.0, True, {"f1": 1.0})
    assert (found["extra"]["task"], found["extra"]["outcome"]) == ("Italy", "success")


def test_what_is_not_a_number_and_what_nobody_saw(tmp_path: Path) -> None:
    """A scripted policy has no log-probabilities; a result that ended the episode is recorded."""
    tokens = Tokens.empty().with_segments([Segment(encode("?"), Source.USER)], 0)
    tokens = tokens.with_sampled(encode("a"), [np.nan], 0, 0)
    over = Turn(Action("a", calls=(CALL,)), Step(None, (ToolResult(CALL, "the end"),), done=True))
    lost = Trajectory(TASK, "a/Italy", 0, 7, tokens, (over,), Outcome.GRADER_ERROR)
    never = replace(lost, tokens=Tokens.empty(), turns=(), outcome=Outcome.INFRASTRUCTURE_RESET)
    (found,) = written(tmp_path, [lost, never])
    step = found["steps"][1]
    assert "logprobs" not in step["metrics"]
    assert step["observation"]["results"][0]["content"] == "the end"
    assert found["final_metrics"]["extra"]["reward"] is None


@pytest.mark.parametrize("mode", ["fail", "drop", "truncate", "summarise"])
def test_of_several_contexts_each_turn_is_trained_once_in_what_the_policy_read(
    mode: str, tmp_path: Path
) -> None:
    """Read back, contexts are conversations with the tokens that are recorded."""
    played = play(mode, 2 if mode == "fail" else 6)
    (found,) = written(tmp_path, [played])
    tokens = played.tokens
    sampled = [step["metrics"] for step in found["steps"] if "metrics" in step]
    ids = [token for metrics in sampled for token in metrics["completion_token_ids"]]
    assert ids == tokens.ids[tokens.mask].tolist()
    read = read_conversations(tmp_path / "atif")
    assert len(read) == len(tokens.contexts) > (mode != "fail")
    boundaries = [step["extra"] for step in found["steps"] if step["source"] == "system"]
    kinds = {one["context_management"]["type"] for one in boundaries}
    assert kinds == {"fail": set(), "summarise": {"compaction"}}.get(mode, {"pruning"})
    for (place, messages), span in zip(read, tokens.spans, strict=True):
        weights = [one["weight"] for one in messages if one["role"] == "assistant"]
        own = {int(turn) for turn in tokens.turn[span][tokens.mask[span]]}
        assert sum(weights) == len(own)
        rendered = conversation_tokens(messages, scaffold(), place)
        kept = rendered.ids != TOKENIZER.eos_token_id
        end = span.start + int(kept.sum())
        assert kept.all() or mode == "summarise", "the scripted summaries have no end"
        assert rendered.ids[kept].tolist() == tokens.ids[span.start : end].tolist()
        assert rendered.mask[kept].tolist() == tokens.mask[span.start : end].tolist()


def test_a_summary_stands_between_what_asked_for_it_and_what_it_was_shown_after(
    tmp_path: Path,
) -> None:
    (found,) = written(tmp_path, [play("summarise", 6)])
    steps = found["steps"]
    place = next(n for n, step in enumerate(steps) if step["source"] == "system")
    asked, summary, _, prompt, copied = steps[place - 2 : place + 3]
    assert asked["message"].startswith("Your context is full")
    assert "observation" not in steps[place - 3], "it was not shown before the summary"
    assert summary["message"] == copied["message"] == "summary 1"
    assert prompt["is_copied_context"] is copied["is_copied_context"] is True
    assert "has rivers" in copied["observation"]["results"][0]["content"]


def test_harbor_takes_what_is_written(tmp_path: Path) -> None:
    models = pytest.importorskip("harbor.models.trajectories", reason="harbor is not installed")
    for number, episode in enumerate([looked_up(), *map(play, ("drop", "summarise"), (6, 6))]):
        (found,) = written(tmp_path / str(number), [episode])
        assert models.Trajectory.model_validate(found).to_json_dict() == found


def test_the_command_writes_a_step_or_an_evaluation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path, [looked_up()])
    folder = RunFolder.open(tmp_path / "run")
    folder.write_trajectories("evaluation-trained", [Group("g", (looked_up(),))])
    chosen = "--step", "1", "--evaluation", "trained"
    written_to = Shell(capsys)("export", folder.path, "--atif", tmp_path / "all", *chosen).out
    assert "2 episodes in" in written_to
    names = sorted(file.name for file in (tmp_path / "all").iterdir())
    assert names == ["evaluation-trained-00000.json", "step-000001-00000.json"]
    below = tmp_path / "all" / names[0] / "below"
    said = Shell(capsys)("export", folder.path, "--atif", below, *chosen, code=3).err
    assert "the export failed: [Errno 20] Not a directory" in said
    with pytest.raises(ConfigError, match="unknown trajectory file 'step-000002'"):
        export_atif(folder, tmp_path / "none", ["2"])
    with pytest.raises(DataError, match="not an empty folder"):
        export_atif(folder, tmp_path / "all")
