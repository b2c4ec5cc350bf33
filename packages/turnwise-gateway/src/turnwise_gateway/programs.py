"""Programs as agents: one process for each episode, with the policy's address in its variables."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from turnwise.errors import InfrastructureError
from turnwise.types import Task, Verdict
from turnwise_gateway import guard
from turnwise_gateway.address import Address, blotted
from turnwise_gateway.session import Session

SHOWN = 2_000
"""Characters of a program's last words that an error quotes."""


@dataclass(frozen=True)
class Returned:
    """The end of an agent's work. Example: Returned(answer="Paris")."""

    answer: str | None = None
    """Its answer, in place of the last reply's."""
    reward: Verdict | None = None
    error: str = ""
    """The reason why it failed; empty where it did not."""


class CommandPlayer:
    """A program, which finds the policy's address in its environment variables."""

    def __init__(self, command: tuple[str, ...]) -> None:
        self._command = command

    async def play(
        self, task: Task, address: Address, session: Session, folder: Path | None = None
    ) -> Returned:
        arguments = [part.replace("{prompt}", task.prompt) for part in self._command]
        environment = {**os.environ, **variables(task, address, session.names[0])}
        with tempfile.TemporaryFile() as said:
            code = await _run(arguments, environment, folder, said)
            if code == 0:
                return Returned()
            said.seek(0, os.SEEK_END)
            said.seek(max(0, said.tell() - 2 * SHOWN))  # a secret may begin before what is shown
            words = blotted(said.read().decode(errors="replace").strip(), address.secret)[-SHOWN:]
        return Returned(error=f"{self._command[0]} ended with code {code}: {words}")


async def _run(
    arguments: Sequence[str], environment: Mapping[str, str], folder: Path | None, said: IO[bytes]
) -> int:
    """The code with which a program ends, with all that it has started; 128 and more for signals.
    Raises InfrastructureError where it cannot be started."""
    failure, failures = os.pipe()
    with open(failure, "rb") as told:
        try:
            process = await asyncio.create_subprocess_exec(
                # The guard starts whatever the agent's variables say of modules.
                *(sys.executable, "-I", "-S", guard.__file__, str(failures), *arguments),
                stdin=asyncio.subprocess.PIPE,
                stdout=said,
                stderr=said,
                env=environment,
                cwd=folder,
                pass_fds=[failures],
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise _unstarted(arguments[0], str(error)) from None
        finally:
            os.close(failures)  # or `told` would never end
        try:
            code = await process.wait()
        finally:
            await _end(process)
        # It ends at once: the guard, which alone had the other end, is gone.
        if why := told.read():
            raise _unstarted(arguments[0], why.decode(errors="replace"))
    return code


def _unstarted(program: str, why: str) -> InfrastructureError:
    return InfrastructureError(f"agent.command {program} cannot be started: {why}")


def variables(task: Task, address: Address, model: str) -> dict[str, str]:
    return {
        "OPENAI_BASE_URL": address.openai,
        "OPENAI_API_BASE": address.openai,  # as clients before openai 1.0 call it, and LangChain
        "OPENAI_API_KEY": address.secret,
        "OPENAI_MODEL": model,
        "ANTHROPIC_BASE_URL": address.root,
        "ANTHROPIC_API_KEY": address.secret,
        "ANTHROPIC_MODEL": model,
        # Claude Code asks one model or another, by what is to be done.
        "ANTHROPIC_SMALL_FAST_MODEL": model,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": model,
        "ANTHROPIC_DEFAULT_SONNET_MODEL": model,
        "ANTHROPIC_DEFAULT_OPUS_MODEL": model,
        "ANTHROPIC_DEFAULT_FABLE_MODEL": model,
        "TURNWISE_GATEWAY": address.root,
        "TURNWISE_TASK": json.dumps(
            {"id": task.id, "prompt": task.prompt, "data": dict(task.data)}, default=str
        ),
    }


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill a program and what it has started, which is one group of processes."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
