"""Threads, and what is read only once: in a process of its own."""

import gc
import os
from pathlib import Path

import pytest

from tests.processes import run_python
from turnwise.threads import KERNELS, frozen_gc, physical_cores, release_memory

PROGRAM = """
import os
from turnwise.threads import configure_threads
configure_threads(1)
import torch
print(torch.get_num_threads(), os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"])
"""


@pytest.mark.long
def test_threads_and_kernels_are_bounded() -> None:
    assert run_python(PROGRAM).stdout.split() == ["1", KERNELS]


def test_memory_can_be_released_any_time() -> None:
    release_memory()
    release_memory()


@pytest.mark.long
def test_what_is_there_already_is_left_alone_for_a_while() -> None:
    frozen = gc.get_freeze_count()
    assert frozen  # by the suite
    with frozen_gc():
        assert gc.get_freeze_count() == frozen
    gc.unfreeze()
    with frozen_gc():
        assert gc.get_freeze_count() > 1000
    assert gc.get_freeze_count() == 0
    gc.freeze()


def test_cores_are_those_that_the_process_may_use(tmp_path: Path) -> None:
    """Two threads of one core count once, and a control group's quota bounds them."""
    allowed = sorted(os.sched_getaffinity(0))
    for number in allowed:
        topology = tmp_path / f"devices/system/cpu/cpu{number}/topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(f"{number}\n")
    assert physical_cores(tmp_path) == len(allowed)
    for number in allowed:
        file = tmp_path / f"devices/system/cpu/cpu{number}/topology/thread_siblings_list"
        file.write_text("0-1\n")
    assert physical_cores(tmp_path) == 1


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "50000 100000"}, 1),
        ({"cpu.max": "100000 100000"}, 1),
        ({"cpu.max": "max 100000"}, len(os.sched_getaffinity(0))),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({"cpu.max": "nonsense"}, None),
    ],
)
def test_a_quota_of_processor_time_bounds_them(
    tmp_path: Path, files: dict[str, str], cores: int | None
) -> None:
    for name, text in files.items():
        file = tmp_path / "fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert physical_cores(tmp_path) == (cores or len(os.sched_getaffinity(0)))
