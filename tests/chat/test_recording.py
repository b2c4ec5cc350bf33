"""What is kept is there again; damage is asked for again."""

from pathlib import Path

import pytest

from turnwise.chat.recording import Recording
from turnwise.errors import InfrastructureError


def test_the_first_reply_of_a_key_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "new" / "replies.jsonl"
    recording = Recording(file, "the model")
    assert recording.get("a") is None
    assert recording.keep("a", "one") == "one"
    assert recording.keep("a", "two") == "one"
    recording.keep("b", "zwei\nlines")
    again = Recording(file, "the model")
    assert (again.get("a"), again.get("b"), again.get("c")) == ("one", "zwei\nlines", None)
    assert file.read_text().count("\n") == 2


def test_damaged_lines_are_left_out(tmp_path: Path) -> None:
    file = tmp_path / "replies.jsonl"
    file.write_text(
        '{"key": 1, "reply": "x"}\n{"key": "a"}\n[]\nnull\n{"key": "b", "reply": "y"}\n{"key": "c'
    )
    recording = Recording(file, "the model")
    assert recording.get("b") == "y"
    recording.keep("c", "z")
    assert Recording(file, "the model").get("c") == "z"


def test_a_disk_that_fails_is_infrastructure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    recording = Recording(tmp_path / "file" / "replies.jsonl", "the model")
    with pytest.raises(InfrastructureError, match="the recording of the model"):
        recording.keep("a", "one")
