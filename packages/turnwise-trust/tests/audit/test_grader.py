"""Payloads for graders do what they are for."""

import subprocess
import sys
from pathlib import Path

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
