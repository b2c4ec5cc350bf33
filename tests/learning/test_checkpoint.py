"""Checkpoints survive kills, full disks and damage, and load with the ordinary code."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from turnwise.config import LearningConfig, SftConfig
from turnwise.errors import DataError, InfrastructureError
from turnwise.learning import checkpoint
from turnwise.learning.sft import SupervisedLearner
from turnwise.types import Segment, Source, Tokens

LoadModel = Callable[..., Any]
STATE = {"cursor": 17, "seen": ["a", "b"]}
LEARNER = {"moments": torch.arange(3.0), "updates": 4}


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


def test_round_trip(load_model: LoadModel, tokenizer: Any, tmp_path: Path) -> None:
    model = load_model()
    folder = checkpoint.save(tmp_path, 12, model, tokenizer, STATE, LEARNER)
    assert folder == tmp_path / "step-000012" == checkpoint.latest(tmp_path)
    assert names(tmp_path) == ["step-000012"]
    opened = checkpoint.load(folder)
    assert (opened.step, opened.state) == (12, STATE)
    assert torch.equal(opened.learner["moments"], LEARNER["moments"])
    loaded = AutoModelForCausalLM.from_pretrained(folder)
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, loaded.state_dict()[name])
    assert AutoTokenizer.from_pretrained(folder).encode("w3 w7") == [3, 7]


def test_a_learner_resumes_from_disk_exactly(
    load_model: LoadModel, tokenizer: Any, tmp_path: Path
) -> None:
    tokens = Tokens.empty()
    tokens.extend_segments([Segment([1], Source.USER)], 0)
    tokens.extend_sampled([2, 3, 4], [0.0] * 3, version=0, turn=0)

    def learner(model: Any) -> SupervisedLearner:
        sft = SftConfig(steps=4, batch_size=1, warmup_steps=2)
        return SupervisedLearner(model, [tokens], sft, LearningConfig(), seed=0)

    through = learner(load_model())
    for _ in range(2):
        through.step()
    folder = checkpoint.save(tmp_path, 2, through.model, tokenizer, {}, through.state())
    resumed = learner(AutoModelForCausalLM.from_pretrained(folder))
    resumed.load_state(checkpoint.load(folder).learner)
    for _ in range(2):
        assert through.step() == resumed.step()
    for ours, theirs in zip(through.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize(
    "file", ["config.json", "model.safetensors", "tokenizer.json", "learner.pt"]
)
def test_a_full_disk_leaves_the_last_good_checkpoint(
    load_model: LoadModel, tokenizer: Any, tmp_path: Path, file: str
) -> None:
    """Full at the last byte of each file; the optimizer state is the largest of them."""
    learner = {"moments": torch.zeros(100_000)}
    good = checkpoint.save(tmp_path, 1, load_model(), tokenizer, STATE, learner)
    model = load_model()
    limit = (good / file).stat().st_size - 1
    with files_of_at_most(limit), pytest.raises(InfrastructureError, match="step-000001"):
        checkpoint.save(tmp_path, 2, model, tokenizer, STATE, learner)
    assert names(tmp_path) == ["step-000001"]
    assert checkpoint.latest(tmp_path) == good
    assert checkpoint.load(good).state == STATE


def test_a_full_disk_at_the_first_checkpoint_says_so(
    load_model: LoadModel, tokenizer: Any, tmp_path: Path
) -> None:
    model = load_model()
    with files_of_at_most(100), pytest.raises(InfrastructureError, match="no earlier checkpoint"):
        checkpoint.save(tmp_path, 1, model, tokenizer, STATE, LEARNER)
    assert names(tmp_path) == []


KILLED = """
import os, signal, sys
from pathlib import Path
from transformers import AutoModelForCausalLM
from turnwise.learning import checkpoint

class Tokenizer:
    def save_pretrained(self, save_directory):
        os.kill(os.getpid(), signal.SIGKILL)

root = Path(sys.argv[1])
model = AutoModelForCausalLM.from_pretrained(root / "step-000001")
checkpoint.save(root, 2, model, Tokenizer(), {}, {})
"""


def test_a_kill_leaves_the_last_good_checkpoint(
    load_model: LoadModel, tokenizer: Any, tmp_path: Path
) -> None:
    """Another process is killed when the weights are written and the tokenizer is not."""
    good = checkpoint.save(tmp_path, 1, load_model(), tokenizer, STATE, LEARNER)
    child = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert child.returncode == -signal.SIGKILL
    left = [name for name in names(tmp_path) if name != good.name]
    assert len(left) == 1
    assert (tmp_path / left[0] / "model.safetensors").is_file()
    assert checkpoint.latest(tmp_path) == good
    assert checkpoint.load(good).state == STATE
    checkpoint.prune(tmp_path, keep=2)
    assert names(tmp_path) == [good.name]


def test_saving_a_step_again_replaces_it(
    load_model: LoadModel, tokenizer: Any, tmp_path: Path
) -> None:
    for cursor in (1, 2):
        checkpoint.save(tmp_path, 5, load_model(), tokenizer, {"cursor": cursor}, LEARNER)
    assert names(tmp_path) == ["step-000005"]
    assert checkpoint.load(tmp_path / "step-000005").state == {"cursor": 2}


def test_a_kill_while_replacing_keeps_the_one_being_replaced(
    load_model: LoadModel, tokenizer: Any, tmp_path: Path
) -> None:
    folder = checkpoint.save(tmp_path, 5, load_model(), tokenizer, STATE, LEARNER)
    folder.rename(tmp_path / "step-000005.replaced")
    kept = checkpoint.latest(tmp_path)
    assert kept is not None
    assert checkpoint.load(kept).state == STATE


def test_prune_keeps_the_newest(load_model: LoadModel, tokenizer: Any, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    for step in (9, 10, 1_000_000):
        checkpoint.save(tmp_path, step, load_model(), tokenizer, {}, {})
    checkpoint.prune(tmp_path, keep=2)
    assert names(tmp_path) == ["notes", "step-000010", "step-1000000"]
    assert checkpoint.latest(tmp_path) == tmp_path / "step-1000000"


def test_a_run_goes_on_from_its_latest_stage(
    load_model: LoadModel, tokenizer: Any, tmp_path: Path
) -> None:
    """Whatever the step numbers, which each stage counts for itself."""
    stages = (
        (tmp_path / checkpoint.SFT, 9),
        (tmp_path / checkpoint.COLD_START, 0),
        (tmp_path, 5),
        (tmp_path / checkpoint.PREFERENCES, 0),
    )
    for root, step in stages:
        saved = checkpoint.save(root, step, load_model(), tokenizer, {}, {})
        assert checkpoint.newest(tmp_path) == saved


def test_no_checkpoint_is_none(tmp_path: Path) -> None:
    assert checkpoint.latest(tmp_path) is None
    assert checkpoint.latest(tmp_path / "nowhere") is None


@pytest.mark.parametrize(
    ("file", "keep", "message"),
    [
        ("model.safetensors", 1000, "model.safetensors is damaged"),
        ("learner.pt", 100, "learner.pt is damaged"),
        ("state.json", 20, "is damaged"),
        ("state.json", None, "state.json is missing"),
        ("model.safetensors", None, "model.safetensors is missing"),
    ],
)
def test_damage_is_told_in_one_line(
    load_model: LoadModel,
    tokenizer: Any,
    tmp_path: Path,
    file: str,
    keep: int | None,
    message: str,
) -> None:
    folder = checkpoint.save(tmp_path, 1, load_model(), tokenizer, STATE, LEARNER)
    if keep is None:
        (folder / file).unlink()
    else:
        os.truncate(folder / file, keep)
    with pytest.raises(DataError, match=message) as caught:
        checkpoint.load(folder)
    assert "\n" not in str(caught.value)
    assert "step-000001" in str(caught.value)


def test_bytes_that_are_no_optimizer_state_are_told(
    load_model: LoadModel, tokenizer: Any, tmp_path: Path
) -> None:
    folder = checkpoint.save(tmp_path, 1, load_model(), tokenizer, STATE, LEARNER)
    size = (folder / "learner.pt").stat().st_size
    (folder / "learner.pt").write_bytes(b"\x00" * size)
    with pytest.raises(DataError, match="is damaged"):
        checkpoint.load(folder)


def test_loading_runs_no_code_from_the_checkpoint(
    load_model: LoadModel, tokenizer: Any, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="is damaged"):
        checkpoint.load(
            checkpoint.save(tmp_path, 1, load_model(), tokenizer, {}, {"run": subprocess.run})
        )
