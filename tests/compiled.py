"""Marks tests of compiled kernels, which are skipped where this machine or its user has none."""

import shutil
from pathlib import Path

import pytest

from turnwise.forward.kernels.compiler import switched_on

needs_kernels = pytest.mark.skipif(
    shutil.which("gcc") is None or not Path("/proc/self/maps").exists() or not switched_on(),
    reason="kernels are compiled by gcc, on Linux, unless TURNWISE_KERNELS is off",
)
