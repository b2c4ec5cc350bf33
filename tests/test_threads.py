"""Threads, and what is read only once: in a process of its own."""

import subprocess
import sys

import pytest

from turnwise.threads import KERNELS, release_memory

PROGRAM = """
import os
from turnwise.threads import configure_threads
configure_threads(1)
import torch
print(torch.get_num_threads(), os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"])
"""

CHUNKS = """
from pathlib import Path
from turnwise.threads import configure_threads
configure_threads(1)
import torch
from torch import nn
from turnwise.learning.logprobs import score_tokens

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024

class Model(nn.Module):
    config = type("Config", (), {"get_text_config": lambda self: None})()
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(32, 150_000, bias=False)
    def get_output_embeddings(self):
        return self.head

def differentiate(chunks):
    hidden = torch.randn(28 * chunks, 32, requires_grad=True)
    targets = torch.zeros(len(hidden), dtype=torch.long)
    logprobs, _ = score_tokens(model, hidden, targets, 1.0, logits_per_chunk=28 * 150_000)
    logprobs.sum().backward()

model = Model()
differentiate(2)
few = peak()
differentiate(40)
print(peak() - few)
"""


def test_threads_and_kernels_are_bounded() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert ended.stdout.split() == ["1", KERNELS]


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of memory from /proc")
def test_chunks_do_not_add_up_in_memory() -> None:
    """40 chunks of 17 MB of logits take what 2 of them do, in MiB."""
    ended = subprocess.run(
        [sys.executable, "-c", CHUNKS], capture_output=True, text=True, check=True
    )
    assert float(ended.stdout) < 100


def test_memory_can_be_released_any_time() -> None:
    release_memory()
    release_memory()
