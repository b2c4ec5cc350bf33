"""Drives the vLLM engine in tests over servers that are processes, on a CPU."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from turnwise_vllm.engine import VllmEngine
from turnwise_vllm.make import make_vllm
from turnwise_vllm.sending import Sender
from turnwise_vllm.settings import RunningServers, StartedServers, VllmEngineConfig

LIMIT = 256
ARGUMENTS = ("--enforce-eager",)
SERVERS = StartedServers.model_fields | RunningServers.model_fields


def drive(
    folder: Path,
    model: Any,
    tokenizer: Any,
    body: Callable[[VllmEngine], Awaitable[None]],
    sender: Callable[[], Sender] | None = None,
    colocated: bool = False,
    limit: int = LIMIT,
    **settings: Any,
) -> None:
    """Run `body` with an engine over servers that it starts, or running ones; no process may be
    left."""
    of_servers = {key: settings.pop(key) for key in [*settings] if key in SERVERS}
    servers = (RunningServers if "urls" in of_servers else StartedServers)(**of_servers)
    config = VllmEngineConfig(name="vllm", servers=servers, **{"max_sequences": 16, **settings})

    async def main() -> None:
        engine = make_vllm(config, model, tokenizer, limit, folder, sender, colocated)
        try:
            await asyncio.wait_for(body(engine), 1200)
        finally:
            await engine.stop()

    asyncio.run(main())
    assert not processes(str(folder))


def processes(word: str) -> list[int]:
    """Ids of the processes whose command line has the word, but for the guard's."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if word in line and "api_server" in line and "guard.py" not in line:
            found.append(int(folder.name))
    return found
