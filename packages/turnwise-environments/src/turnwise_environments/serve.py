"""The command that serves an environment to agents and trainers outside of turnwise."""

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Annotated

import typer

from turnwise.commands.failures import exit_code, fail
from turnwise.config import load_recipe, shipped_recipes
from turnwise.errors import ConfigError, InfrastructureError
from turnwise.monitor.display import Console
from turnwise.stopping import name_main_task, stoppable
from turnwise_environments.common import check_installed

if TYPE_CHECKING:
    from turnwise_environments.serving.offer import Offer

OPENENV_PORT = 8000


def serve_environment(
    environment: Annotated[
        str,
        typer.Argument(
            help="A recipe, whose environment and limits are served, or else an environment: a "
            "name from `turnwise list`, or path/to/file.py:Class."
        ),
    ],
    changes: Annotated[
        list[str] | None,
        typer.Argument(
            help="Changes to the recipe, as in rollout.max_turns=20; of an environment its "
            "options, as in count=50."
        ),
    ] = None,
    mcp: Annotated[
        bool, typer.Option("--mcp", help="As an MCP server: by stdio, or at --port by HTTP.")
    ] = False,
    openenv: Annotated[
        bool, typer.Option("--openenv", help="As an OpenEnv server, at --port.")
    ] = False,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="With --openenv 8000 if not given; 0 is any free one."),
    ] = None,
    host: Annotated[
        str, typer.Option(help="The address to listen at; this machine alone if not given.")
    ] = "127.0.0.1",
    sessions: Annotated[
        int, typer.Option(min=1, help="The most episodes that may be under way.")
    ] = 16,
    silence: Annotated[
        float, typer.Option(min=1.0, help="Seconds of a client's silence that end its episode.")
    ] = 600.0,
) -> None:
    """Serve an environment to agents and trainers of others: as an MCP or an OpenEnv server."""
    if mcp == openenv:
        raise ConfigError("say how to serve it: --mcp or --openenv")
    offer = offer_of(environment, changes or [], sessions, silence)
    from turnwise_environments.serving.mcp import check_mcp, serve_stdio, serving_http
    from turnwise_environments.serving.offer import check_servable, is_loopback
    from turnwise_environments.serving.openenv import serving_openenv

    check_servable(offer.environment, images=mcp)
    check_mcp(offer.environment) if mcp else check_installed("websockets", "openenv")
    name = offer.environment.spec.name
    if mcp and port is None:
        say(f"serving {name} as an MCP server at standard input and output")
        asyncio.run(serve_stdio(offer))
        return
    reach = "this machine alone" if is_loopback(host) else "ANYONE who reaches it, unasked"
    if mcp:
        served = serving_http(offer, host, port or 0)
    else:
        served = serving_openenv(offer, host, OPENENV_PORT if port is None else port)
    try:
        with stoppable():
            asyncio.run(_until_stopped(served, f"serving {name} to {reach}"))
    except KeyboardInterrupt as ended:
        fail(str(ended) or "interrupted", exit_code(ended))


def offer_of(name: str, changes: list[str], sessions: int, silence: float) -> "Offer":
    """The offer of a recipe's environment, or of one. Raises ConfigError for neither's name."""
    from turnwise.environments.registry import environment_of, make_environment
    from turnwise_environments.commands import one_with_options
    from turnwise_environments.serving.offer import LIMITS, Offer

    if name in shipped_recipes() or name.endswith(".toml"):
        recipe = load_recipe(name, changes)
        if recipe.reward is not None:
            say("the recipe's [reward] is left out: verdicts are the environment's own")
        return Offer(environment_of(recipe), recipe.rollout, sessions, silence, say)
    environment = make_environment(*one_with_options([name, *changes]))
    return Offer(environment, LIMITS, sessions, silence, say)


def say(text: str) -> None:
    Console(stderr=True).print(text, markup=False, highlight=False, soft_wrap=True)


async def _until_stopped(served: AbstractAsyncContextManager[str], what: str) -> None:
    name_main_task()
    try:
        async with served as address:
            say(f"{what} at {address}; Ctrl-C ends it")
            await asyncio.Event().wait()
    except OSError as error:
        raise InfrastructureError(f"the address cannot be had: {error}") from None
