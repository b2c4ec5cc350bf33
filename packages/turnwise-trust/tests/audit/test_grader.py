"""Payloads for graders do what they are for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from asking import Asking, subject_for
from turnwise.tools.tool import tool
from turnwise_trust.audit.grader import overwritten
from turnwise_trust.audit.slots import Slot


class Shell(Asking):
    @tool
    def shell(self, command: str) -> str:
        """Run a command."""
        return command


def test_a_command_overwrites_what_checks(tmp_path: Path):
    slot = Slot(subject_for(Shell()))
    (replaced,), (deleted,) = overwritten(slot, slot.subject.tasks[0])
    check = tmp_path / "check.py"
    check.write_text("raise SystemExit(1)")
    for script, left in ((replaced, True), (deleted, False)):
        command = script[0].calls[0].arguments["command"]
        subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True)
        assert check.exists() == left
        assert not left or subprocess.run([sys.executable, check], check=False).returncode == 0


def test_a_command_leaves_the_files_of_the_audit_s_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Also where a link leads there, by whose name the shell knows it."""
    link, check = tmp_path / "a link", tmp_path / "it's here" / "check.py"
    check.parent.mkdir()
    check.write_text("mine")
    link.symlink_to(check.parent)
    monkeypatch.chdir(link)
    slot = Slot(subject_for(Shell()))
    for (script,) in overwritten(slot, slot.subject.tasks[0]):
        command = script[0].calls[0].arguments["command"]
        subprocess.run(["sh", "-c", command], env={**os.environ, "PWD": str(link)}, check=True)
    assert check.read_text() == "mine"
