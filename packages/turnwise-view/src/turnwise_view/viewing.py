"""The command `view`: run folders in the browser."""

import asyncio
import sys
import webbrowser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnwise.commands.failures import exit_code, fail
from turnwise.commands.printing import print_line
from turnwise.errors import InfrastructureError, MissingExtraError
from turnwise.stopping import name_main_task, stoppable

if TYPE_CHECKING:
    from turnwise_view.dashboard.answers import Dashboard


def view(
    runs: Annotated[
        list[Path], typer.Argument(help="Run folders, or folders with run folders in them.")
    ],
    host: Annotated[
        str, typer.Option(help="The address to listen at; this machine alone if not given.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 is any that is free.")] = 0,
    browser: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Look at runs in the browser: curves, episodes, every token and why it was trained or not."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise MissingExtraError("starlette and uvicorn", "view") from None
    dashboard = dashboard_of(runs)
    try:
        with stoppable():
            asyncio.run(_serve(dashboard, host, port, browser))
    except KeyboardInterrupt as ended:
        fail(str(ended) or "interrupted", exit_code(ended))


def dashboard_of(paths: Sequence[Path]) -> "Dashboard":
    """The dashboard of some folders. Raises DataError where one holds no run."""
    from turnwise.monitor.metrics import meanings
    from turnwise_view.dashboard.answers import Dashboard
    from turnwise_view.dashboard.runs import find_runs
    from turnwise_view.playing import Player

    return Dashboard(find_runs(paths), meanings(), warnings_of, Player())


async def _serve(dashboard: "Dashboard", host: str, port: int, browser: bool) -> None:
    from turnwise_environments.serving.mcp import free_address, serving
    from turnwise_view.dashboard.security import AccessGuard
    from turnwise_view.dashboard.server import application

    name_main_task()
    try:
        bound = free_address(host, port)
    except OSError as error:
        raise InfrastructureError(
            f"{host}:{port} cannot be listened at: {error.strerror}; choose another --port"
        ) from None
    door = AccessGuard(host, bound.getsockname()[1])
    async with serving(application(dashboard, door), bound) as address:
        place = f"{address}/?token={door.secret}"
        count = f"{len(dashboard.runs)} run{'' if len(dashboard.runs) == 1 else 's'}"
        print_line(f"{count} at {place}\nCtrl-C ends it")
        sys.stdout.flush()  # a program that reads it waits for the address
        if browser:
            webbrowser.open(place)
        try:
            await asyncio.Event().wait()
        finally:
            await dashboard.player.close()


def warnings_of(lines: Sequence[Mapping[str, Any]]) -> list[tuple[int, str]]:
    """The steps at which a run's metrics have the signs of an Echo Trap."""
    from turnwise.monitor.echo_trap import Thresholds, detections

    thresholds, found, quiet = Thresholds(), [], 0
    highest = max((line.get("reward/mean", 0.0) for line in lines), default=1.0)
    for trap in detections(lines, max(1.0, highest), thresholds):
        if trap is not None and trap.step > quiet:
            found.append((trap.step, str(trap)))
            quiet = trap.step + thresholds.pause
    return found
