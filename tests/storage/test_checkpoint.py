"""Checkpoints survive kills, full disks and damage, and load with the ordinary code."""

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.learning.building import load_model, word_tokenizer
from turnwise.errors import DataError, InfrastructureError
from turnwise.storage import checkpoint
from turnwise.storage.tensors import read

TOKENIZER = word_tokenizer()
STATE = {"cursor": 17, "seen": ["a", "b"]}
LEARNER = {"moments": torch.arange(3.0), "updates": 4}
TENSORS = "learner/shard-00001-model-00001-of-00001.safetensors"


def saved(root: Path, step: int, state: Any = STATE, learner: Any = LEARNER) -> Path:
    """Save a tiny model."""
    return checkpoint.save(root, step, load_model(), TOKENIZER, state, learner)


class Files:
    """Stands for a model: two small files, one of them in a folder, written as they are."""

    def __init__(self, text: str = "weights") -> None:
        self.text = text

    def save_pretrained(self, save_directory: str) -> None:
        """Write them."""
        folder = Path(save_directory)
        (folder / "parts").mkdir(exist_ok=True)
        (folder / "model.safetensors").write_text(self.text)
        (folder / "parts" / "adapter.json").write_text("{}")


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """The kernel refuses to write more into one file, as it does when a disk is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def test_round_trip(tmp_path: Path) -> None:
    model = load_model()
    folder = checkpoint.save(tmp_path, 12, model, TOKENIZER, STATE, LEARNER)
    assert folder == tmp_path / "step-000012" == checkpoint.latest(tmp_path)
    assert names(tmp_path) == ["step-000012"]
    opened = checkpoint.load(folder)
    assert (opened.step, opened.state) == (12, STATE)
    assert torch.equal(read(opened.learner)["moments"], LEARNER["moments"])
    loaded = AutoModelForCausalLM.from_pretrained(folder)
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, loaded.state_dict()[name])
    assert AutoTokenizer.from_pretrained(folder).encode("w3 w7") == [3, 7]


@pytest.mark.parametrize(
    "file", ["config.json", "model.safetensors", "tokenizer.json", "learner.pt", TENSORS]
)
def test_a_full_disk_leaves_the_last_good_checkpoint(tmp_path: Path, file: str) -> None:
    """Full at the last byte of each file; the optimizer's tensors are the largest of them."""
    learner = {"moments": torch.zeros(100_000), "pairs": [torch.zeros(50_000)]}
    good = saved(tmp_path, 1, STATE, learner)
    model = load_model()
    limit = (good / file).stat().st_size - 1
    with files_of_at_most(limit), pytest.raises(InfrastructureError, match="step-000001"):
        checkpoint.save(tmp_path, 2, model, TOKENIZER, STATE, learner)
    assert names(tmp_path) == ["step-000001"]
    assert checkpoint.latest(tmp_path) == good
    assert checkpoint.load(good).state == STATE


def test_a_full_disk_at_the_first_checkpoint_says_so(tmp_path: Path) -> None:
    model = load_model()
    with files_of_at_most(100), pytest.raises(InfrastructureError, match="no earlier checkpoint"):
        checkpoint.save(tmp_path, 1, model, TOKENIZER, STATE, LEARNER)
    assert names(tmp_path) == []


def test_saving_a_step_again_replaces_it(tmp_path: Path) -> None:
    for cursor in (1, 2):
        saved(tmp_path, 5, {"cursor": cursor}, LEARNER)
    assert names(tmp_path) == ["step-000005"]
    assert checkpoint.load(tmp_path / "step-000005").state == {"cursor": 2}


def test_a_kill_while_replacing_keeps_the_one_being_replaced(tmp_path: Path) -> None:
    folder = saved(tmp_path, 5)
    folder.rename(tmp_path / "step-000005.replaced")
    kept = checkpoint.latest(tmp_path)
    assert checkpoint.load(kept).state == STATE


def test_prune_keeps_the_newest(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    for step in (9, 10, 1_000_000):
        saved(tmp_path, step, {}, {})
    checkpoint.prune(tmp_path, keep=2)
    assert names(tmp_path) == ["notes", "step-000010", "step-1000000"]
    assert checkpoint.latest(tmp_path) == tmp_path / "step-1000000"


@pytest.mark.wing("judges")
def test_a_run_goes_on_from_its_latest_stage(tmp_path: Path) -> None:
    """Whatever the step numbers, which each stage counts for itself."""
    stages = ((tmp_path / "cold_start", 9), (tmp_path, 5), (tmp_path / "preferences", 0))
    for root, step in stages:
        written = saved(root, step, {}, {})
        found, damaged = checkpoint.newest(tmp_path)
        assert (found.folder, damaged) == (written, {})


@pytest.mark.parametrize(
    ("file", "keep", "message"),
    [
        ("model.safetensors", 1000, "model.safetensors is damaged"),
        ("learner.pt", 100, "learner.pt is damaged"),
        (TENSORS, 100, f"{TENSORS} is damaged"),
        ("state.json", 20, "is damaged"),
        ("state.json", None, "state.json is missing"),
        ("model.safetensors", None, "model.safetensors is missing"),
    ],
)
def test_damage_is_told_in_one_line(
    tmp_path: Path, file: str, keep: int | None, message: str
) -> None:
    folder = saved(tmp_path, 1)
    if keep is None:
        (folder / file).unlink()
    else:
        os.truncate(folder / file, keep)
    with pytest.raises(DataError, match=message) as caught:
        checkpoint.load(folder)
    assert "\n" not in str(caught.value)
    assert "step-000001" in str(caught.value)


def test_loading_runs_no_code_from_the_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is damaged"):
        checkpoint.load(saved(tmp_path, 1, {}, {"run": subprocess.run}))


def test_a_flipped_bit_anywhere_is_found(tmp_path: Path) -> None:
    """Each byte of each file, its checksums among them."""
    model = Files()
    folder = checkpoint.save(tmp_path, 1, model, model, {}, {})
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    assert {path.name for path in files} == {
        *("SHA256SUMS", "state.json", "learner.pt", "model.safetensors", "adapter.json")
    }
    for path in files:
        whole = path.read_bytes()
        for place in range(0, len(whole), 1 if len(whole) < 600 else 97):
            bit = 1 << place % 8
            path.write_bytes(whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])
            with pytest.raises(DataError, match="step-000001") as caught:
                checkpoint.load(folder)
            assert "\n" not in str(caught.value)
        path.write_bytes(whole)
    assert checkpoint.load(folder).step == 1


def test_checksums_are_those_of_the_systems_program(tmp_path: Path) -> None:
    folder = checkpoint.save(tmp_path, 1, Files(), Files(), {}, {})
    command = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    told = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    assert told.stdout.count(": OK\n") == 4


def test_equal_states_have_equal_checksums(tmp_path: Path) -> None:
    learner = {name: torch.arange(3.0) for name in ("moments", "weights", "ä")}
    saved = [checkpoint.save(tmp_path / f"{n}", 1, Files(), Files(), {}, learner) for n in range(6)]
    assert len({(folder / checkpoint.SUMS).read_bytes() for folder in saved}) == 1
    assert torch.equal(read(checkpoint.load(saved[0]).learner)["ä"], torch.arange(3.0))


def test_a_damaged_one_is_passed_over_for_the_one_before(tmp_path: Path) -> None:
    """Across stages as well, and never in silence."""
    cold = checkpoint.save(tmp_path / "cold_start", 0, Files(), Files(), {}, {})
    first, second = (checkpoint.save(tmp_path, n, Files(), Files(), {}, {}) for n in (5, 10))
    (second / "model.safetensors").write_text("Weights")
    found, damaged = checkpoint.newest(tmp_path)
    assert found.folder == first
    assert list(damaged) == [second]
    assert "step-000010: model.safetensors is damaged" in damaged[second]
    (first / "learner.pt").write_bytes(b"")
    found, damaged = checkpoint.newest(tmp_path)
    assert (found.folder, list(damaged)) == (cold, [second, first])
    assert checkpoint.set_aside(second).name == "step-000010.damaged"
    checkpoint.prune(tmp_path, keep=1)
    assert names(tmp_path) == ["cold_start", "step-000005", "step-000010.damaged"]


def test_a_run_without_a_whole_checkpoint_does_not_begin_again_in_silence(tmp_path: Path) -> None:
    folder = checkpoint.save(tmp_path, 5, Files(), Files(), {}, {})
    (folder / "state.json").unlink()
    with pytest.raises(DataError, match=r"state\.json is missing, and no earlier one is whole"):
        checkpoint.newest(tmp_path)
    assert names(tmp_path) == ["step-000005"]


def test_what_is_left_of_interrupted_saves_is_no_checkpoint_and_goes(tmp_path: Path) -> None:
    """Before the next save, which may need the space."""
    (tmp_path / ".step-000004.123").mkdir()
    (tmp_path / ".step-000004.123" / "model.safetensors").write_text("half of i")
    (tmp_path / "step-000009").write_text("a file")
    assert checkpoint.newest(tmp_path) == (None, {})

    class Seen(Files):
        def save_pretrained(self, save_directory: str) -> None:
            super().save_pretrained(save_directory)
            assert [name for name in names(tmp_path) if "123" in name] == []

    checkpoint.save(tmp_path, 5, Seen(), Files(), {}, {})
    (tmp_path / "step-000005.replaced").mkdir()
    (tmp_path / "step-000004.replaced").mkdir()
    checkpoint.prune(tmp_path, keep=2)
    assert names(tmp_path) == ["step-000004.replaced", "step-000005", "step-000009"]
