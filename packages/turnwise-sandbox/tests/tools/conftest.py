"""A sandbox for tools that run code; its limits are small on purpose."""

from collections.abc import Iterator

import pytest

from tests.sandboxes import working
from turnwise.sandbox.settings import MEBIBYTE, Limits, SandboxSettings
from turnwise_sandbox.sandbox import Sandbox

LIMITS = Limits(seconds=2, cpu_seconds=2, memory=256 * MEBIBYTE)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(SandboxSettings(limits=LIMITS, warm=0)) as made:
        yield working(made)
