"""Asks the dashboard as a browser does that was let in."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from turnwise_view.dashboard.security import AccessGuard
from turnwise_view.dashboard.server import application
from turnwise_view.viewing import dashboard_of

HOST = "http://127.0.0.1:8080"


@asynccontextmanager
async def admitted(paths: list[Path]) -> AsyncIterator[httpx2.AsyncClient]:
    """A client that was let in."""
    door = AccessGuard("127.0.0.1", 8080)
    transport = httpx2.ASGITransport(application(dashboard_of(paths), door))
    async with httpx2.AsyncClient(transport=transport, base_url=HOST) as client:
        opened = await client.get(f"/?token={door.secret}")
        assert (opened.status_code, opened.headers["location"]) == (303, "/")
        yield client


def get(paths: list[Path], *addresses: str) -> list[Any]:
    """The answers of some addresses of the API."""

    async def answers() -> list[Any]:
        async with admitted(paths) as client:
            return [(await client.get(f"/api/{one}")).json() for one in addresses]

    return asyncio.run(answers())
