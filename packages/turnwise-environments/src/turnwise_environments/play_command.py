"""The command `play`. Not here: the episode (`play.py`), which loads a model's tokenizer."""

import asyncio
from typing import Annotated

import typer

from turnwise.commands.evaluating import Overrides
from turnwise.commands.failures import exit_code, fail
from turnwise.commands.printing import console
from turnwise.config import load_recipe


def play(
    recipe: Annotated[str, typer.Argument(help="The recipe whose environment to play.")],
    overrides: Overrides = None,
    task: Annotated[int, typer.Option(min=0, help="Number of the held-out task.")] = 0,
) -> None:
    """Be the policy yourself: the same loop, with your keyboard in the model's place."""
    loaded = load_recipe(recipe, overrides or [])
    from turnwise.parts.first_checks import configure

    configure(loaded)
    from turnwise_environments.play import play_episode

    try:
        asyncio.run(play_episode(loaded, task, console))
    except KeyboardInterrupt as ended:
        fail("interrupted", exit_code(ended))
