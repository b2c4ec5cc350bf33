"""The tensors of states: written by name, read whole, or into tensors that are there."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from turnwise.errors import DataError
from turnwise.storage.tensors import SavedTensor, parted, placed, read, write

WEIGHT = torch.arange(15.0).view(5, 3)
STATE: dict[str, Any] = {
    "moments": {
        "layer.weight": WEIGHT,
        "tied.weight": WEIGHT,
        "norm": torch.ones(3, dtype=torch.bfloat16),
        "nothing": torch.empty(0, 3),
        "step": torch.tensor(4.0),
    },
    "updates": 4,
    "pairs": [torch.ones(2)],
}


def saved(state: dict[str, Any], folder: Path) -> dict[str, Any]:
    rest, tensors = parted(state)
    write(folder, tensors)
    return placed(rest, folder)


def test_a_state_comes_back_as_it_was(tmp_path: Path) -> None:
    """Names with dots, other types, tensors without a number or a dimension, and two in one
    memory; a tensor in a list stays in the state."""
    state = saved(STATE, tmp_path)
    assert state["moments"]["norm"] == SavedTensor("moments.norm", str(tmp_path))
    found = read(state)
    assert found["updates"] == 4
    assert found["pairs"] is STATE["pairs"]
    assert found["moments"].keys() == STATE["moments"].keys()
    for name, tensor in STATE["moments"].items():
        assert found["moments"][name].dtype == tensor.dtype
        assert torch.equal(found["moments"][name], tensor)


def test_numbers_are_read_into_tensors_that_are_there(tmp_path: Path) -> None:
    mine = torch.zeros(5, 3)
    found = read(saved(STATE, tmp_path), {"moments": {"layer.weight": mine}})
    assert found["moments"]["layer.weight"] is mine
    assert torch.equal(mine, WEIGHT)


def test_a_state_without_tensors_has_no_files(tmp_path: Path) -> None:
    assert read(saved({"steps": 3}, tmp_path)) == {"steps": 3}
    assert list(tmp_path.iterdir()) == []


def test_another_shape_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=re.escape("[5, 3]")) as caught:
        read(saved(STATE, tmp_path), {"moments": {"layer.weight": torch.zeros(2)}})
    assert "\n" not in str(caught.value)
