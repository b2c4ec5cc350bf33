"""Threads, and what is read only once: in a process of its own."""

import gc
import subprocess
import sys

from turnwise.threads import KERNELS, frozen_gc, release_memory

PROGRAM = """
import os
from turnwise.threads import configure_threads
configure_threads(1)
import torch
print(torch.get_num_threads(), os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"])
"""


def test_threads_and_kernels_are_bounded() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert ended.stdout.split() == ["1", KERNELS]


def test_memory_can_be_released_any_time() -> None:
    release_memory()
    release_memory()


def test_what_is_there_already_is_left_alone_for_a_while() -> None:
    with frozen_gc():
        assert gc.get_freeze_count() > 1000
    assert gc.get_freeze_count() == 0
