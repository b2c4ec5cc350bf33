"""The Python tool: a session per episode, and what the agent reads of it."""

import pytest

from turnwise.errors import InfrastructureError
from turnwise.sandbox.result import Result, Status
from turnwise_sandbox.sandbox import Sandbox
from turnwise_sandbox.tools.python import PythonSession, observation


def test_cells_share_variables_within_an_episode_only(sandbox: Sandbox) -> None:
    first, second = PythonSession(sandbox), PythonSession(sandbox)
    assert first.run("x = 20") == "(no output)"
    assert first.run("print('sum')\nx + 1") == "sum\n21"
    assert "NameError: name 'x' is not defined" in second.run("x")
    for session in (first, second, second):
        session.close()


@pytest.mark.long
def test_what_the_agent_reads_of_an_end(sandbox: Sandbox) -> None:
    session = PythonSession(sandbox)
    lost = "[All variables are gone; the next call starts anew.]"
    assert session.run("print('a', flush=True); import time; time.sleep(9)") == (
        f"a\n[stopped after 2 s]\n{lost}"
    )
    assert session.run("import os; os.abort()").endswith(f"crashed (signal 6)]\n{lost}")
    memory = session.run("bytearray(10 << 30)")
    assert memory.endswith("MemoryError\n[out of memory: 256 MiB are allowed]")
    session.close()


def test_a_failed_sandbox_is_nothing_for_the_agent_to_read(sandbox: Sandbox) -> None:
    failed = Result(Status.INFRASTRUCTURE, "bubblewrap", sandbox.settings.limits, error="gone")
    with pytest.raises(InfrastructureError, match="gone"):
        observation(failed.checked(), True)
