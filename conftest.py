"""For all tests: property tests try the same examples every time, and have no deadline, since test
machines are shared. Each of the processes that test has one thread, which waits without spinning,
and the garbage collector does not look through libraries and tests again and again."""

import asyncio
import gc
import inspect
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

from turnwise.threads import set_variables
from turnwise.wings import wings

os.environ.setdefault("OMP_NUM_THREADS", "1")
set_variables()
settings.register_profile("turnwise", deadline=None, derandomize=True)
settings.load_profile("turnwise")


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Any:
    """Commands in the process of the test: `tests.commands.shell.Shell`."""
    from tests.commands.shell import Shell  # here: most tests need no command

    return Shell(capsys)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Python's own handler, which a process lacks that a shell has started in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests of wings as those of the core that need one: `make test-wings` runs both."""
    if item.path.is_relative_to(item.config.rootpath / "packages"):
        item.add_marker("wing")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs a wing that is not installed: the core is tested alone too."""
    marks = item.iter_markers("wing")
    needed = {name for mark in marks for name in mark.args} - wings().usable.keys()
    if needed:
        pytest.skip(f"not installed: turnwise-{min(needed)}")


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine runs in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True
