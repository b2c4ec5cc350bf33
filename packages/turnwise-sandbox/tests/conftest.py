"""Sandboxes for tests: one for each tier that this machine has."""

from collections.abc import Callable, Iterator

import pytest

from sandbox_making import LIMITS, make, wait_for_none_below
from turnwise.sandbox.settings import TIERS, Limits
from turnwise_sandbox.sandbox import Sandbox


@pytest.fixture(scope="module", params=TIERS)
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """Each tier in turn."""
    with make(request.param) as made:
        yield made


@pytest.fixture(scope="module")
def isolated() -> Iterator[Sandbox]:
    """The tier that isolates."""
    with make("bubblewrap") as made:
        yield made


@pytest.fixture(scope="session")
def limits() -> Limits:
    return LIMITS


@pytest.fixture(scope="session")
def maker() -> Callable[..., Sandbox]:
    return make


@pytest.fixture
def nothing_left() -> Callable[[Sandbox], bool]:
    """Whether no process of a sandbox without warm ones is left."""

    def check(sandbox: Sandbox) -> bool:
        return not wait_for_none_below(sandbox._launch.process.pid)

    return check
