"""Audits on disk."""

import json
import math
from pathlib import Path

import pytest

from tests.storage.test_run_folder import begun
from turnwise.errors import DataError, InfrastructureError
from turnwise.storage.audits import Finding, audits, read_audit, write_audit


def test_findings_come_back_and_damaged_files_are_named(tmp_path: Path) -> None:
    """What is no number is none; an earlier audit of the name is replaced."""
    folder = begun(tmp_path)
    (folder.path / "audits").rmdir()  # as in a folder of an earlier version
    assert audits(folder.path) == {}
    finding = Finding("accuracy", 0.75, math.nan, math.nan, bound=1, passed=True, note="of 4")
    for found in ([], [finding]):
        write_audit(folder, "judge", "A judge", found)
    assert audits(folder.path) == {"judge": "A judge"}
    expected = Finding("accuracy", 0.75, None, None, 1, True, "of 4")
    assert read_audit(folder.path, "judge")["findings"] == [expected]
    file = folder.path / "audits" / "judge.json"
    for text in ("{", "[]", json.dumps({"title": "x", "findings": [{"other": 1}]})):
        file.write_text(text)
        with pytest.raises(DataError, match=r"judge\.json cannot be read"):
            read_audit(folder.path, "judge")


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    folder = begun(tmp_path)
    (folder.path / "audits").rmdir()
    (folder.path / "audits").touch()
    with pytest.raises(InfrastructureError, match=r"judge\.json cannot be written"):
        write_audit(folder, "judge", "A judge", [])
    folder.path.rename(tmp_path / "elsewhere")
    with pytest.raises(InfrastructureError, match=r"judge\.json cannot be written"):
        write_audit(folder, "judge", "A judge", [])
    assert not folder.path.exists()
