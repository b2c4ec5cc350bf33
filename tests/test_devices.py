"""Engine, learner and checkpoints on a device other than the processor: nothing lies on the wrong
one, the numbers are the same, and the device is seldom waited for.

The device is one that is not there (`card.py`). Not here: how fast a GPU is (benchmarks/gpu.py).
"""

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.on_card import CASES, FAULTS

pytestmark = pytest.mark.long

QUICK = ("critic",)
QUICK_FAULTS = ("batch", "sampling")
ROUNDING = {"bfloat16": 0.01}
"""Largest distance of a weight, where it is more than of float32 in another order."""


def found(folder: Path, names: Sequence[str]) -> dict[str, Any]:
    """What a process of its own finds."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.on_card", str(folder), *names]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    read: dict[str, Any] = json.loads((folder / "found.json").read_text())
    return read


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    names = [*QUICK, *(f"fault {name}" for name in QUICK_FAULTS), "waits"]
    return found(tmp_path_factory.mktemp("quick"), names)


@pytest.fixture(scope="module")
def thorough(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return found(tmp_path_factory.mktemp("thorough"), list(CASES))


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return found(tmp_path_factory.mktemp("faulty"), [f"fault {name}" for name in FAULTS])


def check(name: str, case: dict[str, Any]) -> None:
    assert case["episodes"] > 0
    assert case["same"], "other tokens were sampled"
    assert case["distance"] < ROUNDING.get(name, 1e-4)


@pytest.mark.parametrize("name", QUICK)
def test_a_run_on_a_card_is_that_of_the_processor(quick: dict[str, Any], name: str) -> None:
    check(name, quick[name])


@pytest.mark.parametrize("name", QUICK_FAULTS)
def test_a_tensor_that_stays_on_the_host_is_seen(quick: dict[str, Any], name: str) -> None:
    assert "to be on the same device" in quick[f"fault {name}"]


@pytest.mark.parametrize(("what", "most"), [("decode", 2), ("micro-batch", 13)])
def test_the_card_is_seldom_waited_for(quick: dict[str, Any], what: str, most: int) -> None:
    """Copies to the host, single numbers, and sizes that depend on values: of a step of decoding
    the tokens and their log-probabilities, of a micro-batch its metrics and what is asked of it."""
    assert 0 < quick["waits"][what] <= most


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_each_kind_of_run(thorough: dict[str, Any], name: str) -> None:
    check(name, thorough[name])


@pytest.mark.wing("judges")
@pytest.mark.parametrize("name", FAULTS)
def test_a_tensor_on_the_host_is_seen_in_every_path(faulty: dict[str, Any], name: str) -> None:
    assert re.search("device|weight type", faulty[f"fault {name}"])  # the latter of images
