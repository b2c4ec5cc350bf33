"""The command `view`: run folders in the browser."""

import asyncio
import json
import sys
import webbrowser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnwise.commands.failures import exit_code, fail
from turnwise.commands.printing import print_line
from turnwise.errors import ConfigError, DataError, InfrastructureError, MissingExtraError
from turnwise.stopping import name_main_task, stoppable

if TYPE_CHECKING:
    from turnwise_view.dashboard.answers import Dashboard
    from turnwise_view.dashboard.export import Chosen


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
    from turnwise.monitor.meanings import meanings
    from turnwise_view.dashboard.answers import Dashboard
    from turnwise_view.dashboard.runs import find_runs
    from turnwise_view.playing import Player

    exporters = {"sft": _conversations, "atif": _atif}
    runs = find_runs(paths)
    return Dashboard(runs, meanings(), warnings_of, _clip_range, exporters, Player())


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
        sys.stdout.flush()
        if browser:
            webbrowser.open(place)
        try:
            await asyncio.Event().wait()
        finally:
            await dashboard.player.close()


def warnings_of(lines: Sequence[Mapping[str, Any]]) -> list[tuple[int, str]]:
    """The steps at which a run's metrics have the signs of an Echo Trap."""
    from turnwise.monitor.echo_trap import Thresholds, detect

    thresholds, found, quiet = Thresholds(), [], 0
    highest = max((line.get("reward/mean", 0.0) for line in lines), default=1.0)
    for count in range(1, len(lines) + 1):
        trap = detect(lines[:count], max(1.0, highest), thresholds) if count > quiet else None
        if trap is not None:
            found.append((trap.step, str(trap)))
            quiet = count + thresholds.pause
    return found


def _clip_range(recipe: Mapping[str, Any]) -> tuple[float, float] | None:
    """The range of the clip of a recipe's algorithm, where its ratios are those of each token to
    the policy that sampled it."""
    from turnwise.algorithms.parts import BYPASS
    from turnwise.algorithms.registry import make_algorithm
    from turnwise.config import check_recipe

    try:
        chosen = check_recipe(recipe, "the run's recipe").algorithm
        algorithm = make_algorithm(chosen.name, chosen.overrides)
    except ConfigError:
        return None  # of another version, or with a part in a file that is gone
    parts = algorithm.objective, algorithm.ratio_level, algorithm.correction
    if parts != ("clip", "token", BYPASS):
        return None
    numbers = algorithm.numbers_of("objective")
    return 1 - numbers["clip_low"], 1 + numbers["clip_high"]


def _conversations(run: Path, chosen: "Chosen") -> tuple[str, bytes]:
    """Chosen episodes as conversations for `sft.demonstrations.file`, one a line. Those with a
    malformed turn cannot be demonstrations: the file's name says how many are in it."""
    from transformers import AutoTokenizer

    from turnwise.storage.messages import messages_of
    from turnwise_view.dashboard.export import rows_of

    decode = AutoTokenizer.from_pretrained(str(run / "tokenizer")).decode
    found = [messages_of(row, decode) for row in rows_of(run, chosen)]
    lines = [json.dumps({"messages": messages}) + "\n" for messages in found if messages]
    if not lines:
        raise DataError("none of these episodes can be written as messages")
    some = f"-{len(lines)}-of-{len(found)}" if len(lines) < len(found) else ""
    return f"episodes{some}.jsonl", "".join(lines).encode()


def _atif(run: Path, chosen: "Chosen") -> tuple[str, bytes]:
    import io
    import zipfile

    from transformers import AutoTokenizer

    from turnwise.storage.run_folder import RunFolder
    from turnwise_studies.formats.atif_export import trajectory_of
    from turnwise_view.dashboard.export import rows_of

    folder = RunFolder.open(run)
    recipe, decode = folder.recipe(), AutoTokenizer.from_pretrained(str(folder.tokenizer)).decode
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for (name, number), row in zip(chosen, rows_of(run, chosen), strict=True):
            if row["images"] or not row["ids"]:
                raise DataError(f"{name}, row {number} cannot be written in ATIF: it has images")
            whole = f"{name}-{number:05d}"
            text = json.dumps(trajectory_of(row, whole, recipe, decode), allow_nan=False)
            archive.writestr(f"{whole}.json", text + "\n")
    return "episodes.zip", target.getvalue()
