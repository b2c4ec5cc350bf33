"""Measurements of environments as audits."""

from dataclasses import asdict
from pathlib import Path

import pytest

from turnwise.config import check_recipe
from turnwise.errors import ConfigError
from turnwise.storage.audits import audits, read_audit
from turnwise.storage.run_folder import RunFolder
from turnwise_environments.measurement import Measurement
from turnwise_environments.measuring import named_with_options, write_measurements


def test_each_environment_is_an_audit_of_what_could_be_measured(tmp_path: Path) -> None:
    folder = RunFolder.new(tmp_path / "run")
    folder.begin(check_recipe({"name": "x", "environment": {"name": "search"}}, "test"))
    measured = Measurement(
        "a", 20, 1.0, 0.0, None, True, None, False, 50.0, weaknesses=("lists",), played=8
    )
    write_measurements(folder, [asdict(measured), asdict(Measurement("b", note="no docker"))])
    assert list(audits(folder.path)) == ["environment-1", "environment-2"]
    found = read_audit(folder.path, "environment-1")["findings"]
    assert [(one.figure, one.passed) for one in found] == [
        (20, None),
        (1.0, None),
        (0.0, None),
        (None, True),
        (None, False),
        (50.0, None),
        (None, False),
    ]
    assert found[0].note == "8 of them were played"
    assert (found[1].low, found[1].high) == pytest.approx((0.6756, 1.0), abs=1e-4)
    assert (found[2].low, found[2].high) == pytest.approx((0.0, 0.3244), abs=1e-4)
    (only,) = read_audit(folder.path, "environment-2")["findings"]
    assert only.note == "no docker"


def test_names_with_options_as_on_a_command_line() -> None:
    words = ["gymnasium", "id=Taxi-v4", "arguments.rainy=true", "success=1", "a/b.py:C", "sql"]
    assert named_with_options(words) == [
        ("gymnasium", {"id": "Taxi-v4", "arguments": {"rainy": True}, "success": 1}),
        ("a/b.py:C", {}),
        ("sql", {}),
    ]
    with pytest.raises(ConfigError, match="id=Taxi-v4: name the environment first"):
        named_with_options(["id=Taxi-v4"])
