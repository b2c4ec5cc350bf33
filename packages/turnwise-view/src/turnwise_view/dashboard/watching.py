"""Tells an open page which runs have grown, by the times and sizes of their files."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

LOOK_SECONDS = 1.0
KEEP_ALIVE_SECONDS = 15.0
WATCHED = ("metrics.jsonl", "timing.jsonl", "cold_start.jsonl", "trajectories", "evaluations")
OTHERS = ("report.json", "lock", "validation.jsonl", "no_signal.jsonl", "moves.jsonl")


async def changes(runs: Mapping[str, Path]) -> AsyncIterator[str]:
    """Server-sent events, one whenever runs have changed, and a comment every 15 s."""
    seen = await asyncio.to_thread(_looks, runs)
    silent = 0.0
    yield ": connected\n\n"
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        now = await asyncio.to_thread(_looks, runs)
        changed = [identity for identity in runs if now[identity] != seen[identity]]
        seen, silent = now, 0.0 if changed else silent + LOOK_SECONDS
        if changed:
            yield f"event: changed\ndata: {json.dumps({'runs': changed})}\n\n"
        elif silent >= KEEP_ALIVE_SECONDS:
            silent = 0.0
            yield ": keep-alive\n\n"


def _looks(runs: Mapping[str, Path]) -> dict[str, tuple[tuple[int, int], ...]]:
    return {
        identity: tuple(_look(path / name) for name in (*WATCHED, *OTHERS))
        for identity, path in runs.items()
    }


def _look(file: Path) -> tuple[int, int]:
    try:
        status = file.stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size
